"""From a function in stage "flat" or "vector" to source in a language of the C family.

In: a Func, a Target and a dialect. Out: `Source`: text, what to launch, and the
workspace. The one idea: a kernel is what one thread runs; where the language has threads, thread
loops become indices, and elsewhere each top-level parallel loop is an entry of the native call
convention (`Entry`). Vectorised loops stay loops, which the language's compiler may vectorise.
"""

from __future__ import annotations

from tilewright.codegen.csource_dialect import Dialect
from tilewright.codegen.csource_expressions import SUM, UNARY, Expressions, reads
from tilewright.codegen.csource_functions import Functions
from tilewright.codegen.launch import DeviceKernel, check_limits, grid_and_block, thread_extents
from tilewright.codegen.llvm import Entry, launch_bodies
from tilewright.codegen.llvm_statements import STACK_LIMIT
from tilewright.ir.expr import Buffer, Call, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Let, Seq, Stmt, Store
from tilewright.ir.text import mark
from tilewright.ir.walk import free_vars, fresh, visit
from tilewright.support.errors import CompileError
from tilewright.support.record import record
from tilewright.target.target import Target

LARGEST_SIZE = (1 << 31) - 1  # of a symbolic size


@record
class Source:
    """Text, and what it takes to run it: in order, launches of a device or calls of entries."""

    text: str
    launches: tuple[DeviceKernel | Entry, ...]
    workspace: tuple[Buffer, ...]  # global buffers that live between launches


def emit_source(func: Func, target: Target, language: Dialect) -> Source:
    """Source of a function in stage "flat" or "vector"."""
    functions = Functions(language)
    workspace: list[Buffer] = []
    bodies = launch_bodies(func.body, workspace)
    texts: list[str] = []
    launches: list[DeviceKernel | Entry] = []
    for number, body in enumerate(bodies):
        name = f"{func.name}_{number}" if len(bodies) > 1 else func.name
        writer = _Kernel(language, functions, func, body, workspace)
        text, launch = writer.device(name) if language.threads else writer.native(name)
        if isinstance(launch, DeviceKernel):
            check_limits(launch, target)
        texts.append(text)
        launches.append(launch)
    text = "\n".join([language.preamble, *functions.texts.values(), *texts]).lstrip("\n")
    return Source(text, tuple(launches), tuple(workspace))


