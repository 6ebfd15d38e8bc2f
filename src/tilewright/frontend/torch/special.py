"""Translators of special functions: elementary operators and polynomials fitted in f64.

A function without an elementary form is cut into ranges; on each a Chebyshev polynomial in a
variable that makes it smooth is fitted (once, when first wanted) to the function's own series or
integral, and evaluated by Clenshaw's recurrence. Formulas: Abramowitz & Stegun, by number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, translates
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype

EULER = 0.5772156649015329
DEGREE = 18  # of the fits: f32 accuracy with room


class Terms:
    """Arithmetic on values and numbers of one float dtype, as Python writes it."""

    __slots__ = ("n", "x")
    __array_ufunc__ = None

    def __init__(self, n: NodeContext, x: Value) -> None:
        self.n, self.x = n, x

    def of(self, other: Any) -> Value:
        return other.x if isinstance(other, Terms) else self.n.constant(other, self.x.dtype)

    def apply(self, op: str, *others: Any) -> Terms:
        return Terms(self.n, self.n.emit(op, self.x, *map(self.of, others)))

    def _of_right(self, op: str, left: Any) -> Terms:
        return Terms(self.n, self.n.emit(op, self.of(left), self.x))

    def __add__(self, y: Any) -> Terms:
        return self.apply("add", y)

    def __sub__(self, y: Any) -> Terms:
        return self.apply("sub", y)

    def __mul__(self, y: Any) -> Terms:
        return self.apply("mul", y)

    def __truediv__(self, y: Any) -> Terms:
        return self.apply("div", y)

    def __radd__(self, y: Any) -> Terms:
        return self.apply("add", y)

    def __rmul__(self, y: Any) -> Terms:
        return self.apply("mul", y)

    def __rsub__(self, y: Any) -> Terms:
        return self._of_right("sub", y)

    def __rtruediv__(self, y: Any) -> Terms:
        return self._of_right("div", y)

    def __neg__(self) -> Terms:
        return self.apply("neg")

    def __lt__(self, y: Any) -> Terms:
        return self.apply("less", y)

    def __gt__(self, y: Any) -> Terms:
        return self.apply("greater", y)

    def __getattr__(self, op: str) -> Callable[..., Terms]:
        return lambda *others: self.apply(op, *others)


def choose(condition: Terms, yes: Any, no: Any) -> Terms:
    """yes where the condition holds, else no; one of them is Terms."""
    like = yes if isinstance(yes, Terms) else no
    n = condition.n
    return Terms(n, n.emit("where", condition.x, like.of(yes), like.of(no)))


def special(*names: str) -> Callable[[Callable[..., Terms]], Callable[..., Terms]]:
    """Register a function of Terms under ATen or prims names, given with their namespaces."""

    def register(f: Callable[..., Terms]) -> Callable[..., Terms]:
        def translate(n: NodeContext, *given: Any) -> Value:
            narrow = n.of.bits < 32
            of = dtype("f32") if narrow else n.of
            found = f(*[Terms(n, n.operand(x, of)) for x in given])
            return n.cast(found.x, n.of)

        for name in names:
            assert name not in TRANSLATORS, name
            TRANSLATORS[name] = translate
        return f

    return register


# fits -------------------------------------------------------------------------------------------

Real = Callable[[np.ndarray], np.ndarray]


@cache
def fitted(f: Real, low: float, high: float, degree: int = DEGREE) -> tuple[float, ...]:
    """Chebyshev coefficients of f on [low, high]."""
    nodes = np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    values = f((nodes * (high - low) + high + low) / 2)
    return tuple(np.polynomial.chebyshev.chebfit(nodes, values, degree).tolist())


def evaluated(f: Real, x: Terms, low: float, high: float, degree: int = DEGREE) -> Terms:
    """The fit of f on [low, high] at x, which is held within."""
    coefficients = list(fitted(f, low, high, degree))
    size = max(map(abs, coefficients))
    while len(coefficients) > 2 and abs(coefficients[-1]) < 1e-9 * size:
        coefficients.pop()
    x = x.maximum(low).minimum(high)
    t = x * (2 / (high - low)) - (high + low) / (high - low)
    last: Any = 0.0
    current: Any = coefficients[-1]
    for c in reversed(coefficients[1:-1]):
        last, current = current, 2.0 * t * current - last + c
    return t * current - last + coefficients[0]


def series(term: Callable[[int], float], count: int = 60) -> Real:
    """Σ term(k) z^k."""
    coefficients = [term(k) for k in range(count)]
    return lambda z: np.polynomial.polynomial.polyval(z, coefficients)


def _factorial(k: int) -> float:
    return math.gamma(k + 1.0)


def _harmonic(k: int) -> float:
    return sum(1 / j for j in range(1, k + 1))


# of the error function --------------------------------------------------------------------------


def _erfcx(x: np.ndarray) -> np.ndarray:
    """e^(x²) erfc(x) for x ≥ 0: by definition, or the continued fraction 7.1.14 from the back."""
    found = np.zeros_like(x)
    for k, v in enumerate(x):
        if v < 5:
            found[k] = math.exp(v * v) * math.erfc(v)
        else:
            tail = v
            for j in range(60, 0, -1):
                tail = v + (j / 2) / tail
            found[k] = 1 / (math.sqrt(math.pi) * tail)
    return found


def _erfcx_mapped(t: np.ndarray) -> np.ndarray:
    """(1 + 2x) erfcx(x) in t = (x - 2) / (x + 2), which maps all x ≥ 0 to [-1, 1)."""
    t = np.minimum(t, 1 - 1e-9)
    x = 2 * (1 + t) / (1 - t)
    return (1 + 2 * x) * _erfcx(x)


@special("prims.erfcx.default", "aten.special_erfcx.default")
def erfcx(x: Terms) -> Terms:
    a = x.abs()
    right = evaluated(_erfcx_mapped, (a - 2.0) / (a + 2.0), -1.0, 1.0, 24) / (1.0 + 2.0 * a)
    right = choose(a.isinf(), 0.0, right)
    return choose(x < 0.0, 2.0 * (x * x).exp() - right, right)


@special("prims.erfc.default", "aten.erfc.default")
def erfc(x: Terms) -> Terms:
    """Without the cancellation of 1 - erf(x) where x is large."""
    tail = (-(x * x)).exp() * erfcx(x.maximum(0.5))
    return choose(x < 0.5, 1.0 - x.erf(), tail)


@special("aten.special_log_ndtr.default")
def log_ndtr(x: Terms) -> Terms:
    left = (erfcx(-x.minimum(0.0) * math.sqrt(0.5)) * 0.5).log() - x * x * 0.5
    right = (-0.5 * erfc(x * math.sqrt(0.5))).log1p()
    return choose(x < -1.0, left, right)


def _inverse(w: np.ndarray) -> np.ndarray:
    """erfinv(x) / x where w = -log(1 - x²): Newton's method on erfc, which is exact for small
    1 - |x|."""
    found = []
    for v in w:
        rest = -math.expm1(0.5 * math.log1p(-math.exp(-v))) if v > 1e-12 else 1.0  # 1 - |x|
        x = 1 - rest
        y = math.sqrt(max(v - math.log(math.sqrt(math.pi * max(v, 1e-3))), 0.0)) if v > 4 else x
        for _ in range(60):
            slope = 2 / math.sqrt(math.pi) * math.exp(-y * y)
            y += max(min((math.erfc(y) - rest) / slope, 0.5), -0.5)
        found.append(y / x if x > 1e-6 else math.sqrt(math.pi) / 2)
    return np.array(found)


def _inverse_of_root(s: np.ndarray) -> np.ndarray:
    return _inverse(s * s)


def _probit(x: Terms, w: Terms) -> Terms:
    """erfinv(x) with w = -log(1 - x²)."""
    near = evaluated(_inverse, w, 0.0, 6.0)
    far = evaluated(_inverse_of_root, w.maximum(6.0).sqrt(), math.sqrt(6.0), 10.5)
    return x * choose(w < 6.0, near, far)


@special("prims.erf_inv.default", "aten.erfinv.default")
def erfinv(x: Terms) -> Terms:
    a = x.abs()
    y = _probit(x, -((1.0 - a) * (1.0 + a)).log())
    return choose(a.equal(1.0), x * math.inf, y)


@special("prims.ndtri.default", "aten.special_ndtri.default")
def ndtri(p: Terms) -> Terms:
    y = math.sqrt(2.0) * _probit(2.0 * p - 1.0, -(4.0 * p * (1.0 - p)).log())
    return choose(p.equal(0.0), -math.inf, choose(p.equal(1.0), math.inf, y))


# of the gamma function --------------------------------------------------------------------------

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


@special("prims.lgamma.default", "aten.lgamma.default")
def lgamma(x: Terms) -> Terms:
    """Stirling's series (6.1.41) at x + 7; Γ(x) Γ(1 - x) = π / sin πx for x < 1/2."""
    left = x < 0.5
    y = choose(left, 1.0 - x, x)
    shifted = y
    product = y
    for _ in range(6):
        shifted = shifted + 1.0
        product = product * shifted
    z = shifted + 1.0
    inverse = 1.0 / z
    rest = inverse * (1 / 12 - inverse * inverse * (1 / 360 - inverse * inverse * (1 / 1260)))
    moderate = (z - 0.5) * z.log() - z + 0.5 * math.log(2 * math.pi) + rest - product.log()
    small = 1.0 / y.maximum(0.5)
    large = (y - 0.5) * (y.log() - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5) + small * (1 / 12)
    log_gamma = choose(y > 40.0, large, moderate)
    log_gamma = choose(y.isinf(), math.inf, log_gamma)
    part = x - x.floor()
    sine = (math.pi * part.minimum(1.0 - part)).sin()
    reflected = math.log(math.pi) - sine.log() - log_gamma
    return choose(left, reflected, log_gamma)


