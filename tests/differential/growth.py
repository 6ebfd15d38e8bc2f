"""A graph that grows: values whose content is known, steps that apply operators to them.

Every value holds its content in each *world*. A graph without symbolic dimensions has one world;
one with them has several that give the symbols different sizes, and a step is kept only if it is
sound in all of them: what merely happens to fit in one does not in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from tests.differential.reference import (
    IR_VERSION,
    NodeReference,
    Unsound,
    is_float,
    opsets,
    type_of,
)

Dims = tuple[tuple[int, ...], ...]  # for each axis its size in each world
Content = Callable[[np.ndarray], bool]

MOST_ELEMENTS = 6000
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 33, 0)
_WEIGHTS = np.array([4, 5, 5, 4, 4, 3, 3, 2, 1, 2, 1, 1, 0.7, 0.5])
RANKS = (*range(6), *range(6), *range(6), 6, 7)
_WEIGHTS /= _WEIGHTS.sum()
EMPTYING = (
    "Loop",
    "Slice",
    "Split",
    "NonZero",
    "Compress",
    "ConstantOfShape",
    "Range",
    "TopK",
    "Shape",
)
SYMBOLS = {"N": (6, 11, 1, 4), "M": (10, 3, 19, 2)}

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16)
BOOL, I32, I64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)
I8, I16, U8, U16 = map(np.dtype, (np.int8, np.int16, np.uint8, np.uint16))
U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)
FLOATS, INTS = (F16, F32, F64), (I8, I16, I32, I64, U8, U16, U32, U64)
ALL = (*FLOATS, BF16, *INTS, BOOL)


@dataclass(eq=False)
class Value:
    """A tensor by name, with its content in each world. `fixed`: it follows from initializers."""

    name: str
    worlds: list[np.ndarray]
    fixed: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.worlds[0].dtype

    @property
    def rank(self) -> int:
        return self.worlds[0].ndim

    @property
    def dims(self) -> Dims:
        return tuple(zip(*(w.shape for w in self.worlds), strict=True)) if self.rank else ()

    @property
    def shape(self) -> tuple[int, ...]:
        """In the first world."""
        return self.worlds[0].shape

    @property
    def known_shape(self) -> list[int | None]:
        """What is the same in all worlds."""
        return [sizes[0] if len(set(sizes)) == 1 else None for sizes in self.dims]

    def all(self, holds: Content) -> bool:
        """Does `holds` hold of the content in every world?"""
        return all(holds(w) for w in self.worlds)


@dataclass(eq=False)
class Step:
    """One node. `exact`: it moves, chooses or compares and does not round. `rough`: its error is
    relative to its largest operand, as with weights that are themselves rounded."""

    node: onnx.NodeProto
    inputs: list[Value | None]
    outputs: list[Value]
    exact: bool
    rough: bool = False
    reference: NodeReference | None = None

    def run(self, contents: dict[str, np.ndarray], version: int) -> list[np.ndarray]:
        """The outputs for the contents of its inputs. Raises Unsound."""
        names = {v.name for v in self.inputs if v is not None and not self.is_held(v)}
        if self.reference is None:
            given = {v.name: v for v in self.inputs if v is not None}.values()
            self.reference = NodeReference(
                self.node,
                [(v.name, v.dtype, v.known_shape) for v in given if v.name in names],
                [(v.name, v.worlds[0]) for v in given if v.name not in names],
                version,
            )
        return self.reference({name: contents[name] for name in names})

    def is_held(self, v: Value) -> bool:
        """Is an operand an initializer for the reference, which some operators ask for? Others can
        be disturbed."""
        return v.fixed and not (is_float(v.dtype) and self.node.op_type != "Resize")


@dataclass(eq=False)
class Grown:
    """A finished graph: its steps in order and the values that it returns."""

    steps: list[Step]
    outputs: list[Value]
    version: int
    symbols: tuple[str, ...] = ()
    title: str = ""

    @property
    def worlds(self) -> int:
        return len(self.outputs[0].worlds)

    @property
    def given(self) -> list[Value]:
        """What no step makes: initializers and inputs."""
        made = {v for s in self.steps for v in s.outputs}
        used = [v for s in self.steps for v in s.inputs if v is not None] + self.outputs
        return [v for v in dict.fromkeys(used) if v not in made]

    @property
    def inputs(self) -> list[Value]:
        return [v for v in self.given if not v.fixed]

    def model(self) -> onnx.ModelProto:
        """As ONNX."""
        entries = [
            helper.make_tensor_value_info(v.name, type_of(v.worlds[0]), self._declared(v))
            for v in self.inputs
        ]
        results = [
            helper.make_tensor_value_info(v.name, type_of(v.worlds[0]), None) for v in self.outputs
        ]
        initializers = [
            onnx.numpy_helper.from_array(v.worlds[0], v.name) for v in self.given if v.fixed
        ]
        nodes = [s.node for s in self.steps]
        graph = helper.make_graph(nodes, "grown", entries, results, initializers)
        return helper.make_model(graph, opset_imports=opsets(self.version), ir_version=IR_VERSION)

    def _declared(self, v: Value) -> list[int | str]:
        names = {SYMBOLS[name][: self.worlds]: name for name in self.symbols}
        return [
            names.get(sizes, sizes[0] if len(set(sizes)) == 1 else f"{v.name}_{axis}")
            for axis, sizes in enumerate(v.dims)
        ]


class Growth:
    """Draws a graph: `rng` decides, `values` may be read by the next step."""

    def __init__(self, rng: np.random.Generator, version: int, symbols: Sequence[str] = ()) -> None:
        self.rng, self.version, self.symbols = rng, version, tuple(symbols)
        self.count = int(rng.choice([2, 3, 4])) if symbols else 1 + int(rng.random() < 0.25)
        self.empties = False  # may the operator that is being drawn meet empty tensors?
        self.values: list[Value] = []
        self.steps: list[Step] = []
        self.names = 0
        weights = rng.dirichlet([4.0, 0.5, 0.5])  # mostly one floating type in a graph
        self.float_weights = dict(zip((F32, F64, F16), weights, strict=True))

    # chance ------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def among(self, choices: Iterable[Any]) -> Any:
        """One of these."""
        listed = list(choices)
        return listed[int(self.rng.integers(len(listed)))]

    def int(self, low: int, high: int) -> int:
        """From `low` to `high`, both possible."""
        return int(self.rng.integers(low, high + 1))

    def number(self, low: float, high: float) -> float:
        """A float that f32 holds exactly."""
        return float(np.float32(self.rng.uniform(low, high)))

    def size(self) -> tuple[int, ...]:
        """The sizes of an axis in the worlds."""
        if self.symbols and self.chance(0.35):
            return SYMBOLS[self.among(self.symbols)][: self.count]
        drawn = int(self.rng.choice(SIZES, p=_WEIGHTS))
        return self.same(drawn or (0 if self.empties else 1))

    def same(self, size: int) -> tuple[int, ...]:
        return (size,) * self.count

    def dims(self, rank: int) -> Dims:
        """A random shape with a bounded number of elements."""
        while True:
            drawn = tuple(
                self.size() if rank < 6 or self.chance(0.3) else self.same(self.int(1, 2))
                for _ in range(rank)
            )
            if all(np.prod([s[w] for s in drawn]) <= 1200 for w in range(self.count)):
                return drawn

    # values ------------------------------------------------------------------------------------

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def content(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], low: float, high: float
    ) -> np.ndarray:
        if dtype == BOOL:
            return self.rng.integers(0, 2, shape).astype(bool)
        if is_float(dtype):
            return self.rng.uniform(low, high, shape).astype(dtype)
        least = 0 if dtype.kind == "u" else int(np.ceil(low))
        return self.rng.integers(least, max(int(high), least) + 1, shape).astype(dtype)

    def fresh(
        self,
        dtype: np.dtype[Any],
        dims: Dims,
        low: float = -3,
        high: float = 3,
        fixed: bool | None = None,
    ) -> Value:
        """A new input or initializer of this shape with content in a range."""
        static = all(len(set(sizes)) == 1 for sizes in dims)
        if fixed is None:
            fixed = self.chance(0.4)
        if not self.declarable(dims):
            raise Unsound("a shape that no input can have")
        if fixed and static:
            array = self.content(dtype, tuple(s[0] for s in dims), low, high)
            return self.given([array] * self.count, True)
        shapes = [tuple(s[w] for s in dims) for w in range(self.count)]
        return self.given([self.content(dtype, shape, low, high) for shape in shapes], False)

    def declarable(self, dims: Dims) -> bool:
        """Is every size a constant or a symbol?"""
        known = [SYMBOLS[name][: self.count] for name in self.symbols]
        return all(len(set(sizes)) == 1 or sizes in known for sizes in dims)

    def given(self, worlds: list[np.ndarray], fixed: bool) -> Value:
        value = Value(self.name("c" if fixed else "x"), worlds, fixed)
        self.values.append(value)
        return value

    def constant(self, content: Any, dtype: Any = np.int64) -> Value:
        """An initializer that no other step reads."""
        return Value(self.name("k"), [np.asarray(content, dtype)] * self.count, True)

    def told(self, contents: Iterable[Any], dtype: Any = np.int64) -> Value:
        """An input that only the run knows, with content for each world."""
        return self.given([np.asarray(content, dtype) for content in contents], False)

    def float_type(self) -> np.dtype[Any]:
        types = list(self.float_weights)
        return types[int(self.rng.choice(len(types), p=list(self.float_weights.values())))]

    def pick(
        self,
        types: Sequence[np.dtype[Any]] = FLOATS,
        ranks: Sequence[int] = RANKS,
        where: Content | None = None,
        fits: Callable[[Value], bool] | None = None,
    ) -> Value | None:
        """A value of the graph, the later the likelier, or None."""
        found = [
            v
            for v in self.values
            if v.dtype in types
            and v.rank in ranks
            and (self.empties or not is_empty(v))
            and (fits is None or fits(v))
            and (where is None or v.all(where))
        ]
        if not found:
            return None
        position = int(len(found) * self.rng.beta(3, 1))
        return found[min(position, len(found) - 1)]

    def value(
        self,
        types: Sequence[np.dtype[Any]] = FLOATS,
        ranks: Sequence[int] = RANKS,
        where: Content | None = None,
        fits: Callable[[Value], bool] | None = None,
        low: float = -3,
        high: float = 3,
    ) -> Value:
        """A value of the graph or a new one. Raises Unsound when what is new does not fit."""
        if not self.chance(0.08):
            found = self.pick(types, ranks, where, fits)
            if found is not None:
                return found
        floats = [t for t in types if t in self.float_weights]
        dtype = self.among(types)
        if floats:
            weights = np.array([self.float_weights[t] for t in floats])
            dtype = floats[int(self.rng.choice(len(floats), p=weights / weights.sum()))]
        made = self.fresh(dtype, self.dims(self.among(ranks)), low, high)
        if (where is not None and not made.all(where)) or (fits is not None and not fits(made)):
            raise Unsound("what was drawn does not fit")
        return made

    def partner(self, x: Value, dtype: Any = None, low: float = -3, high: float = 3) -> Value:
        """A value that broadcasts with x."""
        dtype = x.dtype if dtype is None else dtype

        def fits(v: Value) -> bool:
            lead, tail = x.dims[: x.rank - v.rank], x.dims[max(0, x.rank - v.rank) :]
            del lead
            one = self.same(1)
            pairs = zip(tail[::-1], v.dims[::-1], strict=False)
            return all(a in (b, one) or b == one for a, b in pairs)

        if self.chance(0.6):
            found = self.pick((dtype,), where=lambda a: within(a, low, high), fits=fits)
            if found is not None and found is not x:
                return found
        dims = [d if self.chance(0.7) else self.same(1) for d in x.dims]
        dims = [d if self.declarable((d,)) else self.same(1) for d in dims]
        if self.chance(0.3):
            dims = dims[self.int(0, len(dims)) :]
        return self.fresh(dtype, tuple(dims), low, high)

    def forget(self, values: Sequence[Value]) -> None:
        """No later step may read these."""
        self.values = [v for v in self.values if v not in values]

    # steps -------------------------------------------------------------------------------------

    def apply(
        self,
        op: str,
        *inputs: Value | None,
        exact: bool = False,
        rough: bool = False,
        outputs: int | Sequence[int] = 1,
        domain: str = "",
        captured: Sequence[Value] = (),
        **attrs: Any,
    ) -> list[Value]:
        """Append a node and return its outputs. Raises Unsound when it is not sound everywhere.

        outputs: how many, or a 0 or 1 for each that is left out or wanted.
        captured: what the graphs in its attributes read of this one.
        """
        wanted = [1] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self.name("v") if w else "" for w in wanted]
        node = helper.make_node(
            op,
            [v.name if v is not None else "" for v in inputs],
            names,
            domain=domain,
            **{k: v for k, v in attrs.items() if v is not None},
        )
        inputs = (*inputs, *captured)
        step = Step(node, list(inputs), [], exact, rough)
        results = []
        for world in range(self.count):
            contents = {v.name: v.worlds[world] for v in inputs if v is not None}
            results.append(step.run(contents, self.version))
        kept = [name for name in names if name]
        fixed = all(v is None or v.fixed for v in inputs)
        for k, name in enumerate(kept):
            step.outputs.append(Value(name, [r[k] for r in results], fixed))
        self._check(step)
        self.steps.append(step)
        self.values += [v for v in inputs if v is not None and v not in self.values]
        self.values += step.outputs
        return step.outputs

    def _check(self, step: Step) -> None:
        for v in step.outputs:
            if max(w.size for w in v.worlds) > MOST_ELEMENTS:
                raise Unsound("large")
            emptied = is_empty(v) and not any(is_empty(i) for i in step.inputs if i is not None)
            if emptied and step.node.op_type not in EMPTYING:
                raise Unsound("nothing is left")
            if v.rank > 7 or len({w.ndim for w in v.worlds}) > 1:
                raise Unsound("its rank")
            if v.dtype.kind in "OUScV" and v.dtype != BF16:
                raise Unsound("its type")
            if v.dtype.kind != "b" and not v.all(lambda a: within(a, -limit(a), limit(a))):
                raise Unsound("its content")

    def finish(self, title: str = "") -> Grown:
        """The graph of all steps; outputs are what nothing reads and a few others."""
        read = {v for s in self.steps for v in s.inputs}
        made = [v for s in self.steps for v in s.outputs]
        outputs = [v for v in made if v not in read or self.chance(0.06)]
        return Grown(self.steps, outputs, self.version, self.symbols, title)


def limit(array: np.ndarray) -> float:
    """Contents beyond it are not carried on: what follows would be inf or wrap."""
    return {"float16": 300.0, "int8": 128.0, "uint8": 255.0, "int16": 32767.0}.get(
        array.dtype.name, 3e4
    )


def is_empty(v: Value) -> bool:
    """Has it no elements in some world?"""
    return any(w.size == 0 for w in v.worlds)


def within(array: np.ndarray, low: float, high: float) -> bool:
    """Is all of it finite and in the range?"""
    if not array.size or array.dtype == BOOL:
        return True
    wide = array.astype(np.float64)
    return bool(np.isfinite(wide).all() and wide.min() >= low and wide.max() <= high)
