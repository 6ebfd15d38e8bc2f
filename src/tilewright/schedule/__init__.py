"""Schedules: rewrites that a person or the tuner chooses; none of them changes the result."""

from tilewright.schedule.schedule import Schedule, replay
from tilewright.schedule.trace import Decided, Step, Trace

__all__ = ["Decided", "Schedule", "Step", "Trace", "replay"]
