"""Normal forms of sizes have the values of what they stand for."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilewright.graph import evaluate, sizes
from tilewright.graph.folding import Folding
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, Var, maximum, minimum

N, M = Var("n"), Var("m")


def drawn(draw: random.Random, depth: int) -> Expr:
    if not depth:
        return draw.choice([N, M])
    e = drawn(draw, depth - 1)
    return draw.choice(
        [
            lambda: e + draw.randint(-3, 5),
            lambda: e // draw.randint(1, 5),
            lambda: (e + draw.randint(-2, 4)) // draw.randint(2, 4),
            lambda: e * draw.randint(1, 3),
            lambda: e + drawn(draw, depth - 1),
        ]
    )()


def test_values_stay() -> None:
    draw = random.Random(4)
    for _ in range(500):
        e = drawn(draw, draw.randint(1, 5))
        for n, m in ((0, 3), (1, 1), (7, 20), (64, 13)):
            values = {N: n, M: m}
            assert sizes.at(sizes.normal(e), values) == sizes.at(e, values), sizes.text(e)


def test_what_is_known_of_sizes_holds() -> None:
    """No value is below `lowest`; max(e, 0) is known not to be negative, nor less than e."""
    draw = random.Random(6)
    zero = sizes.size(0)
    for _ in range(300):
        e = sizes.size(drawn(draw, 2) - draw.randint(0, 9))
        above = sizes.size(maximum(e, zero))
        assert (sizes.lowest(above) or 0) >= 0
        mixed = sizes.size(above * draw.randint(-2, 3) + drawn(draw, 1) - minimum(e, zero))
        for size in (e, above, mixed):
            low = sizes.lowest(size)
            values = [sizes.at(size, {N: n, M: m}) for n in range(5) for m in (0, 1, 9)]
            assert low is None or low <= min(values), sizes.text(size)
    assert sizes.lowest(sizes.size(maximum(N - 5, sizes.size(-1)))) == -1
    assert sizes.lowest(sizes.size(minimum(N - 5, M))) == -5
    one = sizes.size(N - 1)
    assert sizes.is_never_more(one, sizes.size(maximum(one, zero)))
    assert sizes.is_never_more(sizes.size(minimum(N, sizes.size(1))), N)


def test_a_quotient_of_a_quotient_is_one() -> None:
    halved = (((N + 1) // 2 + 1) // 2) // 2
    assert sizes.text(sizes.normal(halved)) == "(n + 3) // 8"
    assert sizes.size((N // 4) // 2) == sizes.size(N // 8)


def test_what_a_quotient_has_in_common_with_its_divisor_goes() -> None:
    """So that sizes of an image that was made larger are told by what it was before."""
    assert sizes.size((N // 4 * 2 + 3) // 4) == sizes.size((N + 4) // 8)
    assert sizes.size((N * 6 + M * 4 + 7) // 8) == sizes.size((N * 3 + M * 2 + 3) // 4)
    assert sizes.size((N * 2 - 1) // 4) == sizes.size((N - 1) // 2)


def test_what_divides_without_remainder_divides() -> None:
    draw = random.Random(5)
    for _ in range(100):
        a, b = drawn(draw, 2) * N + 1, drawn(draw, 3)
        assert sizes.size(a * b // a) == sizes.size(b), sizes.text(a * b // a)
    assert sizes.text(sizes.size((N * M + 1) // (N * M + 2))) == "(m * n + 1) // (m * n + 2)"


@pytest.mark.parametrize("top, bottom", [(-3, "n"), (7, "n"), ("n", -2), (-7, 2), ("n", 3)])
def test_quotients_of_sizes_are_rounded_towards_zero(top, bottom):
    build = Folding("g", {})
    n = build.symbol("n")
    x = build.input("x", "f32", (n,))
    parts = [
        build.from_sizes(np.array([n if v == "n" else v], object), dtype("i64"))
        for v in (top, bottom)
    ]
    made = build.finish([build.emit("div", *parts), build.emit("copy", x)])
    for count in (1, 2, 5, 8):
        a, b = (count if v == "n" else v for v in (top, bottom))
        assert evaluate(made, [np.zeros(count, np.float32)])[0] == [int(a / b)]


def test_what_is_cut_again_and_again_is_held_above_zero_once():
    n, size = Var("n"), sizes.size(Var("n"))
    for k in range(1, 5):
        size = sizes.size(maximum(sizes.size(size - k), sizes.size(0)))
    assert size == sizes.size(maximum(sizes.size(n - 10), sizes.size(0)))
    longer = sizes.size(maximum(sizes.size(maximum(sizes.size(n - 3), sizes.size(0)) + 1), 2))
    assert [sizes.at(longer, {n: k}) for k in range(7)] == [2, 2, 2, 2, 2, 3, 4]


def test_quotients_of_multiples() -> None:
    """k · (e // (k m)) beside e // m: an image's half, doubled, covers it."""
    draw = random.Random(9)
    for _ in range(300):
        k, m, e = draw.randint(1, 4), draw.randint(1, 5), drawn(draw, 2)
        coarse = (e + draw.randint(0, 20)) // (k * m) * (k * draw.choice([-1, 1]))
        size = sizes.size(coarse + e // m * draw.randint(-2, 2) + draw.randint(-2, 2))
        low = sizes.lowest(size)
        values = [sizes.at(size, {N: n, M: m}) for n in range(40) for m in (0, 1, 9)]
        assert low is None or low <= min(values), sizes.text(size)
    half, whole = sizes.size((N + 15) // 16 * 2), sizes.size((N + 7) // 8)
    assert sizes.is_never_more(whole, half) and sizes.is_never_more(half, sizes.size(whole + 1))
    assert not sizes.is_never_more(half, whole)
