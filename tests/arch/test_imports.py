"""The rooms' one-way imports: a package imports only packages above it; nothing hides an import."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "tilewright"

# Each room may import those before it.
ROOMS = (
    "support",
    "runtime",
    "ir",
    "arith",
    "te",
    "target",
    "schedule",
    "lower",
    "codegen",
    "strategy",
    "backend",
    "graph",
    "tune",
    "frontend",
    "driver",
)
# Side by side: neither imports the other.
APART = ({"schedule", "lower"}, {"graph", "tune"}, {"graph", "backend"}, {"graph", "strategy"})


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    module: str  # as written, with the imported name where that may be a module
    inside_function: bool

    @property
    def room(self) -> str:
        return self.file.relative_to(ROOT).parts[0]

    @property
    def target(self) -> str:
        """The room that is imported, or "" for other packages and the root."""
        parts = self.module.split(".")
        return parts[1] if parts[0] == "tilewright" and len(parts) > 1 else ""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT.parent)}:{self.line} imports {self.module}"


def called(call: ast.Call) -> str:
    """The last word of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def imports_in(file: Path) -> Iterator[Import]:
    def walk(node: ast.AST, function: bool) -> Iterator[Import]:
        for n in ast.iter_child_nodes(node):
            if isinstance(n, ast.Import):
                for name in n.names:
                    yield Import(file, n.lineno, name.name, function)
            elif isinstance(n, ast.ImportFrom):
                module = "." * n.level + (n.module or "")
                for name in n.names:
                    yield Import(file, n.lineno, f"{module}.{name.name}", function)
            elif isinstance(n, ast.Call) and called(n) == "import_module":
                if isinstance(n.args[0], ast.Constant):
                    yield Import(file, n.lineno, str(n.args[0].value), function)
            is_function = isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(n, function or is_function)

    yield from walk(ast.parse(file.read_text()), False)


FILES = sorted(f for room in ROOMS for f in (ROOT / room).rglob("*.py"))


@functools.cache  # seconds, which collecting does not wait for
def imports() -> tuple[Import, ...]:
    return tuple(i for f in FILES for i in imports_in(f))


def refused(faults: list[Import]) -> None:
    assert not faults, "\n".join(map(str, faults))


def test_every_package_is_a_room() -> None:
    packages = {p.parent.name for p in ROOT.glob("*/*.py")}
    assert packages <= set(ROOMS), packages - set(ROOMS)


def test_a_room_imports_only_rooms_above_it() -> None:
    def is_fault(i: Import) -> bool:
        if i.target not in ROOMS:
            return False
        return ROOMS.index(i.target) > ROOMS.index(i.room) or {i.room, i.target} in APART

    refused([i for i in imports() if is_fault(i)])


def test_the_root_is_imported_by_no_room() -> None:
    """`from tilewright import te` imports the room te."""
    refused(
        [i for i in imports() if i.module.split(".")[0] == "tilewright" and i.target not in ROOMS]
    )


def test_imports_are_absolute() -> None:
    refused([i for i in imports() if i.module.startswith(".")])


LATER = {  # for a few: what asks installed packages, starts C compilers, is shown by notebooks
    "tilewright.graph.plugins.discover",
    "tilewright.runtime.export",
    "tilewright.runtime.representation.executable_html",
    "tilewright.runtime.representation.profile_html",
    "tilewright.target.feature_names",  # of hundreds of features, and of names like them
    "difflib",
}


def test_only_optional_third_parties_are_imported_inside_functions() -> None:
    always = {*sys.stdlib_module_names, "tilewright", "numpy"}
    refused(
        [
            i
            for i in imports()
            if i.inside_function
            and i.room != "driver"
            and i.module.split(".")[0] in always
            and i.module not in LATER
        ]
    )


def test_no_module_imports_itself_in_a_circle() -> None:
    """Imports for type checkers and inside functions count: a circle of what files know is one,
    whenever it is closed."""
    files = {_module(f): f for f in FILES}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for i in imports():
        parent = i.module.rpartition(".")[0]
        graph[_module(i.file)].add(i.module if i.module in files else parent)
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in sorted(graph[name] & set(files) - {name}):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def _module(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def rooms(modules: set[str]) -> set[str]:
    return {m.split(".")[1] for m in modules if m.startswith("tilewright.")}


def test_importing_tilewright_loads_no_room_and_no_other_package() -> None:
    loaded = loaded_by("import tilewright")
    assert not rooms(loaded)
    assert not loaded & {"llvmlite", "numpy", "onnx", "torch"}


def test_importing_the_runtime_loads_no_compiler() -> None:
    loaded = loaded_by("import tilewright.runtime.executor")
    assert rooms(loaded) <= {"support", "runtime"}
    assert not loaded & {"llvmlite", "ml_dtypes", "onnx", "torch", "typer"}


def test_importing_the_compiler_inspects_and_compiles_little() -> None:
    """Both take longer than most of its modules; what is seldom needed waits until it is."""
    code = (
        "import inspect, numpy, sys\n"
        "seen = []\n"
        "inspect.signature = lambda f: seen.append(f)\n"
        "import tilewright.driver.compile, tilewright.backend.cpu\n"
        "import tilewright.strategy.cpu.families\n"
        "from tilewright.arith import rules\n"
        "assert len(seen) < 5, seen\n"
        "assert len(rules._COMPILED) < 10, list(rules._COMPILED)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_compiler_brings_no_modules_for_what_is_seldom_told() -> None:
    code = "import numpy, sys\nbefore = set(sys.modules)"
    modules = "driver.compile", "frontend.onnx", "backend.cpu", "strategy.cpu.families"
    code += "".join(f"\nimport tilewright.{name}" for name in modules)
    loaded = loaded_by(f"{code}\nfor name in before: sys.modules.pop(name, None)")
    assert "tilewright.codegen.llvm_compile" in loaded
    assert not loaded & {"tempfile", "random", "traceback", "signal"}
    assert not loaded & {"llvmlite.binding", "ml_dtypes"}  # 20 ms and 5


def test_compiling_for_processors_loads_no_other_backend() -> None:
    code = "from tilewright.backend.backend import backend_of\nbackend_of('cpu').strategies"
    loaded = loaded_by(code)
    assert "tilewright.backend.cpu" in loaded
    assert not loaded & {"tilewright.backend.gpu", "tilewright.codegen.csource"}


def test_finding_a_compiled_model_starts_no_executors_and_no_compilers() -> None:
    code = "import numpy, sys\nbefore = set(sys.modules)\nimport tilewright.driver.entry"
    loaded = loaded_by(f"{code}\nfor name in before: sys.modules.pop(name, None)")
    assert not loaded & {"concurrent.futures", "logging", "subprocess", "tempfile", "platform"}


def test_the_rooms_above_codegen_do_without_llvm() -> None:
    above = ROOMS[: ROOMS.index("codegen")]
    files = [f for f in FILES if f.relative_to(ROOT).parts[0] in above]
    loaded = loaded_by("\n".join(f"import {_module(f)}" for f in files))
    assert rooms(loaded) == set(above)
    assert not loaded & {"llvmlite", "onnx", "torch"}
