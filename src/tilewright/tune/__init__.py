"""Tuning: schedules that are found by running them."""
