"""From a function in stage "vector" to LLVM text, one symbol for each launch entry.

In: a Func and a Target. Out: `Emitted`: text, the entries (what to launch, with which buffers, how
often), and the workspace buffers that the host plans. The one idea: a `vectorize` loop is not
unrolled into lanes but evaluated once with every expression as a vector; conditions on the lane
become masks.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm_builder import Builder
from tilewright.codegen.llvm_functions import definitions
from tilewright.codegen.llvm_math import Need
from tilewright.codegen.llvm_statements import Statements
from tilewright.ir.expr import Buffer, Expr, Var, as_int, const
from tilewright.ir.stmt import Alloc, For, Func, Seq, Stmt, annotation, seq
from tilewright.ir.walk import accesses, free_vars
from tilewright.lower.overlap_tails import IN_PLACE
from tilewright.support.record import record
from tilewright.target.target import Target

ATTRIBUTES = (
    'nounwind mustprogress "no-builtins" "no-trapping-math"="true" "frame-pointer"="none" '
    '"prefer-vector-width"="512" "stack-probe-size"="1048576"'
)
FUNCTIONS = ATTRIBUTES + " memory(none)"
MOST_INLINE = 4  # calls of one function that are inlined, however long it is
MOST_LINES = 800  # of code that more calls of one make: a call costs all registers around it


@record
class Entry:
    """One launch: `symbol(*buffers, *symbols, scratch, begin, end)` for parts [begin, end) of
    [0, extent).

    The addresses of `buffers` come first, then the values of `symbols` as int64. The host program
    reads them from a frame.
    """

    symbol: str
    extent: Expr
    buffers: tuple[str, ...]
    symbols: tuple[str, ...]
    scratch_bytes: int


@record
class Module:
    """LLVM text in parts, so that several can become one. head: the triple and declarations;
    functions: mathematical ones that the kernels call; attributes: of either."""

    head: tuple[str, ...]
    kernels: tuple[str, ...]
    functions: tuple[str, ...]
    attributes: str

    @property
    def text(self) -> str:
        """The whole."""
        return "\n".join([*self.head, *self.kernels, *self.functions, self.attributes])


@record
class Emitted:
    """LLVM text and what it takes to run it."""

    module: Module
    entries: tuple[Entry, ...]
    workspace: tuple[Buffer, ...]  # global buffers that live between entries, in no order

    @property
    def text(self) -> str:
        """The module's text."""
        return self.module.text


def emit(func: Func, target: Target) -> Emitted:
    """LLVM text of a function in stage "vector"."""
    workspace: list[Buffer] = []
    bodies = launch_bodies(func.body, workspace)
    many = len(bodies) > 1
    texts: list[str] = []
    declarations: set[str] = set()
    needs: set[Need] = set()
    entries: list[Entry] = []
    for number, body in enumerate(bodies):
        symbol = f"{func.name}.{number}" if many else func.name
        text, entry, builder = _entry(func, symbol, body, workspace, target)
        texts.append(text)
        entries.append(entry)
        declarations |= builder.declarations
        needs |= builder.needs
    functions, more = definitions(needs, target)
    head = [f'target triple = "{target.triple}"', *sorted(declarations | more)]
    made = module(head, texts, functions, ATTRIBUTES, FUNCTIONS)
    return Emitted(made, tuple(entries), tuple(workspace))


def module(
    head: list[str], kernels: list[str], functions: list[str], kernel: str, function: str
) -> Module:
    """Kernels and the mathematical functions they call. kernel, function: attributes of those.

    A function (written with attributes #1) is inlined where few call it, or where it is short.
    """
    whole = "\n".join([*kernels, *functions]) if functions else ""
    chosen: list[str] = []
    for text in functions:
        symbol = text[text.index("@") : text.index("(", text.index("@")) + 1]
        calls = whole.count(symbol) - 1
        inline = calls <= MOST_INLINE or calls * text.count("\n") <= MOST_LINES
        chosen.append(text if inline else text.replace(" #1 {", " #2 {", 1))
    attributes = [
        f"attributes #0 = {{ {kernel} }}",
        f"attributes #1 = {{ {function} alwaysinline }}",
        f"attributes #2 = {{ {function} noinline }}",
        "",
    ]
    return Module(tuple(head), tuple(kernels), tuple(chosen), "\n".join(attributes))


