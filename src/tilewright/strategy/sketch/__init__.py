"""Sketches: spaces of schedules made from a function's blocks alone, whatever they compute."""
