"""Kernels for NVIDIA GPUs: LLVM text for NVPTX, one kernel for each top-level statement.

In: a function in stage "vector" with thread loops, and a Target with a thread hierarchy. Out: text
and the kernels' grids. Thread loops read the hardware's registers, shared buffers lie in on-chip
memory, barriers are barriers. A launch asks for a block's shared memory: what a kernel may
declare by itself ends at 48 KiB.
"""

from __future__ import annotations

from tilewright.codegen.launch import (
    STARTS,
    DeviceKernel,
    SharedOffsets,
    check_limits,
    grid_and_block,
    thread_extents,
)
from tilewright.codegen.llvm import launch_bodies, module
from tilewright.codegen.llvm_functions import definitions
from tilewright.codegen.llvm_index import Linear
from tilewright.codegen.llvm_math import Need
from tilewright.codegen.llvm_statements import Statements
from tilewright.ir.expr import Buffer, Call, Load, Var, as_int
from tilewright.ir.stmt import Alloc, Eval, For, Func, Stmt, Store
from tilewright.ir.text import mark
from tilewright.ir.walk import free_vars, visit
from tilewright.support.errors import CompileError
from tilewright.support.record import record
from tilewright.target.target import Target

_REGISTERS = {"blockIdx": "ctaid", "threadIdx": "tid"}


@record
class EmittedDevice:
    """LLVM text for a device, and what it takes to run it."""

    text: str
    kernels: tuple[DeviceKernel, ...]
    workspace: tuple[Buffer, ...]


def emit_device(func: Func, target: Target) -> EmittedDevice:
    """LLVM text of a function in stage "vector" for an NVIDIA GPU. Raises CompileError for what it
    cannot run: more threads or shared memory than it has, stores of elements that share a byte."""
    if not target.triple.startswith("nvptx"):
        raise CompileError(
            f"cannot generate device code for '{target.kind}'", "it is no NVIDIA GPU"
        )
    workspace: list[Buffer] = []
    bodies = launch_bodies(func.body, workspace)
    texts: list[str] = []
    kernels: list[DeviceKernel] = []
    declarations: set[str] = set()
    needs: set[Need] = set()
    for number, body in enumerate(bodies):
        symbol = f"{func.name}_{number}" if len(bodies) > 1 else func.name
        writer = _DeviceStatements(target, func, symbol, body)
        text, kernel = writer.kernel(workspace)
        check_limits(kernel, target)
        texts += [*writer.globals, text]
        kernels.append(kernel)
        declarations |= writer.b.declarations
        needs |= writer.b.needs
    functions, more = definitions(needs, target)
    head = [f'target triple = "{target.triple}"', *sorted(declarations | more)]
    made = module(head, texts, functions, "nounwind", "nounwind memory(none)")
    return EmittedDevice(made.text, tuple(kernels), tuple(workspace))


