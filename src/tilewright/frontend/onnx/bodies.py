"""Bodies of loops as graphs of their own: what they read from around them becomes an input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.registry import Choice, Maybe, NodeContext, Ragged, Refusal, Sequence
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Value


class Inside:
    """A body that is being translated. `given`: the limit and the condition before the first round;
    values from around it become inputs, `captured` as they are called outside.

    in_kernel: it becomes part of a kernel; else the host program runs it.
    """

    in_kernel: bool

    def __init__(self, n: NodeContext, given: list[Value]) -> None:
        self.n, self.outer = n, n.build
        self.inner = Folding("body", is_whole=not self.in_kernel)
        self.inner.budget = n.build.budget
        self.inner.share_names(n.build)
        self.before: Inside | None = n.importer.body
        self.given = given
        self.captured: list[Value] = []
        self.known: dict[Value, Value] = {}

    @cached_property
    def runs(self) -> Value:
        """Whether there is a first round."""
        limit, go = self.given
        some, always = op(self.n, "greater", limit, 0), self.outer.constants.get(go)
        return some if always and always.array.all() else op(self.n, "logical_and", go, some)

    def outside(self, value: Value) -> Value | None:
        """A value of the body as it is called around it; None for what rounds make."""
        return next((outer for outer, inner in self.known.items() if inner is value), None)

    def own(self, value: Any) -> Any:
        """A value from around the body as one inside it."""
        if isinstance(value, Sequence):
            return Sequence(self.own(v) for v in value)
        if isinstance(value, Ragged):
            return Ragged(self.own(value.data), self.own(value.shapes), value.rank)
        if isinstance(value, Maybe):
            return Maybe(self.own(value.present), self.own(value.content))
        if isinstance(value, Choice) and not self.in_kernel:
            return Choice(*map(self.own, (value.condition, value.then, value.other)))
        if value is None or self.is_own(value):
            return value
        if not isinstance(value, Value):
            raise Refusal(f"its body reads {value!r}, which is no tensor")
        if self.before is not None:  # the body around this one has it under a name of its own
            value = self.before.own(value)
        if value not in self.known:
            self.known[value] = self.taken_in(value)
        return self.known[value]

    def is_own(self, value: Any) -> bool:
        inner = self.inner
        return value in inner.made_by or value in inner.constants or value in inner.inputs

    def taken_in(self, value: Value) -> Value:
        """A value of what is around this body, inside."""
        constant = self.outer.constants.get(value)
        if constant is not None:
            return self.inner.constant(constant, value.name, value.dtype)
        held = None if self.in_kernel else self.outer.sizes_in(value)
        if held is not None:
            return self.inner.from_sizes(held, value.dtype, value.name)
        self.captured.append(value)
        return self.inner.input(value.name, value.dtype, value.shape)

    @contextmanager
    def translating(self) -> Iterator[None]:
        """What is built in here stands in this body."""
        importer = self.n.importer
        importer.build, importer.body = self.inner, self
        try:
            yield
        finally:
            importer.build, importer.body = self.outer, self.before


@contextmanager
def outside(n: NodeContext) -> Iterator[None]:
    """What is built in here stands around the body that is being translated."""
    importer = n.importer
    inner, inside = importer.build, importer.body
    importer.build, importer.body = inside.outer, inside.before
    try:
        yield
    finally:
        importer.build, importer.body = inner, inside
