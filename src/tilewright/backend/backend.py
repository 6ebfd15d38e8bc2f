"""A backend: all that compiling for one kind of machine takes, in one record.

In: a machine. Out: the `Backend` of its kind. The one idea: who compiles asks the record what there
is, never the machine of which kind it is; `target.KINDS` names the record of each, and what nobody
compiles for is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from tilewright.codegen.llvm import Emitted
from tilewright.ir.stmt import For, Func
from tilewright.ir.walk import statements
from tilewright.lower.pipeline import PIPELINE, Pass, lower
from tilewright.strategy.select import Strategies, strategies_of
from tilewright.support.errors import CompileError
from tilewright.support.record import record
from tilewright.target.target import KINDS, Target, named, target


class Code(Protocol):
    """A lowered function as an emitter writes it."""

    @property
    def text(self) -> str:
        """LLVM's text, or source in the machine's language."""
        ...


class Runnable(Protocol):
    """A function compiled into this process, to be run and measured."""

    def __call__(
        self, *arrays: np.ndarray[Any, Any], symbols: Mapping[str, int] | None = None
    ) -> None:
        """Run it once, in place, on an array for each of its buffers."""
        ...


class ObjectCompiler(Protocol):
    """See `codegen.llvm_compile.compile_object`."""

    def __call__(
        self, text: str, target: Target, quick: bool = False, *, verify: bool = True
    ) -> bytes: ...


@record
class Native:
    """What makes code that the host program calls: whole models and `tw.build` are made of it.
    emit: text of a lowered function; compile_object: code of that text, with an entry for each of
    its launches; layouts: what whole models ask (graph/layout_policy.py says what); load: compiles
    a function into this process."""

    emit: Callable[[Func, Target], Emitted]
    compile_object: ObjectCompiler
    layouts: Callable[[Target], Any]
    load: Callable[[Func, Target], Runnable]


@record
class Backend:
    """A kind of machine. Its memories are the scopes of a `Target`, its families those of
    `strategies`; what is None there is not, and who asks for it says so.

    emit: writes a function in the last stage of `pipeline`; what it gives says how that is
    launched. assembly: of the text. native: where the host program can call what it writes.
    """

    kind: str
    emit: Callable[[Func, Target], Code] | None
    pipeline: tuple[Pass, ...] = PIPELINE
    assembly: Callable[[str, Target], str] | None = None
    native: Native | None = None

    @property
    def strategies(self) -> Strategies:
        """How functions are scheduled for it."""
        return strategies_of(self.kind)

    @property
    def compiles(self) -> str:
        """What is compiled for it, in words."""
        if self.emit is None:
            return "nothing yet"
        return "whole models, single functions" if self.native else "single functions"

    def code(self, func: Func, machine: Target, verify: Callable[..., None] | None = None) -> Code:
        """A scheduled function, lowered and written. Raises CompileError where nothing writes
        code for such machines."""
        if self.emit is None:
            raise CompileError(
                f"cannot generate code for '{self.kind}'",
                "such machines are described, and nothing writes code for them yet",
                remedy=f"there is code for {', '.join(k for k in KINDS if writes_code(k))}",
            )
        return self.emit(self.lowered(func, machine, verify), machine)

    def lowered(
        self, func: Func, machine: Target, verify: Callable[..., None] | None = None
    ) -> Func:
        """A scheduled function after the last pass of the pipeline. Raises CompileError for loops
        whose iterations are to overlap: no kind of machine here runs them so, and a schedule that
        asks for it would be measured as if it did."""
        for s in statements(func.body):
            if isinstance(s, For) and s.kind == "pipeline":
                raise CompileError(
                    f"cannot compile '{func.name}' with the pipeline loop '{s.name}'",
                    f"nothing lowers its stages for '{self.kind}': they would run one by one",
                    remedy="use double_buffer or prefetch, and leave the loop serial",
                )
        return lower(func, machine, self.pipeline, verify)


def backend_of(machine: Target | str) -> Backend:
    """The backend of a machine."""
    return backend_of_kind(target(machine).kind)


def backend_of_kind(kind: str) -> Backend:
    """The backend of a kind: one of `KINDS`."""
    return named(KINDS[kind].backend)


def native_of(machine: Target, asked: str = "cannot compile a function") -> Native:
    """What makes code for a machine that the host program calls. Raises CompileError where there is
    nothing, beginning with `asked`."""
    backend = backend_of(machine)
    if backend.native is None:
        raise CompileError(
            f"{asked} for '{machine.kind}'",
            "functions that run here are built for CPUs",
            remedy="for its text, use tilewright.backend.backend: backend_of(t).code(func, t)",
        )
    return backend.native


def writes_code(kind: str) -> bool:
    """Does anything write code for machines of a kind?"""
    return backend_of_kind(kind).emit is not None
