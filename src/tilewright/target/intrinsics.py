"""Tensor intrinsics: an instruction on tiles, declared once.

In: a behaviour (a tensor expression), and for each operand the memory that it must lie in. Out: an
`Intrinsic`, and `match`, which finds the operands of a block that does just that. The one idea: a
tensorized block keeps its body, which is its meaning for the interpreter and for targets without
the instruction; an annotation says by which instruction a code generator may replace it.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    as_int,
)
from tilewright.ir.stmt import Block, For, Func, Stmt, Store
from tilewright.ir.text import print_expr, print_stmt
from tilewright.ir.walk import free_vars, substitute
from tilewright.support.errors import CompileError
from tilewright.support.record import record

ANNOTATION = "tensorize"  # of a block: the name of the intrinsic that does it
COMMUTATIVE = frozenset({BinaryOp.add, BinaryOp.mul, BinaryOp.min, BinaryOp.max})


@record
class Intrinsic:
    """An instruction on tiles.

    behaviour: a function in stage "blocks", one nest around one block, whose parameters are the
    operands; scopes: the memory of each operand ("": any); rule: the lowering rule in the code
    generators' tables; features: what the machine must have.
    """

    name: str
    behaviour: Func
    scopes: tuple[str, ...]
    rule: str
    features: tuple[str, ...] = ()


@record
class Tile:
    """An operand's part of a buffer: where it starts, and which dimensions it runs along."""

    buffer: Buffer
    starts: tuple[Expr, ...]  # in terms of the block's axes
    dims: tuple[int, ...]  # for each dimension of the operand, the buffer's


class Mismatch(Exception):
    """A block does not do what an intrinsic does."""


def accumulating(func: Func) -> Func:
    """A behaviour that adds to what its result holds: the reduction has no init."""
    nest, block = nest_of(func.body)
    body: Stmt = block.replace(init=None)
    for loop in reversed(nest):
        body = loop.replace(body=body)
    return func.replace(body=body)


_DECLARED: dict[str, Callable[[], Intrinsic]] = {}


def declare(name: str, make: Callable[[], Intrinsic]) -> None:
    """Make an intrinsic known by name; it is built when it is first asked for."""
    _DECLARED[name] = functools.cache(make)


def intrinsic(name: str) -> Intrinsic:
    """The intrinsic called `name`. Raises CompileError with the known ones."""
    make = _DECLARED.get(name)
    if make is None:
        known = ", ".join(sorted(_DECLARED)) or "none"
        raise CompileError(
            f"cannot use intrinsic '{name}'", "it is not known", remedy=f"known: {known}"
        )
    return make()


