"""Translators of ATen's special functions that are recurrences or series of as many steps as it
takes: orthogonal polynomials and the incomplete gamma functions."""

from __future__ import annotations

import math
from typing import Any

from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext
from tilewright.frontend.torch.special import Terms, choose, lgamma
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype

KINDS = {"hermite_polynomial_h": "hermite", "hermite_polynomial_he": "hermite_e",
         "laguerre_polynomial_l": "laguerre", "legendre_polynomial_p": "legendre"}  # fmt: skip


def spread(n: NodeContext, x: Any, of: str) -> Value:
    """An operand as a vector of the result's length."""
    wide = n.expand(n.cast(n.operand(x), of), n.shape)
    return n.reshape(wide, (wide.elements,))


def polynomial(n: NodeContext, x: Any, degree: Any) -> Any:
    """Degrees are truncated; where the recurrence would lose all digits PyTorch gives NaN."""
    kind = KINDS[n.op.removeprefix("special_")]
    of = n.of if n.of.name in ("f32", "f64") else dtype("f32")
    degrees = n.cast(spread(n, degree, of.name), "i64")
    y = n.emit("polynomial", spread(n, x, of.name), degrees, kind=kind)
    return n.cast(n.reshape(y, n.shape), n.of)


for _name in KINDS:
    for _overload in ("default", "x_scalar", "n_scalar"):
        TRANSLATORS[f"aten.special_{_name}.{_overload}"] = polynomial


def constant(value: float, like: Terms) -> Terms:
    return Terms(like.n, like.of(value))


def incomplete_gamma(n: NodeContext, a: Any, x: Any) -> Any:
    """P(a, x) or Q(a, x), which are 0 and 1 at x = 0 and the other way at infinity. At the ends
    the first that decides is PyTorch's, whatever the other number."""
    upper = n.op in ("igammac", "special_gammaincc")
    a, x = Terms(n, spread(n, a, "f64")), Terms(n, spread(n, x, "f64"))
    start, end = (1.0, 0.0) if upper else (0.0, 1.0)
    inside = (a > 0.0).logical_and(x > 0.0).logical_and(a < math.inf).logical_and(x < math.inf)
    b, z = choose(inside, a, 1.0), choose(inside, x, 1.0)
    front = (b * z.log() - z - lgamma(b)).exp()
    y = Terms(n, n.emit("incomplete_gamma", b.x, z.x, front.x, upper=upper))
    unknown = (a + x).isnan()
    y = choose(unknown, math.nan, y)
    endless, far = a.equal(math.inf), x.equal(math.inf)
    y = choose(far, end, y)
    y = choose(endless, choose(far, constant(math.nan, y), start), y)
    y = choose(x.equal(0.0), start, y)
    y = choose(a.equal(0.0), choose(x > 0.0, constant(end, y), math.nan), y)
    y = choose((x < 0.0).logical_or(a < 0.0), math.nan, y)
    return n.cast(n.reshape(y.x, n.shape), n.of)


for _name in ("prims.igamma", "prims.igammac", "aten.igamma", "aten.igammac",
              "aten.special_gammainc", "aten.special_gammaincc"):  # fmt: skip
    TRANSLATORS[f"{_name}.default"] = incomplete_gamma
