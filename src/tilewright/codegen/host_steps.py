"""What a host program does: its steps, over locations in memory.

In: nothing. Out: the records that `driver/program.py` puts together and `codegen/host.py` writes
as LLVM text. The one idea: each step says what is done and where what it touches lies; sizes are
numbers, or expressions of the model's symbols.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, Var
from tilewright.support.record import record

Size = int | Expr


@record
class Location:
    """An address. space: "input", "output", "buffer", "state" or "next" (then `index` says which;
    a state as a `While` has it now, or as the round makes it), "arena" or "weights".

    offset: bytes from there.
    """

    space: str
    index: int = 0
    offset: Size = 0


@record
class Launch:
    """Start kernel `symbol` over [0, extent); `kernel` is its id in the manifest.

    buffers and symbols are its arguments, in the order that the kernel's entry names them. It
    `continues` a kernel of several entries, but for the first of them. spare: below zero where the
    kernel has too little to do for a parallel region.
    """

    kernel: int
    symbol: str
    extent: Size
    buffers: tuple[Location, ...]
    symbols: tuple[Size, ...] = ()
    continues: bool = False
    spare: Size = 0


@record
class Together:
    """Launches that wait for each other in rows only: each row runs on one thread, all at once. The
    runtime times them as the first one's kernel; profiles part that (`runtime/profile.py`)."""

    rows: tuple[tuple[Launch, ...], ...]


@record
class Is:
    """Whether a size is this number."""

    size: Size
    number: int


@record
class Branch:
    """Run `then` if the condition, or the bool that lies there, holds, else `other`."""

    condition: Location | Is
    then: tuple[Step, ...]
    other: tuple[Step, ...] = ()


@record
class Kept:
    """A state of a `While`: where the first one is, and the first of two buffers for the others, in
    turn. They are `Location("state", index)` and, in the body, `Location("next", index)`."""

    index: int
    start: Location
    buffer: int


@record
class Carried:
    """A size of a state: its symbol's name, its position among the dims (None: nobody asks for it),
    what it is before the first round, and what it is after a round, in terms of the round."""

    symbol: str
    at: int | None
    first: Size
    after: Size


@record
class While:
    """Run `body` while fewer rounds were run than the i64 at `limit` says, `condition` held before
    the first and the bool at `again` after each. The program stops with code `number` + 1 where a
    size is outside [0, MOST_SIZE].

    counter: where the round's number is stored (an i64) before each round; rounds: where how many
    there were is stored at the end. named: as of `host_program`, for each round.
    """

    body: tuple[Step, ...]
    limit: Location
    condition: Location
    again: Location
    states: tuple[Kept, ...]
    carried: tuple[Carried, ...]
    counter: Location
    rounds: Location
    number: int
    named: tuple[tuple[Var, Expr], ...] = ()


@record
class Renew:
    """From here on, there are `nbytes` bytes at `Location("next", index)`."""

    index: int
    nbytes: Size


@record
class ReadSizes:
    """Let symbols be the i64 elements at `location`; the program stops with code `number` + 1 where
    one is outside [0, MOST_SIZE]. symbols: their positions among the dims (None: nobody asks for
    them), and their names."""

    location: Location
    symbols: tuple[tuple[int | None, str], ...]
    number: int


@record
class Provide:
    """From here on, buffer `index` has at least `nbytes` bytes, whose content is not defined."""

    index: int
    nbytes: Size


@record
class Require:
    """The program stops with code `number` + 1 where `size` is negative or leaves i64."""

    size: Size
    number: int


@record
class Check:
    """The program ends where one of `count` integers at `location`, `stride` elements apart, is not
    from `least` to `most`. what: the operator that they are indices of, for the message."""

    location: Location
    of: DType
    count: Size
    stride: int
    least: Size
    most: Size
    what: str


Step = Check | Launch | Together | Branch | While | Renew | ReadSizes | Provide | Require
MOST_SIZE = 1 << 40


def is_straight(steps: Sequence[Step]) -> bool:
    """Does the program's own code visit no elements? Then it need not be optimised: what it does
    between launches it does once."""
    inside = [
        s.then + s.other if isinstance(s, Branch) else s.body
        for s in steps
        if isinstance(s, Branch | While)
    ]
    return not any(isinstance(s, Check) for s in steps) and all(map(is_straight, inside))
