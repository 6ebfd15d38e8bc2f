"""Recurrences: a state carried from step to step.

In: the state before the first step and a function from (step, state) to the next state. Out: for
each state tensor the states after every step, stacked along a new first dimension, or the last one;
and stacks of what the steps give beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import Expr, Var
from tilewright.ir.walk import visit
from tilewright.te.tensor import ComputeAxis, Operation, Placeholder, Tensor, shape_of


class Scan(Operation):
    """state(t) = update(t, state(t - 1)); state(-1) = init. `previous` stand for state(t - 1) in
    `updated`; `rows` are what a step gives beside the states. Outputs: for each state its values,
    stacked, or only the last one (`stacks`); then the rows, stacked.
    """

    __slots__ = ("init", "length", "previous", "rows", "stacks", "step", "updated")

    def __init__(
        self,
        name: str,
        step: Var,
        length: Expr,
        init: tuple[Tensor, ...],
        previous: tuple[Tensor, ...],
        updated: tuple[Tensor, ...],
        rows: tuple[Tensor, ...] = (),
        stacks: bool = True,
    ) -> None:
        self.name, self.step, self.length = name, step, length
        self.init, self.previous, self.updated = init, previous, updated
        self.rows, self.stacks = rows, stacks

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What must exist before the scan starts: init, and all that the steps read from
        outside.
        """
        found: dict[Tensor, None] = dict.fromkeys(self.init)
        inside = self.steps()
        for op in inside:
            for tensor in op.inputs:
                if tensor.op not in inside and tensor not in self.previous:
                    found[tensor] = None
        return tuple(found)

    def steps(self) -> list[Operation]:
        """The operations that run at every step, producers first: those that depend on step or
        state.
        """
        order: list[Operation] = []
        depends: dict[Operation, bool] = {}

        def varies(op: Operation) -> bool:
            if op not in depends:
                own = self._uses_step(op) or any(t in self.previous for t in op.inputs)
                below = [varies(t.op) for t in op.inputs if not isinstance(t.op, Placeholder)]
                depends[op] = own or any(below)
                if depends[op]:
                    order.append(op)
            return depends[op]

        for tensor in (*self.updated, *self.rows):
            varies(tensor.op)
            if (
                tensor.op not in order
            ):  # a state that does not depend on the step is still stored each step
                order.append(tensor.op)
        return order

    def _uses_step(self, op: Operation) -> bool:
        values: tuple[Expr, ...] = getattr(op, "values", ())
        return any(n is self.step for v in values for n in visit(v))


def scan(
    update: Callable[..., Any],
    init: Sequence[Tensor] | Tensor,
    length: Any,
    name: str = "scan",
    *,
    stacks: bool = True,
) -> Any:
    """A recurrence: states carried from step to step.

    Args:
        update: `update(t, *previous_states)` gives the next states, and rows beyond them. Computes
            made inside may use `t` as an index and read anything outside.
        init: the states before step 0, one tensor or several.
        length: how many steps there are.
        name: of the results; several are numbered.
        stacks: give the states after every step, of shape (length, *S) for a state of shape S;
            else the last one alone, of shape S (that of `init` after no steps).

    Returns:
        A tensor for each state, then the rows, which are stacked in any case; a tensor alone if
            there is only one state.

    Raises:
        ValueError: `update` gives too few states, or one of another shape or dtype.
    """
    one = isinstance(init, Tensor)
    first = (init,) if isinstance(init, Tensor) else tuple(init)
    step = ComputeAxis(f"{name}_t")
    previous: list[Tensor] = []
    for n, tensor in enumerate(first):
        op = Placeholder()
        op.name = f"{name}_state_{n}" if len(first) > 1 else f"{name}_state"
        op.outputs = (Tensor(op.name, tensor.shape, tensor.dtype, op),)
        previous.append(op.outputs[0])
    result = update(step, *previous)
    given = tuple(result) if isinstance(result, tuple | list) else (result,)
    updated, rows = given[: len(first)], given[len(first) :]
    if len(updated) != len(first):
        raise ValueError(f"update gave {len(updated)} states, init has {len(first)}")
    for new, old in zip(updated, first, strict=True):
        if new.shape != old.shape or new.dtype is not old.dtype:
            raise ValueError(
                f"state '{old.name}' is {old.dtype}{list(old.shape)}, its update is"
                f" {new.dtype}{list(new.shape)}"
            )
    (extent,) = shape_of(length)
    op = Scan(name, step, extent, first, tuple(previous), updated, rows, stacks)
    shapes = [(extent, *t.shape) if stacks else t.shape for t in first]
    shapes += [(extent, *t.shape) for t in rows]
    op.outputs = tuple(
        Tensor(f"{name}_{n}" if len(given) > 1 else name, shape, t.dtype, op, n)
        for n, (t, shape) in enumerate(zip(given, shapes, strict=True))
    )
    return op.outputs[0] if one and not rows else op.outputs
