"""A builder that computes at once what is already known.

In: applications of operators. Out: constants where all inputs are constants (small enough), and
*known sizes* where they are size expressions: the Shape → Gather → Concat chains of exported models
become attributes. The frontends build with it, so that run-time shape arithmetic rarely reaches the
graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.branches import Branches, Unifier
from tilewright.graph.budget import Budget, taken
from tilewright.graph.builder import Builder, complete
from tilewright.graph.graph import Constant, Node, Value, binds, tensor_type
from tilewright.graph.operator import HOST, MOVES, OPERATORS, Mismatch, Unequal, having
from tilewright.graph.unify import Names, renamed, unify
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr, Var, as_int, minimum
from tilewright.ir.walk import substitute
from tilewright.support.errors import CompileError

SMALL = 1 << 20  # bytes that a folded constant may always take
MOST_SIZES = 64  # elements of a tensor whose sizes are followed
MOST_NAMED = 64  # elements of a tensor whose sources are followed
MOST_STEPS = 32  # operators that sources are followed through


def _divided(a: Any, b: Any) -> Any:
    """a / b, rounded towards zero; sizes are not negative, only numbers may be."""
    if (as_int(a) or 0) < 0:
        return 0 - _divided(-a, b)
    return 0 - a // -b if (as_int(b) or 0) < 0 else a // b


def _is_never_more(a: Any, b: Any) -> bool:
    return sizes.is_never_more(sizes.size(a), sizes.size(b))


def _is_equal(a: Any, b: Any) -> bool | None:
    """Whether two sizes are one at every size of the inputs, or at none; None: that depends."""
    if _is_never_more(a, b) and _is_never_more(b, a):
        return True
    return False if _is_never_more(a + 1, b) or _is_never_more(b + 1, a) else None


def _is_less(a: Any, b: Any) -> bool | None:
    if _is_never_more(a + 1, b):
        return True
    return False if _is_never_more(b, a) else None


def _maximum(a: Any, b: Any) -> Any:
    """The greater of two sizes; None if that depends on the inputs' sizes."""
    return b if _is_never_more(a, b) else a if _is_never_more(b, a) else None


def _minimum(a: Any, b: Any) -> Any:
    return a if _is_never_more(a, b) else b if _is_never_more(b, a) else None


_COMPARED = {  # what is asked of size expressions; NumPy does it on arrays of objects
    "equal": np.frompyfunc(_is_equal, 2, 1),
    "less": np.frompyfunc(_is_less, 2, 1),
    "greater": np.frompyfunc(lambda a, b: _is_less(b, a), 2, 1),
}

_SYMBOLIC = {  # what is computed on size expressions; NumPy does it on arrays of objects
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.frompyfunc(_divided, 2, 1),
    "floormod": np.mod,
    "maximum": np.frompyfunc(_maximum, 2, 1),
    "minimum": np.frompyfunc(_minimum, 2, 1),
    "reshape": None,
    "transpose": None,
    "concat": None,
    "slice": None,
    "gather": None,
    "expand": None,
    "reduce_prod": lambda x, axes, keepdims: np.prod(x, axis=axes, keepdims=keepdims),
    "reduce_sum": lambda x, axes, keepdims: np.sum(x, axis=axes, keepdims=keepdims),
    "cast": lambda x, to: x,
    "where": lambda c, x, y: np.where(c.astype(bool), x, y),
} | _COMPARED

# What keeps whole numbers that are held as floats for a while: TensorFlow's shapes do that.
_CARRIES = having(MOVES)
_OF_HOST = having(HOST)
MOST_EXACT = {"f64": 1 << 53, "f32": 1 << 24}  # up to here every whole number is a float

_MOVES = {name: OPERATORS[name].reference for name in _CARRIES - {"check_bounds"}} | {
    "cast": lambda x, to: x
}


