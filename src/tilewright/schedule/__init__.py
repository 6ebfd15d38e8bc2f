"""Schedules: rewrites that a person or the tuner chooses; none of them changes the result."""

from tilewright.schedule.schedule import Schedule, replay
from tilewright.schedule.trace import Step, Trace

__all__ = ["Schedule", "Step", "Trace", "replay"]
