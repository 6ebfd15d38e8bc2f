"""Mathematical functions as internal LLVM functions.

In: which functions a module calls. Out: their texts, made by the expression emitter from the
definitions in `math.py`, and the declarations of the intrinsics that they use.
"""

from __future__ import annotations

import functools
import inspect

from tilewright.codegen.float_forms import in_steps
from tilewright.codegen.llvm_expressions import Expressions
from tilewright.codegen.llvm_math import Need, symbol
from tilewright.codegen.llvm_memory import spread
from tilewright.codegen.llvm_types import Value, register
from tilewright.codegen.math import FUNCTIONS
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, Select, Var
from tilewright.target.target import Target


def definitions(needs: set[Need], target: Target) -> tuple[list[str], set[str]]:
    """Texts of the functions that `needs` name and of those they call, and the declarations."""
    texts: list[str] = []
    declared: set[str] = set()
    done: set[Need] = set()
    while needs > done:
        need = min(needs - done)
        done.add(need)
        text, declarations, more = _definition(need, target)
        texts.append(text)
        declared |= declarations
        needs = needs | more
    return texts, declared


@functools.lru_cache(maxsize=256)
def _definition(need: Need, target: Target) -> tuple[str, frozenset[str], frozenset[Need]]:
    """The text of one function, the declarations that it takes, and the functions it calls."""
    name, of, lanes = need[0], dtype(need[1]), need[2]
    function = FUNCTIONS[name]
    parameters = [Var(f"x{n}", of) for n in range(len(inspect.signature(function).parameters))]
    body = _Function(target, lanes)
    for p in parameters:
        body.env[p.name] = Value(f"%{p.name}", of, lanes)
    made = function(*parameters)
    scales = lanes and target.has("avx512f")
    result = body.eval(made if scales else in_steps(made))
    kind = register(of, lanes)
    head = ", ".join(f"{kind} %{p.name}" for p in parameters)
    text = (
        f'define internal {kind} @"{symbol(name, of, lanes)}"({head}) #1 {{\nentry:\n'
        f"{body.b.text()}\n  ret {kind} {result.text}\n}}"
    )
    return text, frozenset(body.b.declarations), frozenset(body.b.needs)


class _Function(Expressions):
    """Evaluates a definition; what it uses twice is evaluated once."""

    def __init__(self, target: Target, lanes: int) -> None:
        super().__init__(target)
        self.lanes = lanes
        self.values: dict[int, Value] = {}

    def eval(self, e: Expr) -> Value:
        known = self.values.get(id(e))
        if known is None:
            known = self.values[id(e)] = super().eval(e)
        return known

    def select(self, e: Select) -> Value:
        """Both sides are values without effects: no need to ask what they read."""
        cond, then, other = self.eval(e.cond), self.eval(e.then), self.eval(e.other)
        lanes = max(cond.lanes, then.lanes, other.lanes)
        if lanes:
            then, other = spread(self.b, then, lanes), spread(self.b, other, lanes)
        return self.ops.select(cond.text, cond.lanes, then, other)