@special("prims.digamma.default", "aten.digamma.default", "aten.special_digamma.default")
def digamma(x: Terms) -> Terms:
    """The series 6.3.18 at x + 6; ψ(1 - x) = ψ(x) + π cot πx for x < 0."""
    left = x < 0.0
    y = choose(left, 1.0 - x, x)
    total = 1.0 / y
    for k in range(1, 6):
        total = total + 1.0 / (y + float(k))
    z = y + 6.0
    inverse = 1.0 / z
    square = inverse * inverse
    tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252)))
    right = z.log() - 0.5 * inverse - tail - total
    part = x - x.round()
    reflected = right - math.pi / (math.pi * part).tan()
    reflected = choose(part.equal(0.0), math.nan, reflected)
    found = choose(left, reflected, right)
    return choose(x.equal(0.0), -1.0 / x, found)


@special("prims.zeta.default", "aten.special_zeta.default")
def zeta(s: Terms, q: Terms) -> Terms:
    """Σ (q + k)^-s by the Euler-Maclaurin sum (23.2.9 after twenty terms)."""
    total = q.pow(-s)
    for k in range(1, 20):
        total = total + (q + float(k)).pow(-s)
    a = q + 20.0
    power = a.pow(-s)
    total = total + power * a / (s - 1.0) + 0.5 * power
    factor = s * power / a
    for k, number in enumerate(_BERNOULLI[:5]):
        total = total + factor * (number / _factorial(2 * k + 2))
        factor = factor * (s + (2.0 * k + 1)) * (s + (2.0 * k + 2)) / (a * a)
    whole = q.floor().equal(q)
    below = choose(whole, math.inf, choose(s.floor().equal(s), total, math.nan))
    total = choose(q > 0.0, total, below)
    return choose(s > 1.0, total, choose(s.equal(1.0), math.inf, s * math.nan))


