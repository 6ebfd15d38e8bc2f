"""What commands do in several steps: open a model, keep a profile, look into an artifact.

In: what a command has read of its options. Out: printed, written or given back. As in `cli.py` the
compiler is imported where it is used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.driver.report.terminal import console, say, show_code
from tilewright.support.errors import InputError


def open_model(
    model: str,
    threads: int | None,
    shapes: dict[str, int] | None = None,
    verify: Path | None = None,
    winograd: bool | None = None,
    database: str | bool | None = None,
) -> Any:
    """A model to run: loaded if it is compiled already, else compiled."""
    if database is not None and model.endswith(".tw"):
        raise InputError(
            f"cannot use records of tuning for '{model}'",
            "it is compiled already",
            remedy="name the model that it was made from, or leave --database out",
        )
    if verify is not None and not model.endswith(".tw"):
        raise InputError(
            f"cannot verify '{model}'",
            "only artifacts (.tw) are signed",
            remedy="compile it with --sign, or leave --verify out",
        )
    if model.endswith(".tw"):
        from tilewright.runtime.executor import load

        return load(model, threads, verify=verify)
    from tilewright.driver.compile import compile_observed
    from tilewright.driver.report.progress import compiling

    with compiling(Path(model).name) as stages:
        told: dict[str, Any] = {"winograd": winograd, "database": database}
        return compile_observed(model, shapes=shapes, threads=threads, stages=stages, **told)


def keep_profiles(
    exe: Any,
    arrays: Sequence[Any],
    profiles: Sequence[Any],
    html: Path | None,
    trace: Path | None,
    quiet: bool,
) -> None:
    """Write profiles of a model on these inputs as a page and as a trace, where they are asked
    for."""
    from tilewright.driver.report import tables
    from tilewright.driver.report.page import page
    from tilewright.runtime.trace import trace as traced

    if html is not None:
        text = page(exe.name, tables.inputs_text(exe.inputs, arrays), profiles)
        html.write_text(text, encoding="utf-8")
        if not quiet:
            say(f"{html}: the plot, the timeline and this table")
    if trace is not None:
        trace.write_text(json.dumps(traced(profiles, exe.name)), encoding="utf-8")
        if not quiet:
            say(f"{trace}: one run, for ui.perfetto.dev or chrome://tracing")


def print_profile(profile: Any) -> None:
    """A profile as a table, and its last line."""
    from tilewright.driver.report.tables import profile_table

    console.print(profile_table(profile))
    say(str(profile).rpartition("\n")[2])


def inspect_artifact(
    model: str, parts: Sequence[str], kernel: str | None, form: str | None, as_json: bool
) -> dict[str, Any]:
    """Show what a compiled model says of itself, or give it as a record."""
    from tilewright.driver import inspection
    from tilewright.driver.disassembly import disassemble
    from tilewright.driver.report import records
    from tilewright.runtime.executor import load

    inspection.check_artifact(model, parts, form)
    exe = load(model, 1)
    if kernel is not None:
        return show_kernel(kernel, "asm", disassemble(exe, kernel), as_json)
    if not as_json:
        inspection.show_artifact(exe, parts)
    return {**records.model(exe.manifest), **inspection.tell_artifact(exe, parts)}


def show_kernel(kernel: str, form: str, text: str, as_json: bool) -> dict[str, Any]:
    """Show a kernel at some stage, or give it as a record."""
    if not as_json:
        show_code(text, {"llvm": "llvm", "asm": "gas"}.get(form, "python"))
    return {"kernel": kernel, "stage": form, "text": text}
