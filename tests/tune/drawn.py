"""Random functions with reductions.

In: a number. Out: a `Case`. The one idea: axes are drawn first, then reads of new inputs along
them; what is computed already brings the axes along which it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from math import prod
from random import Random
from typing import Any

from tests.tune import bounded
from tests.tune.cases import (
    REDUCERS,
    Algebra,
    Case,
    Env,
    Index,
    Named,
    Source,
    Stage,
    Value,
)
from tilewright import te

EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 19, 23, 24, 29, 31, 32, 33, 37, 48, 65)
MOST = 9000  # instances of a reduction
ELEMENTS = 6000  # of an array
OFTEN = ("sum",) * 12 + ("max", "argmax", "argmin") * 2 + tuple(REDUCERS)


def draw(number: int, seed: int) -> Case:
    """A random function. The same for the same numbers."""
    for attempt in count():
        with suppress(TooLarge):
            return Drawing(Random(f"{seed}/{number}/{attempt}")).case()
    raise AssertionError


class TooLarge(Exception):
    """A function that is drawn would take long."""


class Drawing:
    """A function while it is drawn: its inputs and stages so far."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.inputs: list[Source] = []
        self.stages: list[Stage] = []
        self.taken = 0
        self.of = random.choices(
            (("f32", ("f32", "f32", "f16", "bf16", "i8")), ("f64", ("f64", "f32")),
             ("i32", ("i32", "i8", "u8", "i16")), ("i64", ("i64", "i32"))),
            (65, 12, 18, 5),
        )[0]  # fmt: skip
        self.dtype, self.from_types = self.of[0], self.of[1]
        if random.random() < 0.6:
            self.from_types = (random.choice(self.from_types),)
        self.is_float = self.dtype in bounded.EPS
        self.fill = random.choice(("whole", "whole", "real"))
        if random.random() < 0.25:
            self.fill += " strange"

    # Parts -------------------------------------------------------------------

    def name(self, prefix: str) -> str:
        self.taken += 1
        return f"{prefix}{self.taken}"

    def extent(self, most: int = 65) -> int:
        return self.random.choice([n for n in EXTENTS if n <= max(1, most)])

    def input(self, shape: Sequence[int], dtype: str, below: int = 0) -> Source:
        tensor = te.placeholder(tuple(shape), dtype, self.name("x"))
        made = Source(tensor, shape, dtype)
        made.below = below
        self.inputs.append(made)
        return made

    def sources(self) -> list[Source]:
        """What is computed and can be read as a value."""
        made = [s for stage in self.stages for s in stage.made]
        return [s for s in made if s.dtype == self.dtype]

    def case(self) -> Case:
        random = self.random
        for _ in range(random.choices((1, 2, 3), (76, 18, 6))[0]):
            if random.random() < 0.2:
                self.elementwise()
            self.reduction()
        while random.random() < 0.3:
            self.elementwise()
        made = [s for stage in self.stages for s in stage.made]
        outputs = [s for s in made if not s.is_read or random.random() < 0.15]
        func = te.func("f", [s.tensor for s in self.inputs], [s.tensor for s in outputs])
        return Case(func, tuple(self.inputs), tuple(self.stages), tuple(outputs), self.fill)

    # Indices -----------------------------------------------------------------

    def index_of(self, axes: Sequence[Named]) -> tuple[Index, int, bool]:
        """How a new input is read along a dimension: the index, the size, whether it is guarded.
        The first of the axes is used."""
        random, a = self.random, axes[0]
        form = random.choices(
            ("plain", "strided", "reversed", "window", "gather", "part", "rest", "padded"),
            (60, 6, 6, 10, 6, 4, 4, 8),
        )[0]
        n, b = a.extent, random.choice(axes)
        at, step, far = random.randint(0, 2), random.randint(2, 3), random.randint(1, 2)
        if form == "strided":
            return lambda _, e: e[a.name] * step + at, (n - 1) * step + at + 1, False
        if form == "reversed":
            return lambda _, e: (n - 1) - e[a.name], n + random.randint(0, 1), False
        if form == "window" and b != a:
            size = (n - 1) * far + b.extent + at
            return lambda _, e: e[a.name] * far + e[b.name] + at, size, False
        if form == "gather":
            below = self.extent(33)
            source = self.input((n,), random.choice(("i32", "i64")), below)
            return lambda alg, e: alg.index(source, [e[a.name]]), below, False
        if form == "part":
            return lambda _, e: e[a.name] // step, (n - 1) // step + 1, False
        if form == "rest":
            return lambda _, e: (e[a.name] + at) % step, step, False
        if form == "padded":
            size = max(1, n - random.randint(0, 3))
            return lambda _, e: e[a.name] - at, size, True
        return lambda _, e: e[a.name], n, False

    def value_of_input(self, axes: Sequence[Named], needed: Sequence[Named] = ()) -> Value:
        """A read of a new input along some of the axes, as a value of the function's dtype."""
        random = self.random
        for _ in range(30):
            used = [a for a in axes if a in needed or random.random() < 0.6]
            random.shuffle(used)
            if used and random.random() < 0.06:
                used.append(random.choice(used))  # the diagonal
            used = used[:5]
            if prod(a.extent for a in used) <= ELEMENTS / 4:
                break
        else:
            used = [min(axes, key=lambda a: a.extent)]
        before = len(self.inputs)
        made = [self.index_of([a, *axes]) for a in used]
        if random.random() < 0.08:
            made.insert(random.randint(0, len(made)), (lambda _, e: 1, 3, False))
        if not made:
            made = [(lambda _, e: 0, 1, False)]
        if prod(size for _, size, _ in made) > ELEMENTS:
            del self.inputs[before:]
            made = [(_along(a), a.extent, False) for a in used]
        if random.random() < 0.12 and 2 * prod(size for _, size, _ in made) <= ELEMENTS:
            return self.both(made)
        source = self.input([size for _, size, _ in made], random.choice(self.from_types))
        guards = [n for n, (_, _, guarded) in enumerate(made) if guarded]
        return self.read(source, [i for i, _, _ in made], guards)

    def both(self, made: Sequence[tuple[Index, int, bool]]) -> Value:
        """Two reads of one new input, whose parts lie beside one another along some dimension."""
        at, values = self.random.randint(0, len(made)), list[Value]()
        shape = [size for _, size, _ in made]
        source = self.input([*shape[:at], 2, *shape[at:]], self.random.choice(self.from_types))
        for part in (0, 1):
            own = [*made[:at], (lambda _, e, part=part: part, 2, False), *made[at:]]
            guards = [n for n, (_, _, guarded) in enumerate(own) if guarded]
            values.append(self.read(source, [i for i, _, _ in own], guards))
        return self.two(*values)

    def read(self, source: Source, indices: Sequence[Index], guards: Sequence[int]) -> Value:
        """An element, another number where one of the guarded indices is outside."""
        source.is_read = True
        other = self.random.choice((0, 0, 1)) if guards else 0
        to = self.dtype

        def value(alg: Algebra, env: Env) -> Any:
            at = [i(alg, env) for i in indices]
            found = alg.read(source, at, bool(guards))
            for n in guards:
                inside = (at[n] >= 0) & (at[n] < source.shape[n])
                found = alg.chosen(inside, found, other)
            return found if source.dtype == to else alg.cast(found, to)

        return value

    def value_of(self, source: Source) -> tuple[Value, list[Named], list[Named]]:
        """A read of what is computed; the axes that it takes: of the result, reduced."""
        random, spatial, reduced = self.random, list[Named](), list[Named]()
        indices, guards = list[Index](), list[int]()
        for n, size in enumerate(source.shape):
            form = random.choices(
                ("spatial", "reduced", "window", "padded", "reversed", "one", "gather", "diagonal"),
                (36, 36, 8, 8, 4, 3, 4, 4),
            )[0]
            a, k = self.name("i"), self.name("k")
            near = [x for x in spatial + reduced if x.extent <= size]
            if form == "window" and size > 2:
                width = random.randint(2, min(4, size))
                spatial.append(Named(a, size - width + 1))
                reduced.append(Named(k, width))
                indices.append(lambda _, e, a=a, k=k: e[a] + e[k])
            elif form == "padded" and size > 1:
                spatial.append(Named(a, size))
                reduced.append(Named(k, 3))
                indices.append(lambda _, e, a=a, k=k: e[a] + e[k] - 1)
                guards.append(n)
            elif form == "reversed":
                random.choice((spatial, reduced)).append(Named(a, size))
                indices.append(lambda _, e, a=a, m=size - 1: m - e[a])
            elif form == "one":
                at = random.randrange(size)
                indices.append(lambda _, e, at=at: at)
            elif form == "gather":
                count = self.extent(24)
                random.choice((spatial, reduced)).append(Named(a, count))
                where = self.input((count,), "i32", size)
                indices.append(lambda alg, e, a=a, where=where: alg.index(where, [e[a]]))
            elif form == "diagonal" and near:
                indices.append(_along(random.choice(near)))
            else:
                (reduced if form == "reduced" else spatial).append(Named(a, size))
                indices.append(_along(Named(a, size)))
        return self.read(source, indices, guards), spatial, reduced

    # Stages ------------------------------------------------------------------

    def axes(self, spatial: list[Named], reduced: list[Named]) -> None:
        """Add axes, so that there are some of either kind."""
        random = self.random
        new = not spatial and not reduced
        for own, prefix, counts in (
            (spatial, "i", (4, 40, 30, 16, 10) if new else (60, 30, 10, 0, 0)),
            (reduced, "k", (0, 50, 32, 18, 0) if new else (70, 30, 0, 0, 0)),
        ):
            wanted = random.choices(range(5), counts)[0] + (new and prefix == "i")
            wanted = max(wanted, 1 - len(own))
            own += [Named(self.name(prefix), 0) for _ in range(wanted)]
        unknown = [
            (own, n) for own in (spatial, reduced) for n, a in enumerate(own) if not a.extent
        ]
        random.shuffle(unknown)
        for left, (own, n) in zip(range(len(unknown), 0, -1), unknown, strict=True):
            room = MOST / prod(a.extent or 1 for a in spatial + reduced)
            most = room if left == 1 else 2 * room ** (1 / left)
            own[n] = Named(own[n].name, self.extent(int(most)))
        if random.random() < 0.3:
            random.shuffle(spatial)

    def reduction(self) -> None:
        random, sources = self.random, self.sources()
        spatial, reduced, values = list[Named](), list[Named](), list[Value]()
        if sources:
            value, spatial, reduced = self.value_of(random.choice(sources[-2:]))
            values.append(value)
        self.axes(spatial, reduced)
        axes = spatial + reduced
        for n in range(random.choices((1, 2, 3), (25, 60, 15))[0] - bool(values)):
            values.append(self.value_of_input(axes, reduced if not values and n == 0 else ()))
        if not values:
            values.append(self.value_of_input(axes))
        self.store(spatial, reduced, values)

    def store(self, spatial: list[Named], reduced: list[Named], values: list[Value]) -> None:
        """A stage of a drawn reducer, with the values combined."""
        random = self.random
        kind = "float bool" if self.is_float else "whole bool"
        names = [n for n in OFTEN if any(k in REDUCERS[n].kinds.split() for k in kind.split())]
        name = random.choice(names)
        if name in ("prod", "turns", "folded"):
            self.fill = self.fill.replace("whole", "powers")
        of = REDUCERS[name]
        value = self.combined(values, spatial + reduced)
        second = self.combined(values[-1:], spatial + reduced)

        def parts(alg: Algebra, e: Env) -> Any:
            first = value(alg, e)
            if name in ("any", "all"):
                return alg.greater(first, 0)
            if of.is_place:
                return first, _place(e, reduced)
            return (first, second(alg, e)) if of.gives == 2 else first

        self.build(spatial, reduced, parts, name)

    def build(
        self, spatial: Sequence[Named], reduced: Sequence[Named], values: Value, reducer: str
    ) -> None:
        shape = tuple(a.extent for a in spatial)
        if prod(shape) > ELEMENTS or prod(a.extent for a in (*spatial, *reduced)) > 2 * MOST:
            raise TooLarge
        if len(shape) > 5:
            raise TooLarge
        ks = {a.name: te.reduce_axis(a.extent, a.name) for a in reduced}

        def body(*at: Any) -> Any:
            env = dict(zip([a.name for a in spatial], at, strict=True)) | ks
            found = values(Algebra(), env)
            return REDUCERS[reducer].apply(found, [*ks.values()]) if reducer else found

        made = te.compute(shape, body, self.name("t"))
        tensors = made if isinstance(made, tuple) else (made,)
        stored = tuple(Source(t, shape, t.dtype.name) for t in tensors)
        self.stages.append(Stage(tuple(spatial), tuple(reduced), values, reducer, stored))

    def combined(self, values: Sequence[Value], axes: Sequence[Named]) -> Value:
        """One value of several, perhaps only where a condition of the axes holds."""
        random, made = self.random, values[0]
        for other in values[1:]:
            made = self.two(made, other)
        if random.random() < 0.15:
            made = self.one(made)
        if random.random() < 0.08:
            a, b = random.choice(axes).name, random.choice(axes).name
            shift, other = random.randint(0, 3), random.choice((0, 1))
            return _where(a, b, shift, made, other)
        return made

    def two(self, x: Value, y: Value) -> Value:
        form = self.random.choices(
            ("times", "plus", "square", "far", "max", "min"), (55, 12, 10, 10, 7, 6)
        )[0]

        def value(alg: Algebra, e: Env) -> Any:
            a, b = x(alg, e), y(alg, e)
            if form in ("square", "far"):
                d = a - b
                return d * d if form == "square" else alg.absolute(d)
            if form in ("max", "min"):
                return alg.maximum(a, b) if form == "max" else alg.minimum(a, b)
            return a * b if form == "times" else a + b

        return value

    def one(self, x: Value) -> Value:
        forms = ["abs", "positive", "shifted", "double", "own"]
        if self.is_float:
            forms += ["half", *["exp", "tanh", "root"] * ("real" in self.fill)]
        form = self.random.choice(forms)

        def value(alg: Algebra, e: Env) -> Any:
            a = x(alg, e)
            if form in ("abs", "root"):
                size = alg.absolute(a)
                return alg.root(size + 0.5) if form == "root" else size
            if form in ("exp", "tanh"):
                return alg.exp(alg.minimum(a, 2.0)) if form == "exp" else alg.tanh(a)
            if form == "positive":
                return alg.maximum(a, 0)
            if form == "own":
                return a * a
            return a + 1 if form == "shifted" else a * (0.5 if form == "half" else 2)

        return value

    def elementwise(self) -> None:
        """A stage without reduction: of what is computed, or of inputs."""
        random, sources = self.random, self.sources()
        if not sources:
            spatial = list[Named]()
            for _ in range(random.randint(1, 4)):
                room = min(65, 3000 // prod(a.extent for a in spatial))
                spatial.append(Named(self.name("i"), self.extent(room)))
            value = self.value_of_input(spatial, spatial)
        else:
            source = random.choice(sources[-2:])
            spatial = [Named(self.name("i"), n) for n in source.shape]
            value = self.read(source, [_along(a) for a in spatial], ())
            if random.random() < 0.25:
                random.shuffle(spatial)
            same = [s for s in sources if s.shape == tuple(a.extent for a in spatial)]
            if same and random.random() < 0.5:
                other = self.read(random.choice(same), [_along(a) for a in spatial], ())
                value = self.two(value, other)
            elif random.random() < 0.2 and len(spatial) < 5:
                spatial.append(Named(self.name("i"), self.extent(7)))
        if random.random() < 0.5:
            value = self.two(value, self.value_of_input(spatial))
        if random.random() < 0.6:
            value = self.one(value)
        if self.is_float and "real" in self.fill and random.random() < 0.15:
            value = _over(value, self.value_of_input(spatial))
        is_narrow = self.is_float and random.random() < 0.06
        to = random.choice(("f16", "bf16"))

        def last(alg: Algebra, e: Env) -> Any:
            return alg.cast(value(alg, e), to) if is_narrow else value(alg, e)

        self.build(spatial, (), last, "")


def _along(axis: Named) -> Index:
    return lambda _, e: e[axis.name]


def _where(a: str, b: str, shift: int, then: Value, other: float) -> Value:
    """A value below a diagonal, another number elsewhere."""
    return lambda alg, e: alg.chosen(e[a] + shift >= e[b], then(alg, e), other)


def _over(value: Value, under: Value) -> Value:
    return lambda alg, e: alg.over(value(alg, e), alg.absolute(under(alg, e)) + 1.0)


def _place(env: Env, reduced: Sequence[Named]) -> Any:
    """The number of an iteration of the reduced axes."""
    at = env[reduced[0].name]
    for a in reduced[1:]:
        at = at * a.extent + env[a.name]
    return at
