"""Values of which the run chooses one: what branches of an `If` give.

In: a condition, and for each of its outcomes how to compute values. Out: values again. Branches are
both computed and the condition selects, so nothing in one may count where the other is taken: its
sizes are found under the condition (`Folding.under`), none where it does not hold, and no size of
the inputs is taken for another. Tensors of one rank become one; of two ranks stay a `Choice`, and
what reads it is translated for both. What cannot be translated for one of them is asserted not to
be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.onnx import ragged
from tilewright.frontend.onnx.registry import Choice, Maybe, NodeContext, Ragged, Refusal
from tilewright.frontend.onnx.registry import Sequence as Sequence_
from tilewright.graph.branches import Fact, Unifier
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int
from tilewright.runtime.formats import ELEMENTS, SHAPE
from tilewright.support.errors import ImportFault


def either(n: NodeContext, condition: Value, sides: Sequence[Callable[[], tuple[Any, ...]]]) -> Any:
    """The values that the first side gives where the condition holds, else those of the other.
    Raises what refuses both."""
    known = n.build.branches.known(condition)
    if known is not None and (values := only_side(n, condition, sides, *known)) is not None:
        return values
    made: list[Any] = []
    needs: list[Unifier] = []
    for side, holds in zip(sides, (True, False), strict=True):
        with n.build.taken(condition, holds) as unifier:
            made.append(n.importer.attempt(side))
        needs.append(unifier)
    refused = [v if isinstance(v, ImportFault | Refusal) else None for v in made]
    if all(refused):
        raise refused[0]
    for fault, values, holds in ((refused[0], made[1], False), (refused[1], made[0], True)):
        if fault is not None:
            n.build.need(needs[not holds])
            return asserted(n, condition, holds, values, fault)
    n.build.need(dict(needs[0].items() & needs[1].items()))
    if len(made[0]) != len(made[1]):
        raise Refusal("its branches differ in their number of outputs")
    names = n.node.output
    return tuple(
        merged(n, condition, *pair, name=names[k]) for k, pair in enumerate(zip(*made, strict=True))
    )


def only_side(
    n: NodeContext,
    condition: Value,
    sides: Sequence[Callable[[], tuple[Any, ...]]],
    holds: bool,
    fact: Fact | None,
) -> tuple[Any, ...] | None:
    """The values of the side that is taken wherever this counts. They keep the check alive by which
    that is so: None if they are none that can."""
    with n.build.taken(condition, holds) as unifier:
        values = sides[not holds]()
    if fact is not None:
        if not any(isinstance(v, Value | Choice) for v in values):
            return None
        values = tuple(checked(n, v, fact) for v in values)
    n.build.need(unifier)
    return values


def asserted(
    n: NodeContext, condition: Value, holds: bool, values: tuple[Any, ...], fault: Any
) -> tuple[Any, ...]:
    """The values, each of which tells the run to stop where the condition is not as said, because
    what it would need then was refused: nobody knows which of them is read."""
    what = f"the condition of {n.op} '{n.node.name or n.node.output[0]}' ({fault.why})"
    if not holds:
        condition = n.build.emit("logical_not", condition)
    if not any(isinstance(v, Value) for v in values):
        raise Refusal(
            "it gives no tensor, and one of its branches cannot be translated: " + fault.why
        )
    return tuple(held(n, condition, v, what) if isinstance(v, Value) else v for v in values)


def held(n: NodeContext, condition: Value, x: Value, what: str) -> Value:
    """x; the run stops where the condition does not hold."""
    number = n.build.emit("cast", condition, to="i64")
    only = [] if n.build.under is None else [n.build.under]
    n.build.branches.note(condition, (number, *only), what)
    return checked(n, x, n.build.branches.facts[-1])


def checked(n: NodeContext, x: Any, fact: Fact) -> Any:
    """x, if it is a tensor under the check of the fact: the run stops where that does not hold."""
    if isinstance(x, Choice):
        return Choice(x.condition, checked(n, x.then, fact), checked(n, x.other, fact))
    if not isinstance(x, Value):
        return x
    return n.build.emit("check_bounds", x, *fact.check, least=(1,), most=(1,), what=fact.what)


def merged(n: NodeContext, condition: Value, then: Any, other: Any, name: str) -> Any:
    """What the condition chooses of two values: tensors, sequences, or optional ones."""
    if then is other:
        return then
    if isinstance(then, Maybe) or isinstance(other, Maybe):
        yes = n.constant(np.array(True))
        a, b = (v if isinstance(v, Maybe) else Maybe(yes, v) for v in (then, other))
        present = n.build.emit("where", condition, a.present, b.present)
        if a.content is None or b.content is None:
            return Maybe(present, b.content if a.content is None else a.content)
        return Maybe(present, merged(n, condition, a.content, b.content, name))
    many = ragged.is_sequence(then), ragged.is_sequence(other)
    if all(many):
        if not all(isinstance(v, Sequence_) for v in (then, other)) or len(then) != len(other):
            return ragged.merged(n, condition, then, other) if then or other else then
        pairs = zip(then, other, strict=True)
        return Sequence_(merged(n, condition, a, b, name) for a, b in pairs)
    if any(many):
        raise Refusal("one of its branches gives a sequence, the other a tensor, and data chooses")
    if not all(isinstance(v, Value | Choice) for v in (then, other)):
        raise Refusal(f"its branches give {then!r} and {other!r}")
    if then.dtype is not other.dtype:
        raise Refusal(f"its branches give {then.type_text} and {other.type_text}, of two types")
    if isinstance(then, Choice) or isinstance(other, Choice) or then.rank != other.rank:
        return Choice(condition, then, other)
    known = [n.build.sizes_in(v) for v in (then, other)]
    if then.shape == other.shape and all(k is not None for k in known):
        if known[0].tolist() == known[1].tolist():
            return then
    if then.shape == other.shape or as_int(then.elements) == as_int(other.elements) == 1:
        return n.build.emit("where", condition, then, other, name=name)
    return ragged.merged_tensor(n, condition, then, other)


def elements_and_shape(n: NodeContext, value: Choice) -> dict[str, Value]:
    """What the graph gives for a tensor whose rank the run chooses: its elements, and its shape
    with -1 for axes that it lacks."""

    def parts(value: Any) -> Ragged:
        if isinstance(value, Value):
            return ragged.ragged(n, Sequence_([value]))
        return ragged.merged(n, value.condition, parts(value.then), parts(value.other))

    name, found = n.node.output[0], parts(value)
    n.build.formats |= {name: ELEMENTS, f"{name}.shape": SHAPE}
    shape = n.build.emit("reshape", found.shapes, shape=(found.shapes.shape[1],))
    return {name: found.data, f"{name}.shape": shape}
