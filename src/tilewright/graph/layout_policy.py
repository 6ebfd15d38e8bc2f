"""What the layout pass may ask of a machine, and what it decided.

In: sizes of what a graph computes. Out: what a kind of machine would rather have; nothing here
knows any. The one idea: the pass finds what is legal, a policy picks among it, and each pick is a
named decision (as a schedule's are), so that whoever searches can pick otherwise: the graph is
another, its results are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tilewright.ir.dtype import DType
from tilewright.support.errors import CompileError, InternalFault

P = TypeVar("P", int, str, bool)
Choose = Callable[[str, int | str | bool, tuple[int | str | bool, ...]], int | str | bool]


class LayoutPolicy(Protocol):
    """A kind of machine's view of layouts. Sizes are elements of the plain values."""

    def lanes(self, of: DType) -> int:
        """Elements of a vector: what a block of channels or of columns is made of."""
        ...

    def blocks(self, of: DType) -> tuple[int, ...]:
        """How many channels a block of an image may have."""
        ...

    def block(self, channels: int, of: DType) -> int:
        """How many a block of so many channels had better have: it is their number alone that
        tells, so that images that are read together are packed the same way."""
        ...

    def step(self, channels: int, block: int) -> int:
        """The part of a block that a step of a reduction over so many channels walks."""
        ...

    def group_cycles(
        self, results: int, same_input: int, depth: int, moved: float, of: DType
    ) -> float:
        """Time for a pixel of a convolution with groups: so many results, of which so many
        neighbours (`same_input`) read the same input group, `depth` steps each, and vectors that
        are moved so that groups have blocks of their own. Infinite where that is never worth it."""
        ...

    def is_along_rows(
        self,
        sources: int,
        results: int,
        steps: int,
        width: int | None,
        groups: int,
        *,
        is_packed: bool,
        edge: int,
        of: DType,
    ) -> bool:
        """Whether the vectors of a convolution had better be neighbouring pixels, of rows of
        `width` results, its image (is it packed?) plain. A result takes so many `steps`, packed
        ones fewer if in Winograd's tiles with this edge (0: they are not)."""
        ...

    def winograd_edge(
        self,
        rows: int,
        width: int,
        sources: int,
        padded: int,
        results: int,
        block: int,
        axes: Sequence[tuple[int, tuple[int, int], int, int]],
        planes: int,
        of: DType,
    ) -> int:
        """The edge of the tiles of Winograd's convolution to rows × width results, 2 or 4, or 0
        where it does not pay. sources, padded: channels of the image that the plain packed one
        walks, and that tiles do. axes: of the image, each its size, padding, taps and dilation; the
        results have so many `planes` along all but the last two."""
        ...

    def is_across(self, rows: int, width: int, vectors: int, block: int) -> bool:
        """Whether tiles of an image had better span its rows; vectors: of a pixel."""
        ...

    def saves_steps(self, sources: int, taps: Sequence[int], strides: Sequence[int]) -> bool:
        """Whether a transposed convolution had better run phase by phase."""
        ...

    def stays_near(self, nbytes: int) -> bool:
        """Whether so many bytes are still near when they are read as soon as they are written."""
        ...

    def is_packed_product(
        self,
        rows: int | None,
        depth: int,
        columns: int | None,
        *,
        is_known: bool,
        transpose_a: bool,
        transpose_b: bool,
        of: DType,
    ) -> bool:
        """Whether a product had better have its right operand in panels (is it known already, or
        packed in each run? transpose_b: as it lies). transpose_a: the left one is then
        transposed. None: only the run knows the size."""
        ...

    def panels(self, vectors: int | None) -> tuple[int, ...]:
        """How many vectors wide the panels of a product to so many vectors may be."""
        ...

    def panel(self, rows: int, vectors: int | None, depth: int, of: DType) -> int:
        """How wide they had better be."""
        ...


class Decisions:
    """What a graph's passes decided, by name: the graph's point. `choose` picks instead of
    the passes; `within`: the beginning of all names, of a loop's body."""

    def __init__(self, choose: Choose | None = None, within: str = "") -> None:
        self.choose, self.within = choose, within
        self.taken: dict[str, int | str | bool] = {}

    def of_body(self, name: str) -> Decisions:
        """Those of the body of a loop, which are kept here."""
        body = Decisions(self.choose, f"{self.within}{name}.")
        body.taken = self.taken
        return body

    def decide(self, name: str, own: P, legal: Sequence[P]) -> P:
        """The value of a decision that is taken once: `own` is the policy's pick. Where nothing
        else is legal, nothing is decided. Raises CompileError for a value that is not legal."""
        if len(legal) < 2:
            return own
        name = self.within + name
        if name in self.taken:
            raise InternalFault(f"decision '{name}' is taken twice")
        value = own if self.choose is None else self.choose(name, own, tuple(legal))
        if value not in legal:
            raise CompileError(
                f"cannot set decision '{name}' to {value!r}",
                "it is not among the values that are legal there",
                remedy=f"it may be one of {', '.join(map(repr, legal))}",
            )
        self.taken[name] = value
        return value  # type: ignore[return-value]