@translates("polygamma.default", "special_polygamma.default")
def polygamma(n: NodeContext, order: int, x: Value) -> Any:
    """(-1)^(n+1) n! ζ(n + 1, x)."""
    wide = Terms(n, n.operand(x, n.of if n.of.bits >= 32 else dtype("f32")))
    if order == 0:
        return n.cast(digamma(wide).x, n.of)
    sign = 1.0 if order % 2 else -1.0
    exponent = wide * 0.0 + (order + 1.0)
    return n.cast((zeta(exponent, wide) * (sign * _factorial(order))).x, n.of)


# Bessel functions -------------------------------------------------------------------------------

SMALL = 8.0  # where the series ends and the asymptotic expansion begins

_i0 = series(lambda k: 1 / _factorial(k) ** 2)  # 9.6.10, in z = x²/4
_i1 = series(lambda k: 1 / (_factorial(k) * _factorial(k + 1)))  # of I₁(x) / (x/2)
_j0 = series(lambda k: (-1) ** k / _factorial(k) ** 2)  # 9.1.10
_j1 = series(lambda k: (-1) ** k / (_factorial(k) * _factorial(k + 1)))
_y0 = series(lambda k: (-1) ** (k + 1) * _harmonic(k) / _factorial(k) ** 2)  # 9.1.13
_y1 = series(  # 9.1.11: of the part of Y₁ without logarithm and 1/x, over x/2
    lambda k: (
        (-1) ** k
        * (_harmonic(k) + _harmonic(k + 1) - 2 * EULER)
        / (_factorial(k) * _factorial(k + 1))
    )
)
_k0 = series(lambda k: (_harmonic(k) - EULER) / _factorial(k) ** 2)  # 9.6.13
_k1 = series(
    lambda k: (_harmonic(k) + _harmonic(k + 1) - 2 * EULER) / (_factorial(k) * _factorial(k + 1))
)