def nest_of(stmt: Stmt) -> tuple[list[For], Block]:
    """The loops and the block of a perfect nest. Raises Mismatch for anything else."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, Block):
        raise Mismatch("it holds more than one block in one nest of loops")
    return loops, stmt


def match(block: Block, wanted: Intrinsic) -> dict[Buffer, Tile]:
    """The tiles that `block` (loops around an inner block) has for the operands of an intrinsic.

    The two must be the same up to names, loops of one iteration and the order of commutative
    operands. Raises Mismatch with the first difference.
    """
    loops, inner = nest_of(block.body)
    model, model_block = nest_of(wanted.behaviour.body)
    one: dict[Var, Expr] = {f.var: f.start for f in loops if as_int(f.extent) == 1}
    loops = [f for f in loops if f.var not in one]
    sizes, model_sizes = ([as_int(f.extent) for f in nest] for nest in (loops, model))
    if sizes != model_sizes:
        raise Mismatch(f"its loops have extents {sizes}, those of '{wanted.name}' {model_sizes}")
    if inner.where is not None:
        raise Mismatch("some of its instances are guarded")
    renamed: dict[Var, Expr] = one | {f.var: m.var for f, m in zip(loops, model, strict=True)}
    values = {a.var: substitute(a.value, renamed) for a in inner.axes}
    model_values = {a.var: a.value for a in model_block.axes}
    ranges: dict[Var, Any] = {a.var: (0, a.extent - 1) for a in block.axes}
    ranges |= {m.var: (0, m.extent - 1) for m in model}
    finder = _Finder(wanted, Facts(ranges), {m.var for m in model})
    pairs = [(inner.body, model_block.body)]
    if (inner.init is None) != (model_block.init is None):
        more, less = ("it", "the intrinsic") if inner.init is not None else ("the intrinsic", "it")
        raise Mismatch(f"{more} begins its result, {less} adds to what is there")
    if inner.init is not None and model_block.init is not None:
        pairs.append((inner.init, model_block.init))
    for own, like in pairs:
        finder.same(substitute(own, values), substitute(like, model_values))
    return finder.tiles


def difference(block: Block, wanted: Intrinsic) -> str:
    """What a block does against what an intrinsic does, line by line."""
    here = print_stmt(block.body).splitlines()
    there = print_stmt(wanted.behaviour.body).splitlines()
    return "\n".join(difflib.unified_diff(there, here, wanted.name, block.name, lineterm="", n=1))


class _Finder:
    """One comparison: the tiles found so far."""

    def __init__(self, wanted: Intrinsic, known: Facts, moving: set[Var]) -> None:
        self.wanted, self.known, self.moving = wanted, known, moving
        self.tiles: dict[Buffer, Tile] = {}

    def same(self, own: Any, like: Any) -> None:
        """Compare two statements or expressions. Raises Mismatch."""
        if isinstance(like, Load | Store) and own.__class__ is like.__class__:
            self.bind(own.buffer, own.indices, like.buffer, like.indices)
            if isinstance(like, Store):
                self.same(own.value, like.value)
        elif _head(own) != _head(like):
            raise Mismatch(f"it has {_shown(own)} where '{self.wanted.name}' has {_shown(like)}")
        elif isinstance(like, Binary):
            self.operands(own, like)
        else:
            self.all(own.children(), like.children())

    def all(self, own: Sequence[Any], like: Sequence[Any]) -> None:
        if len(own) != len(like):
            raise Mismatch(f"it has {len(own)} parts where '{self.wanted.name}' has {len(like)}")
        for a, b in zip(own, like, strict=True):
            self.same(a, b)

    def operands(self, own: Binary, like: Binary) -> None:
        before = dict(self.tiles)
        try:
            self.all((own.a, own.b), (like.a, like.b))
        except Mismatch:
            if own.op not in COMMUTATIVE:
                raise
            straight, self.tiles = self.tiles, before
            try:
                self.all((own.b, own.a), (like.a, like.b))
            except Mismatch:
                self.tiles = straight
                self.all((own.a, own.b), (like.a, like.b))  # tell of the straight order
                raise

    def bind(
        self, own: Buffer, indices: Sequence[Expr], like: Buffer, model: Sequence[Expr]
    ) -> None:
        """Let an operand be a tile of a buffer, or check that it is the one it was before."""
        name = self.wanted.name
        if own.dtype is not like.dtype:
            raise Mismatch(f"'{own.name}' is {own.dtype}, operand '{like.name}' {like.dtype}")
        scope = self.wanted.scopes[self.wanted.behaviour.buffers.index(like)]
        if scope and own.scope != scope:
            raise Mismatch(f"'{own.name}' is in {own.scope}, '{name}' takes it in {scope}")
        starts: list[Expr] = []
        dims: list[int] = []
        walked: list[Affine] = []
        for d, index in enumerate(indices):
            form = self.known.affine(index)
            terms = {t: c for t, c in form.terms.items() if free_vars(t) & self.moving}
            step = Affine(terms, 0)
            starts.append(self.known.expr(form - step))
            if terms:
                dims.append(d)
                walked.append(step)
        along = [self.known.affine(m) for m in model]
        same = len(along) == len(walked) and all(
            a.terms == b.terms and a.const == b.const for a, b in zip(along, walked, strict=True)
        )
        if not same:
            raise Mismatch(
                f"it walks through '{own.name}' other than '{name}' through '{like.name}'"
            )
        tile = Tile(own, tuple(starts), tuple(dims))
        if self.tiles.setdefault(like, tile) != tile:
            raise Mismatch(f"operand '{like.name}' would be several tiles")


def _head(n: Any) -> tuple[Any, ...]:
    """What a node is, apart from its children."""
    if isinstance(n, Binary | Unary):
        return type(n), n.op
    if isinstance(n, Const | Var):
        return type(n), n
    return type(n), n.dtype if isinstance(n, Cast) else n.name if isinstance(n, Call) else ""


def _shown(n: Any) -> str:
    if isinstance(n, Stmt):
        return f"a statement '{print_stmt(n).splitlines()[0]}'"
    return f"'{print_expr(n)}'"


def _word(name: str) -> str:
    """An intrinsic's name as the name of its behaviour."""
    return name.replace(".", "_")


def matrix_product(
    name: str, rows: int, columns: int, depth: int, scopes: tuple[str, str, str], rule: str
) -> Intrinsic:
    """C[rows, columns] i32 += A[rows, depth] i8 × B[depth, columns] i8."""
    A = te.placeholder((rows, depth), "i8", "A")
    B = te.placeholder((depth, columns), "i8", "B")
    k = te.reduce_axis(depth, "k")
    C = te.compute(
        (rows, columns),
        lambda i, j: te.sum(te.cast(A[i, k], "i32") * te.cast(B[k, j], "i32"), k),
        name="C",
    )
    return Intrinsic(name, accumulating(te.func(_word(name), [A, B], [C])), scopes, rule)


def copy(
    name: str, shape: tuple[int, ...], of: str, scopes: tuple[str, str], rule: str
) -> Intrinsic:
    """D[…] = S[…], from one memory to another."""
    S = te.placeholder(shape, of, "S")
    D = te.compute(shape, lambda *i: S[i], name="D")
    return Intrinsic(name, te.func(_word(name), [S], [D]), scopes, rule)


def fill(name: str, shape: tuple[int, ...], of: str, scope: str, rule: str) -> Intrinsic:
    """D[…] = 0."""
    D = te.compute(shape, lambda *i: te.cast(0, of), name="D")
    return Intrinsic(name, te.func(_word(name), [], [D]), (scope,), rule)