class Folding(Builder):
    """A Builder whose `emit` folds. `names` (None: not at all) unifies symbols.

    is_whole: it makes a model, whose inputs a caller gives, not the body of a loop.
    """

    def __init__(
        self, name: str = "model", names: Names | None = None, *, is_whole: bool = True
    ) -> None:
        super().__init__(name)
        self.is_whole = is_whole
        self.names = names
        self.hints: dict[str, int] = {}  # what symbols were when the model was written
        self.unifier: Unifier = {}  # symbols found to be one → the one that stays, or a number
        self.known: dict[Value, np.ndarray] = {}  # arrays of objects: ints and size expressions
        self.carried: dict[Value, np.ndarray] = {}  # as `known`, of floats
        self.named: dict[tuple[Value, int], Expr] = {}  # elements that a `measure` has named
        self.budget = Budget()
        self.found: set[Var] = set()  # symbols that a `measure` binds
        self.broadcasts: dict[Expr, set[Expr]] = {}  # sizes → the symbols that broadcast to each
        self.viewed: dict[Value, Value] = {}  # values under what stands for their sizes now
        self.same: dict[Expr, Expr] = {}  # sizes → what a check of the run bound them to since
        self.compared: dict[tuple[Expr, Expr], str] = {}  # sizes that a run needs the same → where
        self.about = ""  # the node of the model that is being translated, for messages
        self.under: Value | None = None  # a bool: where it is false, what is built does not count
        self.branches = Branches(self.made_by.get)

    def append(self, node: Node) -> None:
        """As Builder.append."""
        super().append(node)
        self.found.update(map(Var, binds(node)))

    def from_inputs(self, given: Iterable[Any]) -> bool:
        """Do sizes follow from those of the inputs, in every run, and not from data?"""
        return self.under is None and self.found.isdisjoint(sizes.symbols(given))

    def require_equal(self, a: Expr, b: Expr, what: str, more: str = "") -> None:
        """No run is to start where two sizes that follow from the inputs' differ. more: what else
        to say then."""
        a, b = sorted((a, b), key=sizes.text)
        self.compared.setdefault((a, b), self.about)
        size = sizes.size(minimum(sizes.size(a - b), sizes.size(b - a)))
        told = f"{what}, where {sizes.text(a)} has to be {sizes.text(b)}"
        self.required.setdefault(size, f"{told} ({more})" if more else told)

    def emit(self, op: str, *inputs: Value, name: str | Sequence[str] = "", **attrs: Any) -> Any:
        """As Builder.emit; a constant comes back where the result is known."""
        label = name if isinstance(name, str) else (name[0] if name else "")
        constants = self.constants
        if all(v in constants for v in inputs):
            folded = self._fold(op, inputs, attrs, label)
            if folded is not None:
                return folded
        elif op in _SYMBOLIC and all(
            v in constants
            or v in self.known
            or v in self.carried
            or (self.named and self.sizes_in(v) is not None)
            for v in inputs
        ):
            folded = self._follow(op, inputs, attrs, label)
            if folded is not None:
                return folded
        try:
            return super().emit(op, *inputs, name=name, **attrs)
        except CompileError as fault:
            if op != "reshape" or not isinstance(fault.__context__, Unequal):
                raise
            viewed = self._viewed(inputs[0], sizes.shape(attrs["shape"]), label)
            if viewed is None:
                raise
            return viewed

    def _viewed(self, x: Value, shape: sizes.Shape, name: str) -> Value | None:
        """x under a shape of which the run finds that it holds as many elements, or ends; None if
        it never does, or each round of a loop may find something else."""
        have, want = x.elements, sizes.product(shape)
        if as_int(sizes.size(have - want)) is not None:
            return None
        told = f"the shape of {self.about or name or x.name}"
        if self.from_inputs((have, want)):
            self.require_equal(have, want, told)
        elif self.is_whole:
            only = [] if self.under is None else [self.under]
            x = self.emit("check_bounds", x, self.size_vector(want), *only,
                          least=(have,), most=(have,), what=told)  # fmt: skip
        else:
            return None
        return self.emit("view_as", x, shape=shape, name=name)

    def unify(self, a: Expr, b: Expr, bound: Expr) -> None:
        """From here on `bound` stands for two sizes that a check of the run found to be the same:
        what has it needs that check."""
        if self.under is None and self.is_whole:
            self.same.update({s: bound for s in (a, b) if as_int(s) is None and s != bound})

    def unified(self, size: Expr) -> Expr:
        """What stands for a size now."""
        while self.same and as_int(size) is None:
            now = self.same.get(size)
            if now is None:
                named = {s: self.same[s] for s in sizes.symbols([size]) if s in self.same}
                now = sizes.size(substitute(size, named))
            if now == size:
                break
            size = now
        return size

    def unified_value(self, v: Value) -> Value:
        """v under the sizes that stand for its own now."""
        shape = tuple([self.unified(s) for s in v.shape]) if self.same else v.shape
        if shape == v.shape or v in self.constants:
            return v
        if v not in self.viewed or self.viewed[v].shape != shape:
            self.viewed[v] = self.emit("view_as", v, shape=shape)
        return self.viewed[v]

    def symbol(self, name: str) -> Any:
        """As Builder.symbol; what stands for it."""
        made = super().symbol(name)
        stands = (self.names or {}).get(made.name, made.name)
        return Var(stands) if isinstance(stands, str) else sizes.size(stands)

    def infer(self, op: str, inputs: Sequence[Value], attrs: dict[str, Any]) -> list[Any]:
        """As Builder.infer; sizes of the inputs that an operator needs equal are taken for one."""
        if self.names is None or self.under is not None:
            return super().infer(op, inputs, attrs)
        while True:
            try:
                return OPERATORS[op].types(inputs, attrs)
            except Unequal as fault:
                symbols = sizes.symbols([s for v in self.inputs for s in v.shape])
                unifier = unify(*fault.sizes, symbols, self.hints)
                if not unifier or not self.bind(unifier):
                    return super().infer(op, inputs, attrs)
            except Mismatch:
                return super().infer(op, inputs, attrs)
            inputs = [Value(v.name, v.dtype, renamed(v.shape, self.unifier)) for v in inputs]
            attrs = {k: renamed(v, self.unifier) for k, v in attrs.items()}

    def bind(self, unifier: Unifier) -> bool:
        """Let symbols be what they were found to have to be; False if they are something else."""
        if not self.unifier.keys().isdisjoint(unifier):
            return False
        self.unifier = {
            a: unifier.get(b, b) if isinstance(b, Var) else b for a, b in self.unifier.items()
        } | unifier
        return True

    def unify_under(self, a: Expr, b: Expr) -> None:
        """An operator needs two sizes to be one, where its branch is taken."""
        if self.names is not None and self.branches.inside:
            symbols = sizes.symbols([s for v in self.inputs for s in v.shape])
            self.branches.unify(unify(a, b, symbols, self.hints))

    @contextmanager
    def taken(self, condition: Value, holds: bool = True) -> Iterator[Unifier]:
        """What is built in here counts only where the condition (a bool) is as said. Gives the
        sizes of inputs that it turns out to need to be one."""
        before = self.under
        own = condition if holds else self.emit("logical_not", condition)
        self.under = own if before is None else self.emit("logical_and", before, own)
        try:
            with self.branches.enter(condition, holds) as unifier:
                yield unifier
        finally:
            self.under = before

    def need(self, unifier: Unifier) -> None:
        """Sizes are needed to be so wherever what is being built counts."""
        if self.branches.inside:
            self.branches.unify(unifier)
        elif unifier and self.names is not None:
            self.bind(unifier)

    def _fold(self, op: str, inputs: Sequence[Value], attrs: dict[str, Any], name: str) -> Any:
        full = complete(op, attrs)
        types = self.infer(op, inputs, full)
        outputs = [Value("", *tensor_type(t, s)) for t, s in types]
        folded = fold(op, [self.constants[v] for v in inputs], full, outputs, self.budget)
        if folded is None:
            return None
        return super().constant(folded, name or op, outputs[0].dtype)

    def constant(self, content: Any, name: str = "c", of: DType | str | None = None) -> Value:
        """As Builder.constant; what a model brings is what folding is judged by."""
        value = super().constant(content, name, of)
        self.budget.bring(self.constants[value])
        return value

    def _follow(self, op: str, inputs: Sequence[Value], attrs: dict[str, Any], name: str) -> Any:
        full = complete(op, attrs)
        ((of, shape),) = self.infer(op, inputs, full)
        known = sizes.static(shape)
        if known is None or math.prod(known) > MOST_SIZES:
            return None
        has_floats = of.is_float or any(v.dtype.is_float for v in inputs)
        if not (of.is_int or op in _COMPARED or of.name in MOST_EXACT):
            return None
        if has_floats and op not in _CARRIES:
            return None
        if any(_symbolic(v) for v in full.values()):
            return None
        compute = _SYMBOLIC[op] or OPERATORS[op].reference
        held: list[Any] = [self._held(v) for v in inputs]
        if any(v is None for v in held):
            return None
        result = compute(*held, **full)
        if op in _COMPARED:
            known_now = all(v is not None for v in np.asarray(result, object).flat)
            return self.constant(np.asarray(result, bool), name or op, of) if known_now else None
        result = np.asarray(result, object)
        if any(v is None for v in result.flat):
            return None
        if of.is_float:
            return self._carry(op, inputs, attrs, name, result)
        return self.from_sizes(result, of, name or op)

    def _held(self, value: Value) -> np.ndarray | None:
        """As `sizes_in`, truth values and whole floats too."""
        constant = self.constants.get(value)
        if value in self.carried or constant is None or constant.array.dtype.kind not in "bf":
            return self.carried.get(value, self.sizes_in(value))
        array = constant.array
        if array.dtype.kind == "f" and not (array == np.trunc(array)).all():
            return None
        return array if array.dtype.kind == "b" else array.astype(np.int64).astype(object)

    def _carry(
        self, op: str, inputs: Sequence[Value], attrs: dict[str, Any], name: str, held: np.ndarray
    ) -> Value | None:
        """A tensor of floats that holds sizes: a run whose sizes are no floats does not start."""
        symbolic = [e for e in held.flat if isinstance(e, Expr) and as_int(e) is None]
        if not self.from_inputs(symbolic):
            return None
        made = Builder.emit(self, op, *inputs, name=name, **attrs)
        for e in symbolic:
            most = MOST_EXACT[made.dtype.name]
            told = f"sizes held as {made.dtype}, where {sizes.text(e)} has to be at most {most}"
            self.required.setdefault(sizes.size(most - e), told)
        self.carried[made] = held
        return made

    def sizes_in(self, value: Value) -> np.ndarray | None:
        """The elements of a small integer tensor as ints and size expressions, if they are
        known."""
        if value in self.known:
            return self._unified(self.known[value])
        constant = self.constants.get(value)
        if constant is None:
            return self._named(value) if self.named else None
        if constant.array.size > MOST_SIZES or constant.array.dtype.kind not in "iu":
            return None
        return constant.array.astype(object)

    def _unified(self, held: np.ndarray) -> np.ndarray:
        if not self.same:
            return held
        made = np.empty(held.size, object)
        made[:] = [self.unified(s) if isinstance(s, Expr) else s for s in held.flat]
        return made.reshape(held.shape)

    def _named(self, value: Value) -> np.ndarray | None:
        """The elements of `value` by the names that `measure` gave them, if all have one."""
        sources = self.sources(value) if value.dtype.is_int else None
        if sources is None or sources.size > MOST_NAMED:
            return None
        made = np.empty(sources.size, object)
        for k, source in enumerate(sources.ravel()):
            made[k] = self.named.get(source) if isinstance(source, tuple) else source
            if made[k] is None:
                return None
        return made.reshape(sources.shape)

    def sources(self, value: Value, depth: int = 0) -> np.ndarray | None:
        """Where each element of a small tensor of numbers comes from: (value, index) behind the
        operators that only move elements, a size that is known, or a number."""
        shape = value.static_shape
        if shape is None or math.prod(shape) > MOST_NAMED:
            return None
        constant = self.constants.get(value)
        if constant is not None:
            return constant.array.astype(object)
        if value in self.known:
            return self.known[value]
        node = self.made_by.get(value)
        if node is not None and node.op in _MOVES and depth < MOST_STEPS:
            inputs = [self.sources(v, depth + 1) for v in node.inputs]
            attrs = dict(node.attrs)
            is_known = not any(map(_symbolic, attrs.values()))
            if node.op == "gather" and inputs[1] is not None:  # by numbers alone
                is_known = is_known and all(isinstance(k, int) for k in inputs[1].flat)
            if all(v is not None for v in inputs) and is_known:
                moved = _MOVES[node.op](*inputs, **attrs)
                if not shape:  # NumPy gives the element itself, and takes a tuple for an array
                    made = np.empty(1, object)
                    made[0] = moved[()] if isinstance(moved, np.ndarray) else moved
                    return made.reshape(())
                return np.asarray(moved, object)
        made = np.empty(math.prod(shape), object)
        for k in range(len(made)):
            made[k] = (value, k)
        return made.reshape(shape)

    def name_elements(self, value: Value, names: Sequence[Expr]) -> tuple[Expr, ...]:
        """Note that a `measure` calls the elements of `value` by `names`; elements that had a name
        before keep it: the names that hold from here on."""
        sources = self.sources(value)
        if sources is None:
            return tuple(names)
        found = []
        for source, name in zip(sources.ravel(), names, strict=True):
            number = not isinstance(source, tuple)
            found.append(sizes.size(source) if number else self.named.setdefault(source, name))
        return tuple(found)

    def size_vector(self, size: Expr) -> Value:
        """A size as an i64 vector of one element."""
        made = np.empty(1, object)
        made[0] = size
        return self.from_sizes(made, dtype("i64"))

    def from_sizes(self, values: np.ndarray, of: DType, name: str = "sizes") -> Value:
        """A tensor of size expressions; a constant if all are numbers."""
        values = np.asarray(values, object)
        flat = [sizes.size(v) for v in values.ravel()]
        numbers = [as_int(v) for v in flat]
        if None not in numbers:
            return self.constant(np.array(numbers, of.numpy).reshape(values.shape), name, of)
        made = Builder.emit(
            self, "size_values", values=tuple(flat), shape=values.shape, of=of.name, name=name
        )
        held_values = np.empty(len(flat), object)
        held_values[:] = [v if n is None else n for v, n in zip(flat, numbers, strict=True)]
        self.known[made] = held_values.reshape(values.shape)
        return made


def fold(
    op: str,
    constants: Sequence[Constant],
    attrs: dict[str, Any],
    outputs: Sequence[Value],
    budget: Budget,
    is_wanted: bool = False,
) -> Constant | None:
    """What `op` makes of constants; None if that is not known yet, not one tensor, or too large to
    keep. is_wanted: only the budget says what is too large."""
    if op in _OF_HOST:
        return None
    if len(outputs) != 1 or outputs[0].static_shape is None or any(map(_symbolic, attrs.values())):
        return None
    of = outputs[0].dtype
    nbytes = math.prod(outputs[0].static_shape) * of.numpy.itemsize
    if not is_wanted and nbytes > max(SMALL, sum(map(taken, constants))):
        return None
    arrays = [c.array for c in constants]
    if not budget.allows(op, arrays, attrs, outputs[0]):
        return None
    made = np.asarray(OPERATORS[op].reference(*arrays, **attrs))
    return budget.take(made if made.dtype == of.numpy else made.astype(of.numpy), constants)


def _symbolic(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_symbolic(v) for v in value)
    return isinstance(value, Expr)
