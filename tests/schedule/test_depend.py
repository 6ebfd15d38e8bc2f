"""Dependences: what index expressions determine, and which regions never overlap."""

import itertools

import numpy as np
import pytest

from tilewright.arith.affine import Forms
from tilewright.arith.simplify import simplify
from tilewright.ir.dtype import f32
from tilewright.ir.expr import Buffer, Var, as_int, const
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Region
from tilewright.ir.walk import free_vars, substitute
from tilewright.schedule import Schedule, depend
from tilewright.schedule.depend import apart
from tilewright.schedule.determine import _Determination, follows
from tilewright.support.errors import ScheduleError

X, Y, Z, F = Var("x"), Var("y"), Var("z"), Var("f")
RANGES = {X: (0, 3), Y: (0, 4), Z: (0, 1), F: (0, 23)}
INSIDE = {X, Y, Z, F}


def determined(values, inside, ranges):
    """The variables of `inside` that follow from `values`."""
    return {v for v in inside if follows(v, values, inside, Forms(ranges))}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([X], {X}),
        ([X + Y], set()),
        ([X * 5 + Y], {X, Y}),
        ([X * 4 + Y], set()),
        ([X * 2 + Z, Y], {X, Y, Z}),
        ([X * 10 + Y * 2 + Z], {X, Y, Z}),
        ([X + Y, Y], {X, Y}),
        ([F // 6, F % 6], {F}),
        ([F // 6], set()),
        ([F // 6, F % 3], set()),
        ([F // 12, F // 3 % 4, F % 3], {F}),
        ([F // 12, F % 3], set()),
        ([F % 24], {F}),
        ([(X * 5 + Y) // 3, (X * 5 + Y) % 3], {X, Y}),
        ([(X * 5 + Y) // 4, Z], {Z}),
        ([const(3)], set()),
    ],
)
def test_determined(values, expected):
    assert determined(values, INSIDE, RANGES) == expected


@pytest.mark.parametrize(
    "values", [[X], [X * 10 + Y * 2 + Z], [F // 12, F // 3 % 4, F % 3], [Y + F // 6 * 5, F % 6]]
)
def test_what_plainly_follows_is_not_searched_for(values, monkeypatch):
    monkeypatch.setattr(_Determination, "run", lambda *_: pytest.fail("it was searched for"))
    var = F if F in free_vars(values[-1]) else X
    assert follows(var, values, INSIDE, Forms(RANGES))


def test_no_iteration_reads_what_another_one_of_its_block_writes():
    """Random blocks that read what they write, at another index: one that may run in parallel has
    no two iterations that meet, by enumeration."""
    random = np.random.default_rng(0)
    accepted = 0
    for _ in range(150):
        count, least = int(random.integers(2, 7)), 24
        write, read = (
            (int(random.integers(1, 4)), least + int(random.integers(-6, 7))) for _ in range(2)
        )
        into, of = (f"A[vi * {step} + {start}]" for step, start in (write, read))
        s = Schedule(
            parse_func(f"""\
def f(A: f32[64]):
    for i in serial(0, {count}):
        with block("A"):
            vi = spatial({count}, i)
            reads({of})
            writes({into})
            {into} = {of} + 1.0
""")
        )
        try:
            s.parallel("i")
        except ScheduleError:
            continue
        accepted += 1
        (a, b), (c, d) = write, read
        assert all(a * i + b != c * j + d for i, j in itertools.permutations(range(count), 2))
    assert accepted > 30


def test_determined_is_never_wrong():
    """Random sums of digits: what is said to be determined is, by enumeration."""
    random = np.random.default_rng(0)
    names = [X, Y, Z]
    sizes = [4, 5, 2]
    points = list(itertools.product(*map(range, sizes)))
    at = np.array(points).T
    said = 0
    for _ in range(500):
        values, tables = [], []
        for _ in range(int(random.integers(1, 4))):
            c, d, m = (
                random.integers(-6, 7, 3),
                int(random.integers(1, 5)),
                int(random.integers(1, 9)),
            )
            e, t = const(0), np.zeros(len(points), int)
            for k, v, column in zip(c, names, at, strict=True):
                e, t = e + v * int(k), t + int(k) * column
            k, step = random.integers(0, 4, 2)
            first, ticks = X * int(k) + Y * int(step), int(k) * at[0] + int(step) * at[1]
            shape = int(random.integers(5))
            values.append([e, e // d, e % m, e // d % m, (first + e // d) % m][shape])
            tables.append([t, t // d, t % m, t // d % m, (ticks + t // d) % m][shape])
        found = determined(values, set(names), RANGES)
        said += len(found)
        for v in names:
            seen = {}
            for n, point in enumerate(points):
                seen.setdefault(tuple(int(t[n]) for t in tables), set()).add(point[names.index(v)])
            truth = all(len(each) == 1 for each in seen.values())
            assert truth or v not in found
    assert said > 100


def test_what_is_fixed_need_not_be_told_apart():
    """Lanes of a vector over four fused axes: the digits leave a multiple of 752 open, and a vector
    moves by 16."""
    o, i = Var("o"), Var("i")
    at, ranges = o * 16 + i, {o: (0, 93), i: (0, 15)}
    values = [o // 47, at // 188 % 4, at // 47 % 4, at % 47]
    assert determined(values, {i}, ranges) == {i}
    assert determined(values[1:], {i}, ranges) == {i}
    assert determined(values[1:], {o, i}, ranges) == set()


def test_digits_of_bases_that_are_the_same_modulo_their_ends():
    """54 indices in vectors of 16, their digits as simplification leaves them."""
    o, i = Var("o"), Var("i")
    values = [
        (o * 16 + i) // 18,
        (o + (o * 7 + i) // 9) % 2,
        (o * 2 + (o + i) // 3) % 3,
        (o + i) % 3,
    ]
    ranges = {o: (0, 1 << 20), i: (0, 15)}
    assert determined(values, {i}, ranges) == {i}
    assert determined(values, {o, i}, ranges) == {o, i}
    assert determined(values[1:], {i}, ranges) == {i}
    assert determined(values[1:], {o, i}, ranges) == set()
    assert determined(values[1:], {i}, {o: (0, 3), i: (0, 31)}) == set()


def test_digits_with_a_factor():
    """Rows and columns of tiles of 4, the tiles fused and cut: the row's digit stands 4 times."""
    f, o, row, column = Var("f"), Var("o"), Var("row"), Var("column")
    values = [
        f * 12 + (f * 15 + o) // 16 * 4 + row,
        (f * 15 + o) % 16 * 4 + column,
    ]
    ranges = {f: (0, 1), o: (0, 62), row: (0, 3), column: (0, 3)}
    assert determined(values, set(ranges), ranges) == set(ranges)


def test_digits_of_an_open_size():
    f, n, m = Var("f"), Var("n"), Var("m")
    ranges = {f: (0, None), n: (1, None), m: (1, None)}
    assert determined([f // n, f % n], {f}, ranges) == {f}
    assert determined([f // n // 12, f // n % 12, f % n], {f}, ranges) == {f}
    assert determined([f // n, f % m], {f}, ranges) == set()
    assert determined([f // n, f % n], {f, n}, ranges) == set()
    assert determined([f // n // 12, f // n % 11, f % n], {f}, ranges) == set()


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_fused_axes_are_told_apart(seed):
    """Axes fused, cut into unequal parts and vectors, their digits simplified."""
    random = np.random.default_rng(seed)
    sizes = [int(n) for n in random.choice([2, 3, 5, 7, 8, 9, 16, 31, 33, 56, 63, 65], 3)]
    o, m, i = Var("o"), Var("m"), Var("i")
    lanes, total = int(random.choice([4, 8, 16])), int(np.prod(sizes))
    vectors = -(-total // lanes)
    parts = int(random.integers(2, 13))
    each = -(-vectors // parts)
    ranges = {o: (0, parts - 1), m: (0, each - 1), i: (0, lanes - 1)}
    forms = Forms(ranges)
    at = (o * each + m) * lanes + i
    b, c = sizes[1:]
    values = [forms.simplified(e) for e in (at // (b * c), at // c % b, at % c)]
    assert determined(values, {o, m, i}, ranges) == {o, m, i}


def region(*starts, extents=None):
    """A region of a buffer of that rank."""
    buffer = Buffer("A", (const(64),) * len(starts), f32)
    sizes = extents or (1,) * len(starts)
    return Region(buffer, tuple(const(0) + s for s in starts), tuple(const(e) for e in sizes))


def evaluate(e, values):
    """The value of an index expression where the variables have values."""
    return as_int(simplify(substitute(e, {v: const(n) for v, n in values.items()})))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (region(X), region(X), True),
        (region(X), region(X + 1), False),
        (region(X * 5 + Y), region(X * 5 + Y), True),
        (region(X * 4 + Y), region(X * 4 + Y), False),
        (region(X * 4, extents=(4,)), region(X * 4 + 3), True),
        (region(X * 4, extents=(5,)), region(X * 4), False),
        (region(X, Y), region(X, 4 - Y), True),
        (region(Y, X), region(X, Y), False),
        (region(X), region(3 - X), False),
        (region(Y), region(Y), False),
        (region(X * 2), region(X * 2 + 1), True),
        (region(X), region(X + 4), True),
        (region(X), region(X + 3), False),
        (region(Y, X), region(Y + 5, 3 - X), True),
        (region(X // 2 * 5 + Y, X % 2 * 2 + Z), region(X // 2 * 5 + Y, X % 2 * 2 + Z), True),
        (region(X // 2 * 4 + Y, X % 2 * 2 + Z), region(X // 2 * 4 + Y, X % 2 * 2 + Z), False),
        (region(X // 2 * 5 + Y, X % 2 + Z), region(X // 2 * 5 + 4 - Y, X % 2), False),
    ],
)
def test_apart(a, b, expected):
    assert apart(a, b, X, {X, Y, Z}, Forms(RANGES)) is expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (region(X * 5 + Y), region(X * 5 + Z)),
        (region(X * 4, extents=(4,)), region(X * 4 + 3)),
        (region(X // 2 * 5 + Y, X % 2 * 2 + Z), region(X // 2 * 5 + 4 - Y, X % 2 * 2)),
    ],
)
def test_what_is_plainly_apart_needs_no_second_names(a, b, monkeypatch):
    monkeypatch.setattr(depend, "substitute", lambda *_: pytest.fail("variables were renamed"))
    assert apart(a, b, X, {X, Y, Z}, Forms(RANGES))


@pytest.mark.parametrize("seed", range(40))
def test_apart_is_never_wrong(seed):
    rng = np.random.default_rng(seed)

    def start():
        quotient = X // 2 * int(rng.integers(0, 4)) + X % 2 * int(rng.integers(0, 4))
        whole = X * int(rng.integers(-1, 6))
        x = quotient if rng.random() < 0.3 else whole
        return x + Y * int(rng.integers(-1, 2)) + Z * int(rng.integers(0, 3)) + F // 12

    same = start()
    a, b = (
        region(same + int(rng.integers(0, 3)), start(), extents=rng.integers(1, 4, 2).tolist())
        for _ in range(2)
    )
    if not apart(a, b, X, {X, Y, Z}, Forms(RANGES)):
        return
    inner = list(itertools.product(range(5), range(2)))
    for f, x, other in itertools.product((0, 12), range(4), range(4)):
        if x == other:
            continue
        mine = [[evaluate(s, {X: x, Y: y, Z: z, F: f}) for s in a.starts] for y, z in inner]
        its = [[evaluate(s, {X: other, Y: y, Z: z, F: f}) for s in b.starts] for y, z in inner]
        for p, q in itertools.product(mine, its):
            gaps = zip(p, a.extents, q, b.extents, strict=True)
            assert any(s + e.value <= t or t + g.value <= s for s, e, t, g in gaps)
