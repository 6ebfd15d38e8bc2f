"""Tune: search the space that strategies span, and keep the best points."""
