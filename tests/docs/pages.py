"""Running a page: its python blocks in order, each beside the text block that shows its output.

In: a markdown page. Out: the page as it should read: every ```text block that follows a python
block holds what that block printed. So a page is checked by comparing, and brought up to date by
writing it back.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)


def run_page(path: Path, names: dict[str, Any] | None = None) -> str:
    """The page with the outputs that its blocks print now; `names` are defined beforehand."""
    page = path.read_text()
    namespace: dict[str, Any] = {"__name__": "page", **(names or {})}
    parts: list[str] = []
    end, printed = 0, ""
    for block in FENCE.finditer(page):
        parts.append(page[end : block.start()])
        language, body, end = block[1], block[2], block.end()
        if language == "text" and printed:
            body, printed = printed, ""
        parts.append(f"```{language}\n{body}```\n")
        if language == "python":
            assert not printed, f"{path.name}: nothing shows what this prints:\n{printed}"
            line = page.count("\n", 0, block.start(2))
            printed = _run("\n" * line + body, path, namespace)
    assert not printed, f"{path.name}: nothing shows what the last block prints:\n{printed}"
    return "".join(parts) + page[end:]


def _run(source: str, path: Path, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, f"<{path.name}>", "exec"), namespace)  # no file of Python's
    lines = [line.rstrip() for line in out.getvalue().rstrip().split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""