def _scaled(order: int, of_decay: bool) -> Real:
    """√x e^-x I(x), or √x e^x K(x), in u = 1/x: their integrals (9.6.19, 9.6.24) by the trapezoid
    rule."""

    def f(u: np.ndarray) -> np.ndarray:
        x = 1 / np.maximum(u, 1e-7)[:, None]
        if of_decay:
            t = np.linspace(0, 1, 4001) * (9 / np.sqrt(x)).clip(0, 12)
            value = np.exp(-x * 2 * np.sinh(t / 2) ** 2) * np.cosh(order * t)
        else:
            t = np.linspace(0, 1, 4001) * (10 / np.sqrt(x)).clip(0, np.pi)
            value = np.exp(-x * 2 * np.sin(t / 2) ** 2) * np.cos(order * t) / np.pi
        step = t[:, 1] - t[:, 0]
        weights = np.ones(4001)
        weights[0] = weights[-1] = 0.5
        return np.sqrt(x[:, 0]) * (value @ weights) * step

    return f


_LARGE = {(kind, order): _scaled(order, kind == "k") for kind in "ik" for order in (0, 1)}


def _large(kind: str, order: int, a: Terms, low: float) -> Terms:
    inverse = 1.0 / a.maximum(low)
    return evaluated(_LARGE[kind, order], inverse, 0.0, 1 / low) * inverse.sqrt()


def _modified(order: int, x: Terms, scaled: bool) -> Terms:
    a = x.abs()
    near = evaluated(_i1 if order else _i0, a * a * 0.25, 0.0, SMALL**2 / 4, 24)
    far = _large("i", order, a, SMALL)
    if order:
        near = near * a * 0.5
    near, far = (near * (-a).exp(), far) if scaled else (near, far * a.exp())
    y = choose(a < SMALL, near, far)
    return choose(x < 0.0, -y, y) if order else y


@special("prims.bessel_i0.default", "aten.i0.default", "aten.special_modified_bessel_i0.default")
def i0(x: Terms) -> Terms:
    return _modified(0, x, False)


@special("prims.bessel_i1.default", "aten.special_i1.default",
         "aten.special_modified_bessel_i1.default")  # fmt: skip
def i1(x: Terms) -> Terms:
    return _modified(1, x, False)


@special("prims.bessel_i0e.default", "aten.special_i0e.default")
def i0e(x: Terms) -> Terms:
    return _modified(0, x, True)


@special("prims.bessel_i1e.default", "aten.special_i1e.default")
def i1e(x: Terms) -> Terms:
    return _modified(1, x, True)


def _decaying(order: int, x: Terms, scaled: bool) -> Terms:
    """K(x): 9.6.11 and 9.6.13 up to 2, then by its integral."""
    z, half = x * x * 0.25, x * 0.5
    low = 2.0
    if order:
        near = half.log() * half * evaluated(_i1, z, 0.0, low**2 / 4)
        near = near + 1.0 / x - 0.5 * half * evaluated(_k1, z, 0.0, low**2 / 4)
    else:
        near = evaluated(_k0, z, 0.0, low**2 / 4) - half.log() * evaluated(_i0, z, 0.0, low**2 / 4)
    far = _large("k", order, x, low)
    near, far = (near * x.exp(), far) if scaled else (near, far * (-x).exp())
    y = choose(x < low, near, far)
    return choose(x.equal(0.0), math.inf, choose(x < 0.0, math.nan, y))


for _order in (0, 1):
    for _is_scaled, _name in ((False, "modified_bessel_k"), (True, "scaled_modified_bessel_k")):
        special(f"aten.special_{_name}{_order}.default")(
            lambda x, order=_order, scaled=_is_scaled: _decaying(order, x, scaled)
        )


def _hankel(order: int, x: Terms) -> tuple[Terms, Terms]:
    """P and Q of the expansion 9.2.9-10 for large x."""
    u = 1.0 / x.maximum(SMALL)
    square, mu = u * u, 4 * order**2
    terms = [1.0]
    for k in range(1, 10):
        terms.append(terms[-1] * (mu - (2 * k - 1) ** 2) / (8 * k))
    p: Any = (-1.0) ** 4 * terms[8]
    q: Any = (-1.0) ** 4 * terms[9]
    for k in (3, 2, 1, 0):
        p = square * p + (-1.0) ** k * terms[2 * k]
        q = square * q + (-1.0) ** k * terms[2 * k + 1]
    return p, q * u


