"""Whole models through every room, beside the framework that made them: `python -m tests.e2e`."""
