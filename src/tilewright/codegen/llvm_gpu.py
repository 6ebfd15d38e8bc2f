"""Kernels for NVIDIA GPUs: LLVM text for NVPTX, one kernel for each top-level statement.

In: a function in stage "vector" with thread loops, and a Target with a thread hierarchy. Out: text
and the kernels' grids. Thread loops read the hardware's registers, shared buffers lie in on-chip
memory, barriers are barriers.
"""

from __future__ import annotations

from tilewright.codegen.llvm import module, pieces_of
from tilewright.codegen.llvm_functions import definitions
from tilewright.codegen.llvm_index import Linear
from tilewright.codegen.llvm_math import Need
from tilewright.codegen.llvm_statements import Statements
from tilewright.codegen.llvm_types import memory
from tilewright.ir.expr import Call, Expr, Load, Var, as_int, const, maximum
from tilewright.ir.stmt import THREAD_AXES, Alloc, Buffer, Eval, For, Func, Stmt, Store
from tilewright.ir.walk import free_vars, visit
from tilewright.support.errors import CompileError
from tilewright.support.record import record
from tilewright.target.target import Target

_REGISTERS = {"blockIdx": "ctaid", "threadIdx": "tid"}


@record
class DeviceKernel:
    """One launch: a grid of blocks of threads; arguments are the addresses of `buffers`, then i64
    `symbols`.
    """

    symbol: str
    grid: tuple[Expr, Expr, Expr]
    block: tuple[Expr, Expr, Expr]
    buffers: tuple[str, ...]
    symbols: tuple[str, ...]


@record
class EmittedDevice:
    """LLVM text for a device, and what it takes to run it."""

    text: str
    kernels: tuple[DeviceKernel, ...]
    workspace: tuple[Buffer, ...]


def emit_device(func: Func, target: Target) -> EmittedDevice:
    """LLVM text of a function in stage "vector" for an NVIDIA GPU."""
    if not target.triple.startswith("nvptx"):
        raise CompileError(
            f"cannot generate device code for '{target.kind}'", "it is no NVIDIA GPU"
        )
    workspace: list[Buffer] = []
    pieces = pieces_of(func.body, workspace)
    texts: list[str] = []
    kernels: list[DeviceKernel] = []
    declarations: set[str] = set()
    needs: set[Need] = set()
    for number, piece in enumerate(pieces):
        symbol = f"{func.name}_{number}" if len(pieces) > 1 else func.name
        writer = _DeviceStatements(target, symbol, piece)
        text, kernel = writer.kernel(func, workspace)
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

    def __init__(self, target: Target, symbol: str, piece: Stmt) -> None:
        super().__init__(target)
        self.symbol, self.piece = symbol, piece
        self.globals: list[str] = []
        self.extents = dict.fromkeys(THREAD_AXES, const(1))
        for n in visit(piece):
            if isinstance(n, For) and n.kind == "thread":
                known = self.extents[n.thread]
                self.extents[n.thread] = (
                    n.extent if as_int(known) == 1 else maximum(known, n.extent)
                )

    def kernel(self, func: Func, workspace: list[Buffer]) -> tuple[str, DeviceKernel]:
        """The text of the kernel, and its launch."""
        used = {n.buffer.name for n in visit(self.piece) if isinstance(n, Load | Store)}
        buffers = [b.name for b in (*func.buffers, *workspace) if b.name in used]
        free = free_vars(self.piece)
        symbols = [p.name for p in func.params if isinstance(p, Var) and p in free]
        parameters = [f"ptr addrspace(1) noalias %g{n}" for n in range(len(buffers))]
        parameters += [f"i64 %s{n}" for n in range(len(symbols))]
        casts: list[str] = []
        for n, name in enumerate(buffers):
            casts.append(f"  %p{n} = addrspacecast ptr addrspace(1) %g{n} to ptr")
            self.memory.pointers[name] = f"%p{n}"
        for n, name in enumerate(symbols):
            self.bind_scalar(name, f"%s{n}")
        self.run(self.piece)
        head = f'define ptx_kernel void @"{self.symbol}"({", ".join(parameters)}) #0 {{'
        text = "\n".join([head, "entry:", *casts, self.b.text(), "  ret void", "}"])
        sizes = [tuple(self.extents[f"{unit}.{axis}"] for axis in "xyz") for unit in _REGISTERS]
        grid, block = sizes
        return text, DeviceKernel(self.symbol, grid, block, tuple(buffers), tuple(symbols))

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

    def alloc(self, stmt: Alloc) -> None:
        if stmt.buffer.scope != "shared":
            return super().alloc(stmt)
        buffer, count = stmt.buffer, as_int(stmt.buffer.shape[0])
        if count is None:
            raise CompileError(
                f"cannot place '{buffer.name}' in shared memory", "its size is not a constant"
            )
        name = f'@"{self.symbol}.{buffer.name}.{len(self.globals)}"'
        elements = buffer.dtype.nbytes(count) * 8 // max(8, buffer.dtype.bits)
        kind = f"[{elements} x {memory(buffer.dtype)}]"
        self.globals.append(f"{name} = internal addrspace(3) global {kind} undef, align 16")
        place = f"%sh{len(self.globals)}"
        self.b.allocas.append(f"  {place} = addrspacecast ptr addrspace(3) {name} to ptr")
        self.memory.pointers[buffer.name] = place
        self.run(stmt.body)

    def evaluate(self, stmt: Eval) -> None:
        if isinstance(stmt.value, Call) and stmt.value.name == "barrier.shared":
            self.b.call("void", "llvm.nvvm.barrier0", [])
            self.forget()
            return
        super().evaluate(stmt)
