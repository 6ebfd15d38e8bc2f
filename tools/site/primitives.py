"""A Griffe extension: the methods of `Schedule` are documented as the functions that they apply.

In: `split = _method(split)` in the class, and the primitive's docstring with its rewrite and its
needs. Out: a method with the primitive's parameters, whose rewrite is shown as two programs and
whose needs are a list.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

SCHEDULE = "tilewright.schedule.schedule.Schedule"
REWRITE = re.compile(r"^rewrite:(.*)\n((?:(?: .*|→.*|)\n)*)", re.MULTILINE)
NEEDS = re.compile(r"^needs:\n((?: .*\n?)+)", re.MULTILINE)


class Primitives(griffe.Extension):
    """Puts the methods into the class once the package is read."""

    def on_package(self, *, pkg: griffe.Module, loader: Any, **kwargs: Any) -> None:
        """Replace each attribute that `_method` makes."""
        if pkg.path != "tilewright":
            return
        schedule = pkg[SCHEDULE.removeprefix("tilewright.")]
        for name, member in list(schedule.members.items()):
            if member.is_attribute and str(member.value) == f"_method({name})":
                primitive = pkg[f"schedule.primitives.{name}.{name}"]
                schedule.set_member(name, method(primitive, member))


def method(primitive: griffe.Function, attribute: griffe.Attribute) -> griffe.Function:
    """The method that applies a primitive, where the class has the attribute."""
    _, *parameters = primitive.parameters
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    made = griffe.Function(
        primitive.name,
        parameters=griffe.Parameters(own, *parameters),
        returns=given(primitive.returns),
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
        parent=attribute.parent,
    )
    if primitive.docstring:
        made.docstring = griffe.Docstring(shown(primitive.docstring.value), parent=made)
    return made


def given(returns: Any) -> Any:
    """What a call gives: the primitive's result without the function, which the schedule keeps."""
    text = str(returns)
    parts = re.fullmatch(r"tuple\[Func, (.*)\]", text)
    return parts[1] if parts else "None"


def shown(docstring: str) -> str:
    """The docstring as Markdown."""

    def rewrite(found: re.Match[str]) -> str:
        call = found[1].strip()
        before, arrow, after = found[2].rstrip().partition("\n→\n")
        head = f"`{call}` rewrites" if call else "It rewrites"
        if not arrow:
            return f"{head}\n\n{block(before)}\n"
        return f"{head}\n\n{block(before)}\ninto\n\n{block(after)}\n"

    def needs(found: re.Match[str]) -> str:
        lines = textwrap.dedent(found[1]).rstrip().split("\n")
        rows = [
            re.sub(r"^(P\d+)\s+", r"* **\1** ", line)
            if re.match(r"P\d", line)
            else (f"  {line.strip()}" if line.startswith(" ") else f"* {line}")
            for line in lines
        ]
        return "It needs:\n\n" + "\n".join(rows) + "\n"

    return NEEDS.sub(needs, REWRITE.sub(rewrite, docstring + "\n")).rstrip()


def block(program: str) -> str:
    """A fenced block of a program's text."""
    return f"```python\n{textwrap.dedent(program).strip(chr(10))}\n```\n"
