"""Running a page: its blocks in order, each beside the block that shows its output.

In: a markdown page. Out: the page as it should read: every ```text block that follows a block which
printed holds what that one printed. So a page is checked by comparing, and brought up to date by
writing it back. What runs: `python` blocks, in one namespace; `sh` blocks; the lines of `console`
blocks that begin with `$ `, the others being their output. `c` and `cmake` blocks become files.

A comment on the line above a block says what is different about it:

    <!-- not run: why -->           it cannot run here
    <!-- needs: qemu-aarch64 -->    it runs where these programs are installed
    <!-- numbers vary -->           all but the numbers of this output is compared
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```$\n?",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"((?:.*\\\n)*.*\n)((?s:.*))")  # with the lines that it goes on for
NUMBER = re.compile(r"[\d.,]*\d")
LIMIT = re.compile(r"\b(compute|memory)\b")  # the machine's, which profiles name
FILES = {"c": re.compile(r"/\* ([\w.]+\.c): "), "cmake": None}
Shell = Callable[[str], str]  # commands → what they print


def blocks(page: str) -> list[re.Match[str]]:
    """The fenced blocks of a page, with the mark above them."""
    return list(FENCE.finditer(page))


def run_page(path: Path, names: dict[str, Any] | None = None, shell: Shell | None = None) -> str:
    """The page with the outputs that its blocks print now; `names` are defined beforehand. Without
    a shell only its Python runs."""
    page = path.read_text()
    namespace: dict[str, Any] = {"__name__": "page", **(names or {})}
    parts: list[str] = []
    end, printed, must_show, has_run = 0, "", False, False
    for block in blocks(page):
        language, body, mark = block["language"], block["body"], block["mark"] or ""
        parts += [page[end : block.start()], page[block.start() : block.start("body")]]
        end = block.end()
        if language == "text":
            if has_run:
                assert printed, f"{path.name}: a block shows what nothing prints:\n{body}"
                if not (mark == "numbers vary" and alike(printed, body)):
                    body = printed
            printed, has_run = "", False
        elif runs(mark, path):
            assert not (printed and must_show), f"{path.name}: nothing shows this:\n{printed}"
            printed, must_show = "", language == "python"
            has_run = language in ("python", "sh") and (shell is not None or must_show)
            if language == "python":
                line = page.count("\n", 0, block.start("body"))
                printed = _run("\n" * line + body, path, namespace)
            elif language in FILES:
                name = FILES[language].match(body)[1] if FILES[language] else "CMakeLists.txt"
                Path(name).write_text(body)
            elif language == "sh" and shell:
                printed = stripped(shell(body))
            elif language == "console" and shell:
                body = in_console(body, shell)
        parts.append(f"{body}```\n")
    assert not (printed and must_show), f"{path.name}: nothing shows this:\n{printed}"
    return "".join(parts) + page[end:]


def runs(mark: str, path: Path) -> bool:
    """Does a block with this mark run here?"""
    kind, _, told = mark.partition(": ")
    assert kind in ("", "not run", "needs", "numbers vary"), f"{path.name}: what is '{mark}'?"
    if kind == "needs":
        return all(shutil.which(program) for program in told.split(", "))
    assert kind != "not run" or told, f"{path.name}: a block is not run, and nothing says why"
    return kind != "not run"


def in_console(body: str, shell: Shell) -> str:
    """A console's text with what its commands print now, where it shows anything of it."""
    parts = list[str]()
    for command in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, shown = COMMAND.match(command).groups()
        printed = stripped(shell(line))
        parts.append(f"$ {line}{printed if shown.strip() else shown}")
    return "".join(parts)


def alike(printed: str, shown: str) -> bool:
    """Are two outputs the same but for their numbers, what limits kernels, and aligning spaces?"""

    def form(text: str) -> list[str]:
        return LIMIT.sub("limit", NUMBER.sub("0", text)).split()

    return form(printed) == form(shown)


def stripped(text: str) -> str:
    """Lines without spaces at their ends; nothing if there are only such."""
    lines = [line.rstrip() for line in text.rstrip().split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""


def _run(source: str, path: Path, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, f"<{path.name}>", "exec"), namespace)  # no file of Python's
    return stripped(out.getvalue())
