"""What the sizes of an exported program have to be, beyond their ranges.

torch.export follows one way through a model's code. Where that branches on a size (is it a multiple
of 4, or has the image to be padded?) the program is right for sizes that take the same branch
alone, and PyTorch keeps the condition as a guard. In: a program. Out: the remainders that guards
ask for. `Eq(Mod(s, 4), 0)` and then `Eq(Mod(s // 4, 2), 0)` make s = 8 n. Other guards (`s // 4` is
not 1) say what PyTorch did not want to look at; what is made of such sizes holds for them, too.
"""

from __future__ import annotations

import math
from typing import Any

import torch

MOST = 1 << 12  # the largest divisor that is looked at


def remainders(program: torch.export.ExportedProgram) -> dict[str, tuple[int, int]]:
    """By PyTorch's symbol for a size: (m, k) where it has to be m · n + k for a whole n."""
    import sympy

    conditions = [c for c in guards(program) if isinstance(c, sympy.Eq)]
    found: dict[Any, tuple[int, int]] = {}
    counts: dict[Any, Any] = {}  # symbol → n, which stands for it in the conditions
    for _ in range(len(conditions)):  # one may only be read after another
        before = dict(found)
        for condition in conditions:
            for symbol in sorted(condition.free_symbols, key=str):
                n = counts.setdefault(
                    symbol, sympy.Symbol(f"{symbol}_n", integer=True, positive=True)
                )
                m, k = found.get(symbol, (1, 0))
                step, first = _solved(condition.subs(symbol, m * n + k), n)
                if step > 1:
                    found[symbol] = m * step, m * first + k
        if found == before:
            break
    return {str(symbol): kept for symbol, kept in found.items()}


def guards(program: torch.export.ExportedProgram) -> list[Any]:
    """The conditions on sizes that torch.export relied on, as sympy's expressions."""
    for node in program.graph.nodes:
        fake = node.meta.get("val")
        if node.op == "placeholder" and isinstance(fake, torch.Tensor):
            for size in fake.shape:
                if isinstance(size, torch.SymInt):
                    environment = size.node.shape_env
                    return [] if environment is None else [g.expr for g in environment.guards]
    return []


def _solved(condition: Any, n: Any) -> tuple[int, int]:
    """(step, first) where a condition Mod(a n + b, m) = r holds for n = first, first + step, …;
    (1, 0) where it is another or tells nothing."""
    if not hasattr(condition, "lhs") or condition.free_symbols != {n}:
        return 1, 0
    left, right = condition.lhs, condition.rhs
    if type(left).__name__ not in ("Mod", "PythonMod") or not right.is_Integer:
        return 1, 0
    value, by = left.args
    if not by.is_Integer or not 1 < by <= MOST or not value.is_polynomial(n):
        return 1, 0
    b, a = value.subs(n, 0), value.coeff(n, 1)
    if value != a * n + b or not (a.is_Integer and b.is_Integer):
        return 1, 0
    step = int(by) // math.gcd(int(a), int(by))
    firsts = [k for k in range(step) if (int(a) * k + int(b)) % int(by) == int(right)]
    return (step, firsts[0]) if firsts else (1, 0)