def _oscillating(order: int, a: Terms, second: bool) -> Terms:
    p, q = _hankel(order, a)
    phase = a - (0.25 + 0.5 * order) * math.pi
    wave = p * phase.sin() + q * phase.cos() if second else p * phase.cos() - q * phase.sin()
    return wave * (2 / math.pi / a.maximum(SMALL)).sqrt()


def _first(order: int, a: Terms) -> Terms:
    near = evaluated(_j1 if order else _j0, a * a * 0.25, 0.0, SMALL**2 / 4, 24)
    near = near * a * 0.5 if order else near
    return choose(a < SMALL, near, _oscillating(order, a, False))


@special("prims.bessel_j0.default", "aten.special_bessel_j0.default")
def j0(x: Terms) -> Terms:
    return _first(0, x.abs())


@special("prims.bessel_j1.default", "aten.special_bessel_j1.default")
def j1(x: Terms) -> Terms:
    y = _first(1, x.abs())
    return choose(x < 0.0, -y, y)


@special("aten.special_bessel_y0.default")
def y0(x: Terms) -> Terms:
    z = x * x * 0.25
    near = (0.5 * x).log() + EULER
    near = near * _first(0, x) + evaluated(_y0, z, 0.0, SMALL**2 / 4, 24)
    y = choose(x < SMALL, near * (2 / math.pi), _oscillating(0, x, True))
    return choose(x.equal(0.0), -math.inf, choose(x < 0.0, math.nan, y))


@special("aten.special_bessel_y1.default")
def y1(x: Terms) -> Terms:
    z, half = x * x * 0.25, x * 0.5
    near = half.log() * _first(1, x) - 1.0 / x
    near = near - 0.5 * half * evaluated(_y1, z, 0.0, SMALL**2 / 4, 24)
    y = choose(x < SMALL, near * (2 / math.pi), _oscillating(1, x, True))
    return choose(x.equal(0.0), -math.inf, choose(x < 0.0, math.nan, y))


@special("prims.spherical_bessel_j0.default", "aten.special_spherical_bessel_j0.default")
def spherical_j0(x: Terms) -> Terms:
    z = x * x
    near = 1.0 - z * (1 / 6) * (1.0 - z * (1 / 20) * (1.0 - z * (1 / 42)))
    far = choose(x.isinf(), 0.0, x.sin() / x)
    return choose(x.abs() < 0.5, near, far)


# Chebyshev polynomials --------------------------------------------------------------------------


def _chebyshev(kind: str, x: Terms, degree: Terms) -> Terms:
    """By angle within [-1, 1], by area outside (22.3.15-16); kinds V and W mirror each other."""
    k = degree.trunc()
    a = x.abs()
    angle, area = x.maximum(-1.0).minimum(1.0).acos(), a.maximum(1.0).acosh()
    sign = choose((k - 2.0 * (k * 0.5).floor()).equal(1.0), -1.0, x * 0.0 + 1.0)
    sign = choose(x < 0.0, sign, 1.0)
    edge = a.equal(1.0)
    one = a * 0.0 + 1.0

    def over(shift: float, divisor: float) -> tuple[Terms, Terms, Terms]:
        """sin((k + s) θ) / sin(d θ) inside and outside, and its limit at 1."""
        inside = ((k + shift) * angle).sin() / (divisor * angle).sin()
        outside = ((k + shift) * area).sinh() / (divisor * area).sinh()
        return inside, outside, (k + shift) * (1 / divisor)

    if kind == "t":
        inside, outside, limit = (k * angle).cos(), (k * area).cosh(), one
    elif kind == "u":
        inside, outside, limit = over(1.0, 1.0)
    else:
        ratio = ((k + 0.5) * angle).cos() / (0.5 * angle).cos()
        ratio_out = ((k + 0.5) * area).cosh() / (0.5 * area).cosh()
        inside_w, outside_w, limit_w = over(0.5, 0.5)
        inside = ratio if kind == "v" else inside_w
        mirrored = (x < 0.0) if kind == "v" else (x < 0.0).logical_not()
        outside = choose(mirrored, outside_w, ratio_out)
        limit = choose(mirrored, limit_w, one)
    value = choose(edge, limit * sign, choose(a < 1.0, inside, outside * sign))
    return choose(k < 0.0, 0.0, value)


for _kind in "tuvw":
    for _overload in ("default", "n_scalar", "x_scalar"):
        special(f"aten.special_chebyshev_polynomial_{_kind}.{_overload}")(
            lambda x, k, kind=_kind: _chebyshev(kind, x, k)
        )
        special(f"aten.special_shifted_chebyshev_polynomial_{_kind}.{_overload}")(
            lambda x, k, kind=_kind: _chebyshev(kind, 2.0 * x - 1.0, k)
        )
