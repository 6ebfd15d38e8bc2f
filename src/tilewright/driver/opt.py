"""`opt`: one program's text in, what passes and primitives make of it out.

The one idea: every form of a program has a text that reads back, so any step of the compiler can be
tried alone. A step is a lowering pass ("flatten"), all of them ("lower"), a schedule primitive with
its arguments ("split(i, 32)"), a graph pass ("fuse"), or code ("emit", "assembly": of the target).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from tilewright.backend.backend import backend_of
from tilewright.graph.graph import Graph
from tilewright.graph.parse import parse as parse_graph
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.pipeline import PIPELINE
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func
from tilewright.ir.verify import verify
from tilewright.lower.pipeline import lower, stage_of
from tilewright.schedule.schedule import PRIMITIVES, replay
from tilewright.schedule.trace import Step, Trace
from tilewright.support.errors import CompileError
from tilewright.target.target import Target

_STEP = re.compile(r"\s*(\w[\w ]*?)\s*(?:\((.*)\))?\s*", re.DOTALL)


def read_program(text: str) -> Func | Graph:
    """A function or a graph from its text: a graph returns its outputs."""
    try:
        (definition,) = ast.parse(text).body
        last = definition.body[-1] if isinstance(definition, ast.FunctionDef) else None
    except (SyntaxError, ValueError):
        last = None  # the parser of functions says what is wrong
    return parse_graph(text) if isinstance(last, ast.Return) else parse_func(text)


def read_file(path: Path) -> str:
    """A program's text. Raises CompileError for a file that is none, OSError where there is no
    such file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CompileError(
            f"cannot read '{path}' as a program",
            "it is no text",
            remedy="give a function's or a graph's text, as `tilewright inspect` prints them",
        ) from None


def split_steps(text: str) -> list[str]:
    """The steps in "simplify, split(i, 32)": commas inside brackets do not separate."""
    steps, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            steps.append("")
        else:
            steps[-1] += c
    return [s.strip() for s in steps if s.strip()]


def apply(program: Any, step: str, machine: Target) -> Any:
    """What one step makes of a program. Raises CompileError for a step that is not one."""
    found = _STEP.fullmatch(step)
    if found is None:
        raise _unreadable(step, "it is neither a name nor a name with arguments")
    name, arguments = found[1], found[2]
    if isinstance(program, Graph):
        return _graph_pass(program, name)
    if not isinstance(program, Func):
        raise CompileError(
            f"cannot apply '{name}'",
            "code is the end: nothing comes after it",
            remedy="put it before emit or assembly",
        )
    if name in PRIMITIVES:
        args, named = _arguments(step, arguments or "")
        return replay(program, Trace((Step(name, args, named),))).func
    pipeline = backend_of(machine).pipeline
    passes = {p.name: p for p in pipeline if p.fits(machine)}
    if name in passes:
        one = passes[name]
        verify(program, one.takes)
        return lower(program, machine, (one,), verify=verify)
    if name == "lower":
        return lower(program, machine, pipeline, verify=verify)
    if name == "verify":
        verify(program, stage_of(program))
        return program
    if name in ("emit", "assembly"):
        return _code(program, machine, name == "assembly")
    raise CompileError(
        f"cannot apply '{name}'",
        f"there is no such step for '{machine.kind}'",
        remedy=f"passes: {', '.join(passes)}, lower, verify, emit, assembly; primitives, with "
        f"their arguments: {', '.join(sorted(PRIMITIVES))}",
    )


def _code(func: Func, machine: Target, assembly: bool) -> str:
    """LLVM's text, or source in the machine's language; or the assembly that LLVM makes."""
    backend = backend_of(machine)
    text = backend.code(func, machine, verify).text
    if not assembly:
        return text
    if backend.assembly is None:
        raise CompileError(
            f"cannot make assembly for '{machine.kind}'",
            "its code is source, which is compiled where it runs",
            remedy="use emit",
        )
    return backend.assembly(text, machine)


def _graph_pass(graph: Graph, name: str) -> Any:
    passes = dict(PIPELINE)
    if name == "fuse":
        return fuse(graph)
    if name not in passes:
        raise CompileError(
            f"cannot apply '{name}' to a graph",
            "there is no such pass",
            remedy=f"the passes are {', '.join(passes)} and fuse",
        )
    try:
        return passes[name](graph)
    except LookupError as fault:
        raise CompileError(f"cannot apply '{name}' to this graph", str(fault)) from fault


def _arguments(step: str, text: str) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    """Arguments of a primitive; a bare name stands for the word."""
    try:
        call: Any = ast.parse(f"f({text})", mode="eval").body
        args = tuple(_value(a) for a in call.args)
        return args, tuple((k.arg, _value(k.value)) for k in call.keywords)
    except (SyntaxError, ValueError, AttributeError) as fault:
        raise _unreadable(step, str(fault)) from None


def _unreadable(step: str, why: str) -> CompileError:
    return CompileError(
        f"cannot read the step '{step}'", why, remedy="write it as in flatten, or split(i, 32)"
    )


def _value(e: ast.expr) -> Any:
    if isinstance(e, ast.Name | ast.Attribute):
        return ast.unparse(e)
    if isinstance(e, ast.Tuple | ast.List):
        return tuple(_value(x) for x in e.elts)
    if isinstance(e, ast.Lambda):
        return ast.unparse(e)  # index maps are text in traces
    return ast.literal_eval(e)
