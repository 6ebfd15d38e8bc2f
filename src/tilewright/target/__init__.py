"""Machine descriptions and tensor intrinsics: what a schedule and a code generator may count on."""

from tilewright.target import accel
from tilewright.target.target import Cache, Scope, Target, ThreadLimits, target

__all__ = ["Cache", "Scope", "Target", "ThreadLimits", "accel", "target"]