def joined(modules: Sequence[Module]) -> Module:
    """One module of several for one target, whose object can be taken apart: each function has a
    section of its own. Kernels have names of their own; functions that are called the same are the
    same."""
    head = dict.fromkeys(line for m in modules for line in m.head)
    kernels = tuple(_apart(k) for m in modules for k in m.kernels)
    functions = tuple(map(_apart, dict.fromkeys(f for m in modules for f in m.functions)))
    return Module(tuple(head), kernels, functions, modules[0].attributes)


def _apart(text: str) -> str:
    """A function's text, with a section of its own."""
    start = text.index('@"') + 2
    symbol, head = text[start : text.index('"', start)], text.index(" {\n")
    return f'{text[:head]} section ".text.{symbol}"{text[head:]}'


def launch_bodies(stmt: Stmt, workspace: list[Buffer]) -> list[Stmt]:
    """The top-level statements, cut into what each launch runs."""
    flat: list[Stmt] = []
    _flatten(stmt, flat, workspace)
    bodies: list[Stmt] = []
    run: list[Stmt] = []
    for s in flat:
        if isinstance(s, For) and s.kind in ("parallel", "thread"):
            if run:
                bodies.append(seq(*run))
                run = []
            bodies.append(s)
        else:
            run.append(s)
    return [*bodies, seq(*run)] if run else bodies


def _flatten(stmt: Stmt, into: list[Stmt], workspace: list[Buffer]) -> None:
    if isinstance(stmt, Alloc) and _is_workspace(stmt):
        workspace.append(stmt.buffer)
        _flatten(stmt.body, into, workspace)
    elif isinstance(stmt, Seq):
        for s in stmt.stmts:
            _flatten(s, into, workspace)
    else:
        into.append(stmt)


def _is_workspace(stmt: Stmt) -> bool:
    """Is a top-level buffer, or one below it, too large to be planned now, or must it outlive a
    launch?"""
    if isinstance(stmt, Seq):
        return any(map(_is_workspace, stmt.stmts))
    if isinstance(stmt, Alloc):
        plain = stmt.buffer.scope != "global" and as_int(stmt.buffer.shape[0]) is not None
        return not plain or _is_workspace(stmt.body)
    return isinstance(stmt, For) and stmt.kind in ("parallel", "thread")


def _entry(
    func: Func, symbol: str, body: Stmt, workspace: list[Buffer], target: Target
) -> tuple[str, Entry, Builder]:
    """The text of one launch."""
    known = {b.name: b for b in (*func.buffers, *workspace)}
    used = {n.buffer.name for n in accesses(body)}
    buffers = [name for name in known if name in used]
    parallel = body if isinstance(body, For) and body.kind == "parallel" else None
    sizes = [p for p in func.params if isinstance(p, Var)]
    free = free_vars(body) if sizes else set[Var]()
    symbols = [p.name for p in sizes if p in free]

    s = Statements(target)
    s.b.keeps_entries = bool(sizes)  # constants differ from side to side
    for n, name in enumerate(buffers):
        s.memory.pointers[name] = f"%p{n}"
    for n, name in enumerate(symbols):
        s.bind_scalar(name, f"%s{n}")
    if parallel is None:
        s.run(body)
    else:
        s.parallel(parallel)
    apart = "" if annotation(func, IN_PLACE, False) else "noalias "
    arguments = [
        *(f"ptr {apart}nocapture %p{n}" for n in range(len(buffers))),
        *(f"i64 %s{n}" for n in range(len(symbols))),
        "ptr noalias nocapture %scratch, i64 %begin, i64 %end",
    ]
    head = f'define void @"{symbol}"({", ".join(arguments)}) #0 {{'
    kernel = f"{head}\nentry:\n{s.b.text()}\n  ret void\n}}"
    extent = const(1) if parallel is None else parallel.extent
    entry = Entry(symbol, extent, tuple(buffers), tuple(symbols), s.scratch_bytes)
    return kernel, entry, s.b
