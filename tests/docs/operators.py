"""docs/operators.md: every operator of ONNX and how it is built here, one line each.

    python -m tests.docs.operators        writes the page

In: the tables of translators and of graph operators, and ONNX's schemas. Out: the page.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import onnx
import onnx.defs

from tilewright.frontend.onnx import seldom  # noqa: F401 - registers its families
from tilewright.frontend.onnx.elementwise import PLAIN
from tilewright.frontend.onnx.registry import TRANSLATORS
from tilewright.graph import OPERATORS

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
MOST = 6  # graph operators named for one of ONNX
HEAD = """# Operators

Written by `python -m tests.docs.operators`; a test keeps it current.

## ONNX

| operator | since | built by |
|---|---|---|
"""


def summary(doc: str) -> str:
    """The first sentence of a docstring, on one line."""
    text = " ".join((doc or "").split())
    return (text.split(". ")[0].rstrip(".") or "").replace("|", "/")


def schemas() -> dict[tuple[str, str], Any]:
    """The newest schema of each operator."""
    found: dict[tuple[str, str], Any] = {}
    for schema in onnx.defs.get_all_schemas():
        if not schema.deprecated:
            found[schema.domain, schema.name] = schema
    return found


def emitted(translator: Any) -> list[str]:
    """The graph operators that a translator's own text names, in order."""
    words = re.findall(r'"([a-z_0-9]+)"', inspect.getsource(translator))
    return [w for w in dict.fromkeys(words) if w in OPERATORS]


def how(key: tuple[str, str], schema: Any) -> str:
    """In one line: by what an operator is built, or that it is not."""
    translator = TRANSLATORS.get(key)
    if translator is not None:
        place = translator.__module__.rpartition(".")[2]
        made = [PLAIN[key[1]]] if key[1] in PLAIN else emitted(translator)
        told = summary(translator.__doc__ or "")
        parts = [told] if told else []
        if made:
            shown = ", ".join(f"`{name}`" for name in made[:MOST])
            parts.append(shown + (", …" if len(made) > MOST else ""))
        return f"{'; '.join(parts)} ({place})" if parts else f"({place})"
    if schema.has_function or schema.has_context_dependent_function:
        return "ONNX's own definition by other operators, inlined"
    return "**not supported**"


def text() -> str:
    """The page."""
    rows = []
    known = schemas()
    for key in sorted({*known, *TRANSLATORS}):
        schema = known.get(key)
        domain = key[0] or "ai.onnx"
        since = schema.since_version if schema is not None else ""
        rows.append(f"| {domain} {key[1]} | {since} | {how(key, schema)} |")
    lines = [HEAD + "\n".join(rows), "", "## Of the graph", "", "| operator | class | what it is |"]
    lines += ["|---|---|---|"]
    for name, entry in sorted(OPERATORS.items()):
        lines.append(f"| `{name}` | {entry.fusion.value} | {summary(entry.doc)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
