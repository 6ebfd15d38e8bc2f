"""Task rows: what became of each task of a run of tuning, as its table and its page show it.

In: what the tuner found. Out: plain data.
"""

from __future__ import annotations

from tilewright.support.record import record
from tilewright.tune.effects import Effect


@record
class TaskRow:
    """A task of a `Tuning`.

    name: of its kernel, the first one where several are the same but for names; launches: in a
    call; default, tuned: seconds of a launch by the schedule that the compiler picks, and by the
    champion's, which is the default's where nothing beat it; trials: that were timed; decided:
    what came of it, in words; course: of each candidate that was the fastest so far, after how many
    seconds it was timed, and its seconds; effects: which decisions mattered; flops, nbytes: what a
    launch computes and touches.
    """

    name: str
    launches: float
    default: float
    tuned: float
    trials: int
    decided: str
    course: tuple[tuple[float, float], ...] = ()
    effects: tuple[Effect, ...] = ()
    flops: int = 0
    nbytes: int = 0

    @property
    def ratio(self) -> float:
        """The default's seconds over the champion's."""
        return self.default / self.tuned if self.tuned > 0 else 1.0
