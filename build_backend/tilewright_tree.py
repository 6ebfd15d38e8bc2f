"""The source tree of the distribution `tilewright-runtime`, out of that of `tilewright`.

In: the tree. Out: another one, which builds with the same backend and has the package
`tilewright_runtime`: the rooms `runtime` and, of `support`, what they import, file by file, with
`tilewright.` in front of the rooms replaced. The package has a name of its own so that neither
distribution ever overwrites or removes a file of the other (docs/decisions/070).
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "tilewright_runtime"
ROOMS = ("runtime", "support")
ELSEWHERE = rf"tilewright(?!\.(?:{'|'.join(ROOMS)})\b)[\w.]*"  # what the runtime does not have
CHANGES = (  # of each file's text, in order
    (
        r"Tilewright, a deep-learning compiler\.",
        "Tilewright's runtime alone: runs compiled models.",
    ),
    (rf"^ +from {ELSEWHERE} import .*\n", ""),
    (rf'^ *"\w+": "{ELSEWHERE}",\n', ""),
    (rf'"\w+": "{ELSEWHERE}"', ""),
    (rf"\btilewright\.(?={'|'.join(ROOMS)})", f"{PACKAGE}."),
    (r"\btilewright\[", "tilewright-runtime["),
    (r"module 'tilewright'", f"module '{PACKAGE}'"),
)


def write_tree(root: Path, out: Path) -> None:
    """Write the runtime's source tree into the folder `out`."""
    package = root / "src" / "tilewright"
    own = root / "build_backend" / "runtime"
    for name in ("pyproject.toml", "README.md", "MANIFEST.in"):
        shutil.copyfile(own / name, out / name)
    shutil.copyfile(root / "LICENSE", out / "LICENSE")
    (out / "build_backend").mkdir()
    for file in (root / "build_backend").glob("*.py"):
        shutil.copyfile(file, out / "build_backend" / file.name)
    for file in sorted(_files(package)):
        target = out / "src" / PACKAGE / file.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(renamed(file) if file.suffix == ".py" else file.read_bytes())


def renamed(file: Path) -> bytes:
    """A module's text, importing from the runtime's package."""
    text = file.read_text(encoding="utf-8")
    for pattern, into in CHANGES:
        text = re.sub(pattern, into, text, flags=re.MULTILINE)
    return text.encode()


def _files(package: Path) -> Iterator[Path]:
    """The package's own files, the room `runtime`, and what it imports of `support`."""
    yield from (package / "__init__.py", package / "py.typed")
    native = package / "runtime" / "native"
    yield from (*native.glob("*.c"), *native.glob("*.h"))
    waiting = [*(package / "runtime").rglob("*.py"), package / "support" / "version.py"]
    seen: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in seen and file.is_file():
            seen.add(file)
            waiting += (package.parent / f"{m.replace('.', '/')}.py" for m in _imports(file))
            waiting.append(file.parent / "__init__.py")
    yield from seen


def _imports(file: Path) -> Iterator[str]:
    """The modules that a file may import, also those that are named after `import`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