class _DeviceStatements(Statements):
    """Statements as one thread runs them."""

    most_stack = 512 << 10  # bytes: what a thread may have

    def __init__(self, target: Target, func: Func, symbol: str, body: Stmt) -> None:
        super().__init__(target)
        self.func, self.symbol, self.body = func, symbol, body
        self.extents = thread_extents(body)
        self.shared = SharedOffsets(body, target.scope("shared").align)
        self.globals: list[str] = []
        self.memory.starts = STARTS

    def kernel(self, workspace: list[Buffer]) -> tuple[str, DeviceKernel]:
        """The text of the kernel, and its launch."""
        used = {n.buffer.name for n in visit(self.body) if isinstance(n, Load | Store)}
        buffers = [b.name for b in (*self.func.buffers, *workspace) if b.name in used]
        free = free_vars(self.body)
        symbols = [p.name for p in self.func.params if isinstance(p, Var) and p in free]
        parameters = [f"ptr addrspace(1) noalias %g{n}" for n in range(len(buffers))]
        parameters += [f"i64 %s{n}" for n in range(len(symbols))]
        casts: list[str] = []
        for n, name in enumerate(buffers):
            casts.append(f"  %p{n} = addrspacecast ptr addrspace(1) %g{n} to ptr")
            self.memory.pointers[name] = f"%p{n}"
        for n, name in enumerate(symbols):
            self.bind_scalar(name, f"%s{n}")
        if self.shared.bytes:
            name = f'@"{self.symbol}$shared"'
            self.globals.append(f"{name} = external addrspace(3) global [0 x i8], align 16")
            casts.append(f"  %shared = addrspacecast ptr addrspace(3) {name} to ptr")
        self.run(self.body)
        grid, block = grid_and_block(self.extents)
        sizes = [as_int(e) for e in block]  # known, they tell how many registers a thread may take
        fixed = "" if None in sizes else f' "nvvm.reqntid"="{",".join(map(str, sizes))}"'
        head = f'define ptx_kernel void @"{self.symbol}"({", ".join(parameters)}) #0{fixed} {{'
        text = "\n".join([head, "entry:", *casts, self.b.text(), "  ret void", "}"])
        launch = self.symbol, grid, block, tuple(buffers), tuple(symbols), self.shared.bytes
        return text, DeviceKernel(*launch)

    def loop(self, stmt: For) -> None:
        if stmt.kind != "thread":
            return super().loop(stmt)
        unit, axis = stmt.thread.split(".")
        register = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[unit]}.{axis}"
        narrow = self.b.call("i32", register, [])
        index = self.b.pure(f"zext i32 {narrow} to i64", narrow)
        moved = self.index(stmt.start).plus(Linear(0, {index: 1}))
        assert moved is not None
        self.env[stmt.var.name] = moved
        if stmt.extent == self.extents[stmt.thread]:
            return self.run(stmt.body)
        inside = self.b.pure(
            f"icmp slt i64 {index}, {self.uniform(self.index(stmt.extent))}", index
        )
        return self.b.branch(inside, lambda: self.run(stmt.body))

    def cells(self, stmt: Alloc) -> None:
        """None: LLVM itself makes registers of what a thread has for its own."""

    def alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        if buffer.scope == "local":
            if buffer.dtype.nbytes(as_int(buffer.shape[0]) or 0) > self.most_stack:
                raise self.refuse(
                    f"cannot allocate buffer '{buffer.name}'",
                    f"a thread of a GPU has {self.most_stack} bytes of its own",
                    stmt,
                    "compute smaller tiles",
                )
            return super().alloc(stmt)
        if buffer.scope != "shared":
            raise self.refuse(
                f"cannot allocate buffer '{buffer.name}'",
                f"a kernel of a GPU cannot allocate {buffer.scope} memory",
                stmt,
                'allocate it outside of thread loops, or set its scope to "shared" or "local"',
            )
        pointer = f"%m{len(self.b.allocas)}"
        at = self.shared.of[id(stmt)]
        self.b.allocas.append(f"  {pointer} = getelementptr i8, ptr %shared, i64 {at}")
        self.memory.pointers[buffer.name] = pointer
        return self.run(stmt.body)

    def store(self, stmt: Store) -> None:
        buffer = stmt.buffer
        if buffer.dtype.is_packed and buffer.scope != "local":
            raise self.refuse(
                f"cannot store to '{buffer.name}'",
                f"several {buffer.dtype} share a byte, which two threads may write at once",
                stmt,
                "store bytes",
            )
        super().store(stmt)

    def refuse(self, what: str, why: str, node: Stmt, remedy: str) -> CompileError:
        return CompileError(what, why, lambda: mark(self.func, node), remedy)

    def evaluate(self, stmt: Eval) -> None:
        if isinstance(stmt.value, Call) and stmt.value.name == "barrier.shared":
            self.b.call("void", "llvm.nvvm.barrier0", [])
            self.forget()
            return
        super().evaluate(stmt)
