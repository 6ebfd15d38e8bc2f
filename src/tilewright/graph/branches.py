"""What is known inside of branches that the run takes or does not.

In: conditions (bools of one element) as branches are entered, what the run is made to check in
them, and sizes of the inputs that operators in them need equal. Out: truth values that hold where a
branch counts, so that nothing is built for what cannot be; and sizes that are one in every branch,
so that they are one for the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tilewright.graph.graph import Node, Value
from tilewright.ir.expr import Expr, Var
from tilewright.support.record import record

Literal = tuple[Value, bool]  # a boolean, and what it must be
Unifier = dict[Var, Expr]  # symbols of the inputs → what each has to be


@record
class Fact:
    """The run stops where all of `under` hold and the literal does not. check: the operands of the
    `check_bounds` that sees to it, behind the value that it lets through."""

    literal: Literal
    under: tuple[Literal, ...]
    check: tuple[Value, ...]
    what: str


class Branches:
    """The branches that are being built, the innermost last."""

    def __init__(self, maker: Callable[[Value], Node | None]) -> None:
        self.maker = maker
        self.inside: list[tuple[Literal, Unifier]] = []
        self.facts: list[Fact] = []

    @contextmanager
    def enter(self, condition: Value, holds: bool) -> Iterator[Unifier]:
        """What is built in here is in a branch; gives the sizes that it turns out to need."""
        unifier: Unifier = {}
        self.inside.append((self.literal(condition, holds), unifier))
        try:
            yield unifier
        finally:
            self.inside.pop()

    def unify(self, unifier: Mapping[Var, Expr]) -> None:
        """Note what the innermost branch needs sizes to be."""
        self.inside[-1][1].update(unifier)

    def note(self, condition: Value, check: tuple[Value, ...], what: str) -> None:
        """From here on the run stops where this branch counts and the condition does not hold."""
        under = tuple(literal for literal, _ in self.inside)
        self.facts.append(Fact(self.literal(condition, True), under, check, what))

    def literal(self, value: Value, holds: bool) -> Literal:
        """The same of what a boolean is the view or the opposite of."""
        while (node := self.maker(value)) is not None and node.op in ("reshape", "logical_not"):
            value, holds = node.inputs[0], holds is (node.op == "reshape")
        return value, holds

    def known(self, condition: Value) -> tuple[bool, Fact | None] | None:
        """Whether the condition holds wherever this branch counts, and the fact that says so, if
        the branch itself does not; None: that depends."""
        value, straight = self.literal(condition, True)
        for holds in (True, False):
            if (value, holds) in self.entered:
                return holds is straight, None
        for fact in self.facts:
            if fact.literal[0] is value and self.applies(fact, ()):
                return fact.literal[1] is straight, fact
        return None

    @property
    def entered(self) -> list[Literal]:
        """What holds because of the branches that are being built."""
        return [literal for literal, _ in self.inside]

    def applies(self, fact: Fact, asked: tuple[Fact, ...]) -> bool:
        """Does what the fact is about count here, by the branches entered or by other facts?"""
        return all(
            literal in self.entered
            or any(
                f.literal == literal and f not in asked and self.applies(f, (*asked, fact))
                for f in self.facts
            )
            for literal in fact.under
        )