class _Kernel(Expressions):
    """Writes one kernel, line by line."""

    def __init__(
        self,
        language: Dialect,
        functions: Functions,
        func: Func,
        body: Stmt,
        workspace: list[Buffer],
    ) -> None:
        super().__init__(language, functions)
        self.func, self.body = func, body
        self.taken = set(language.reserved)
        self.lines: list[str] = []
        self.top: list[str] = []  # declarations at the top of the kernel
        self.depth = 1
        self.scratch_bytes = self.scratch_used = 0
        used = {n.buffer.name for n in visit(body) if isinstance(n, Load | Store)}
        stored = {n.buffer.name for n in visit(body) if isinstance(n, Store)}
        free = free_vars(body)
        self.buffers = [b for b in (*func.buffers, *workspace) if b.name in used]
        self.symbols = [p for p in func.params if isinstance(p, Var) and p in free]
        self.pointers = [
            f"{'' if b.name in stored else 'const '}{language.memory(b.dtype)} *restrict "
            for b in self.buffers
        ]
        self.extents = thread_extents(body)

    # -- kernels -----------------------------------------------------------------------------------

    def device(self, name: str) -> tuple[str, DeviceKernel]:
        """A kernel that every thread of a grid runs."""
        symbol = self.declare(name)
        parameters = [
            f"{self.dialect.pointers['global']}{pointer}{self.declare(b.name)}"
            for b, pointer in zip(self.buffers, self.pointers, strict=True)
        ]
        integer = self.dialect.types["i64"]
        parameters += [f"const {integer} {self.symbol(s)}" for s in self.symbols]
        grid, block = grid_and_block(self.extents)
        self.run(self.body)
        sizes = [as_int(e) for e in block]
        fixed = "" if None in sizes else f"__attribute__((reqd_work_group_size{(*sizes,)})) "
        head = [f"__kernel {fixed}void {symbol}(", ",\n".join(f"    {p}" for p in parameters)]
        text = "\n".join([*head, ") {", *self.top, *self.lines, "}", ""])
        names = tuple(b.name for b in self.buffers)
        symbols = tuple(s.name for s in self.symbols)
        return text, DeviceKernel(symbol, grid, block, names, symbols)

    def native(self, name: str) -> tuple[str, Entry]:
        """An entry of the native call convention: its arguments, a range of a parallel loop."""
        symbol = self.declare(name)
        integer = self.dialect.types["i64"]
        parameters = [
            f"{pointer}{self.declare(b.name)}"
            for b, pointer in zip(self.buffers, self.pointers, strict=True)
        ]
        parameters += [f"const {integer} {self.symbol(s)}" for s in self.symbols]
        parameters += ["void *scratch", f"{integer} begin", f"{integer} end"]
        extent, body = const(1), self.body
        if isinstance(body, For) and body.kind == "parallel":
            extent = body.extent
            ends = [f"{self.inside(body.start, SUM)} + {end}" for end in ("begin", "end")]
            if as_int(body.start) == 0:
                ends = ["begin", "end"]
            self.count(body, *ends)
        else:
            self.run(body)
        text = "\n".join(
            [f"void {symbol}({', '.join(parameters)}) {{", *self.top, *self.lines, "}", ""]
        )
        names = tuple(b.name for b in self.buffers)
        symbols = tuple(s.name for s in self.symbols)
        return text, Entry(symbol, extent, names, symbols, self.scratch_bytes)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def declare(self, name: str) -> str:
        """A name of the program as one of the source that nothing else has."""
        safe = f"_{name}" if name.startswith("tw_") else name
        made = self.names[name] = fresh(safe, self.taken)
        return made

    def symbol(self, size: Var) -> str:
        self.ranges[size.name] = (0, LARGEST_SIZE)
        return self.declare(size.name)

    # -- statements --------------------------------------------------------------------------------

    def run(self, s: Stmt) -> None:
        if isinstance(s, Seq):
            for each in s.stmts:
                self.run(each)
        elif isinstance(s, For):
            self.loop(s)
        elif isinstance(s, Store):
            self.store(s)
        elif isinstance(s, If):
            self.line(f"if ({self.expr(s.cond)}) {{")
            self.suite(s.then)
            if s.other is not None:
                self.line("} else {")
                self.suite(s.other)
            self.line("}")
        elif isinstance(s, Let):
            self.ranges[s.var.name] = self.interval(s.value)
            value = self.expr(s.value)
            kind = self.dialect.register(s.var.dtype)
            self.line(f"const {kind} {self.declare(s.var.name)} = {value};")
            self.run(s.body)
        elif isinstance(s, Alloc):
            self.alloc(s)
        elif isinstance(s, Eval):
            self.evaluate(s)
        else:
            raise TypeError(f"{type(s).__name__} is no statement of stage 'flat'")

    def suite(self, s: Stmt) -> None:
        self.depth += 1
        self.run(s)
        self.depth -= 1

    def loop(self, s: For) -> None:
        low, high = self.interval(s.start)[0], self.interval(s.stop)[1] - 1
        self.ranges[s.var.name] = (low, max(low, high))
        if s.kind == "thread":
            return self.thread(s)
        if s.kind in ("unroll", "vectorize") and as_int(s.extent) == 1:
            self.line("{")
            self.depth += 1
            value, kind = self.index(s.start), self.dialect.types["i64"]
            self.line(f"const {kind} {self.declare(s.var.name)} = {value};")
            self.run(s.body)
            self.depth -= 1
            return self.line("}")
        if s.kind == "unroll" and self.dialect.unroll:
            self.lines.append(self.dialect.unroll)
        stop = self.index(s.stop)
        if reads(s.stop):  # once, before the body may change it
            self.line("{")
            end = fresh("stop", self.taken)
            self.line(f"const {self.dialect.types['i64']} {end} = {stop};")
            self.count(s, self.index(s.start), end)
            return self.line("}")
        return self.count(s, self.index(s.start), stop)

    def count(self, s: For, start: str, stop: str) -> None:
        """A loop of one thread."""
        name = self.declare(s.var.name)
        kind = self.dialect.types["i64"]
        self.line(f"for ({kind} {name} = {start}; {name} < {stop}; {name}++) {{")
        self.suite(s.body)
        self.line("}")

    def thread(self, s: For) -> None:
        """A loop whose iterations are threads: each thread knows which it is."""
        unit, axis = s.thread.split(".")
        if self.dialect.threads is None:
            raise self.refuse(
                f"cannot run loop '{s.name}' on {s.thread}",
                f"{self.dialect.name} has no threads of that kind",
                s,
                "mark the loop parallel instead",
            )
        index = self.dialect.threads[unit].format("xyz".index(axis))
        start = "" if as_int(s.start) == 0 else f" + {self.inside(s.start, SUM)}"
        name, kind = self.declare(s.var.name), self.dialect.types["i64"]
        self.line(f"const {kind} {name} = {index}{start};")
        if s.extent == self.extents[s.thread]:
            return self.run(s.body)
        self.line(f"if ({name} < {self.index(s.stop)}) {{")
        self.suite(s.body)
        return self.line("}")

    def store(self, s: Store) -> None:
        b, index = s.buffer, self.index(s.indices[0])
        name, value = self.names[b.name], self.text(s.value)
        if b.dtype.is_packed:
            if self.dialect.threads is not None and b.scope != "local":
                raise self.refuse(
                    f"cannot store to '{b.name}'",
                    f"several {b.dtype} share a byte, which two threads may write at once",
                    s,
                    "store bytes",
                )
            store = self.functions.pack(b.dtype, self.qualifier(b))
            return self.line(f"{store}({name}, {index}, {value.text});")
        return self.line(f"{name}[{index}] = {self.to_memory(value, b.dtype).text};")

    def evaluate(self, s: Eval) -> None:
        call = s.value
        if isinstance(call, Call) and call.name.partition(".")[0] == "barrier":
            if call.name not in self.dialect.barriers:
                raise self.refuse(
                    f"cannot generate '{call.name}'", f"{self.dialect.name} has no such barrier", s
                )
            if self.dialect.barriers[call.name]:
                self.line(self.dialect.barriers[call.name])
        elif not (isinstance(call, Call) and call.name == "prefetch"):  # a hint, not taken
            self.line(f"(void){self.inside(call, UNARY)};")

    # -- memory ------------------------------------------------------------------------------------

    def alloc(self, s: Alloc) -> None:
        b, count = s.buffer, as_int(s.buffer.shape[0])
        if count is None:
            raise self.refuse(
                f"cannot allocate buffer '{b.name}'",
                "its size inside a kernel is not a constant",
                s,
            )
        threads = self.dialect.threads is not None
        if threads and b.scope not in ("shared", "local"):
            raise self.refuse(
                f"cannot allocate buffer '{b.name}'",
                f"a kernel of {self.dialect.name} cannot allocate {b.scope} memory",
                s,
                'allocate it outside of thread loops, or set its scope to "shared" or "local"',
            )
        kind, name = self.dialect.memory(b.dtype), self.declare(b.name)
        size = b.dtype.nbytes(count)
        elements = max(1, size if b.dtype.is_packed else count)
        used = self.scratch_used
        if b.scope == "shared" and threads:
            self.top.append(f"    {self.dialect.pointers['shared']}{kind} {name}[{elements}];")
        elif threads or (b.scope == "local" and size <= STACK_LIMIT):
            self.line(f"{kind} {name}[{elements}];")
        else:
            self.line(f"{kind} *const {name} = ({kind} *)((char *)scratch + {used});")
            self.scratch_used = used + (size + 63) // 64 * 64
            self.scratch_bytes = max(self.scratch_bytes, self.scratch_used)
        self.run(s.body)
        self.scratch_used = used

    def qualifier(self, b: Buffer) -> str:
        if b.scope not in self.dialect.pointers:
            raise self.refuse(
                f"cannot use buffer '{b.name}'", f"{self.dialect.name} has no {b.scope} memory", b
            )
        return super().qualifier(b)

    def refuse(self, what: str, why: str, node: Stmt | Buffer, remedy: str = "") -> CompileError:
        return CompileError(what, why, lambda: mark(self.func, node), remedy)
