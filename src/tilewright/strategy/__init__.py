"""For a function and a machine: the space of schedules, and the default pick."""
