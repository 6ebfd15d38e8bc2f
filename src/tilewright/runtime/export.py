"""A model for C programs: the runtime with the artifact inside, as a library or as C source.

In: an artifact's bytes. Out: a folder. A library, shared or static, lies in it as installed
software does (include/, lib/, pkg-config and CMake files, an example), so that it can be used where
it is, be copied to another prefix, and share one with other models. A C array is a source file and
its header, for any compiler of C11.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tilewright.runtime import abi, amalgamation
from tilewright.runtime import export_texts as texts
from tilewright.runtime.c_names import check_name, identifier, parameters
from tilewright.runtime.profile import evaluate
from tilewright.runtime.toolchain import Toolchain, find_toolchain
from tilewright.support.cache import replace_file
from tilewright.support.errors import CompileError
from tilewright.support.record import record
from tilewright.support.version import __version__

KINDS = ("library", "static", "c-array")
FLAGS = ["-std=c11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-pthread"]
WORDS_AT_ONCE = 1 << 16  # of a C array that are written as text
C_TYPES = {
    "f64": "double",
    "f32": "float",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "f16": "uint16_t",
    "bf16": "uint16_t",
}


@record
class Library:
    """What is asked for: a kind of `KINDS`, in a folder, under a name (None: the model's own)."""

    folder: Path
    kind: str = "library"
    name: str | None = None

    def check(self, triple: str = "") -> None:
        """Raise CompileError for what will not do for `triple` ("": this machine), before a model
        is compiled for it."""
        if self.kind not in KINDS:
            raise CompileError(
                f"cannot build a library of kind {self.kind!r}",
                "there is no such kind",
                remedy=f"the kinds are {', '.join(KINDS)}",
            )
        if self.name is not None:
            check_name(self.name)
        if self.kind != "c-array":
            find_toolchain(triple)
        with self._writing():
            there = next(f for f in [self.folder, *self.folder.absolute().parents] if f.exists())
            if not there.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(there))
            if not os.access(there, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "nothing may be written there", str(there))

    def write(self, artifact: memoryview, manifest: abi.Manifest, triple: str = "") -> Path:
        """Make the folder, if need be, and what is asked for in it; what was there under these
        names is replaced when all is made. Raises CompileError."""
        self.check(triple)
        name = self.name or identifier(manifest.name)
        words = {**_words(name, manifest), "size": str(artifact.nbytes)}
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.kind == "c-array":
                _write(self.folder / f"{name}.h", _text(texts.HEADER, words))
                _write_array(self.folder / f"{name}.c", words, artifact)
                words["build"] = f"cc -std=c11 -O2 -pthread example.c {name}.c -o example"
                _write(self.folder / "example.c", _text(texts.EXAMPLE, words))
            else:
                self._build(find_toolchain(triple), name, words, artifact)
        return self.folder

    def _build(
        self, tools: Toolchain, name: str, words: dict[str, str], artifact: memoryview
    ) -> None:
        is_static = self.kind == "static"
        file = f"lib{name}.a" if is_static else tools.shared(name)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=self.folder) as scratch:
            inside = Path(scratch)
            (inside / f"{name}.tw").write_bytes(artifact)
            _write(inside / f"{name}.h", _text(texts.HEADER, words))
            embedded = _text(texts.EMBED, words) + _text(texts.OPEN, words)
            _write(inside / f"{name}.c", _source(name) + embedded)
            _run([*tools.compiler, *FLAGS, "-c", f"{name}.c", "-o", f"{name}.o"], inside)
            if is_static:
                _run([*tools.archiver, "rcs", file, f"{name}.o"], inside)
            else:
                _run([*tools.compiler, *tools.linking(name), f"{name}.o", "-o", file], inside)
            include, lib = self.folder / "include", self.folder / "lib"
            cmake, data = lib / "cmake" / name, self.folder / "share" / name
            for made in (include, lib / "pkgconfig", cmake, data):
                made.mkdir(parents=True, exist_ok=True)
            os.replace(inside / f"{name}.h", include / f"{name}.h")
            os.replace(inside / file, lib / file)
        words |= {
            "file": file,
            "linkage": "STATIC" if is_static else "SHARED",
            "threads": " -pthread" if is_static else "",
            "libraries": "Threads::Threads" if is_static else "",
            "dependency": "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\n"
            if is_static
            else "",
            "build": f"cc -Iinclude share/{name}/example.c -Llib -l{name} "
            + ("-pthread" if is_static else "-Wl,-rpath,'$ORIGIN/lib'")
            + " -o example",
        }
        _write(data / "example.c", _text(texts.EXAMPLE, words))
        _write(lib / "pkgconfig" / f"{name}.pc", texts.PKG_CONFIG.substitute(words))
        _write(cmake / f"{name}Config.cmake", texts.CMAKE.substitute(words))
        _write(cmake / f"{name}ConfigVersion.cmake", texts.CMAKE_VERSION.substitute(words))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            why = f"{fault.strerror or fault}: {fault.filename}" if fault.filename else str(fault)
            raise CompileError(
                f"cannot write a library into '{self.folder}'", why, remedy="name another folder"
            ) from fault


def _run(command: list[str], folder: Path) -> None:
    """A command on files of `folder`, where no header of the system's is looked for."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except OSError as fault:
        why = f"'{command[0]}' cannot be run: {fault.strerror}"
        raise CompileError("cannot build a library", why, remedy="pip install ziglang") from fault
    if done.returncode:
        told = f"'{command[0]}' failed:\n{done.stderr or done.stdout}"
        raise CompileError("cannot build a library", told)


def _write(path: Path, text: str) -> None:
    with replace_file(path) as file:
        file.write(text.encode())


def _source(name: str) -> str:
    """The source file of a model, before what it embeds; it checks its own header."""
    opening = f"/* {name}.c: a model and all that it runs with. C11; link with -pthread. */\n"
    feature = "#define _GNU_SOURCE\n"  # before the first of the system's headers
    return f'{opening}{feature}#include "{name}.h"\n\n{amalgamation.source(name)}'


def _write_array(path: Path, words: dict[str, str], artifact: memoryview) -> None:
    """A source file with the artifact as 64-bit words: fewer tokens than bytes would be."""
    data = np.frombuffer(artifact, np.uint8)
    with replace_file(path) as file:
        file.write(_source(words["name"]).encode())
        file.write(b"\nstatic const _Alignas(64) uint64_t embedded[] = {\n")
        _write_words(file, data)
        file.write(b"};\n#define EMBEDDED embedded\n")
        file.write(_text(texts.OPEN, words).encode())


def _write_words(file: BinaryIO, data: np.ndarray) -> None:
    """Little-endian words, eight a line, the last one filled up with zeros."""
    whole = data.nbytes // 8 * 8
    padded = np.zeros(8, np.uint8)
    padded[: data.nbytes - whole] = data[whole:]
    for words in (data[:whole].view("<u8"), padded.view("<u8")):
        for at in range(0, len(words), WORDS_AT_ONCE):
            told = [f"{word:#x}," for word in words[at : at + WORDS_AT_ONCE].tolist()]
            lines = ("".join(told[i : i + 8]) for i in range(0, len(told), 8))
            file.write("\n".join(lines).encode() + b"\n")


# ---- What the texts say ------------------------------------------------------------------------


def _text(template: texts.Template, words: dict[str, str]) -> str:
    """A template in C, with the model's names and words."""
    named = texts.Template(amalgamation.renamed(template.template, words["name"]))
    return named.substitute(words)


def _words(name: str, manifest: abi.Manifest) -> dict[str, str]:
    least = {s.name: max(1, s.minimum) for s in manifest.symbols}
    shapes = [[str(evaluate(d, least)) for d in t.shape or (0,)] for t in manifest.inputs]
    listed = [
        f" *   {what} {i}  {_comment(str(tensor))}"
        for what, tensors in (("input ", manifest.inputs), ("output", manifest.outputs))
        for i, tensor in enumerate(tensors)
    ]
    title = _comment(manifest.name)
    return {
        "name": name,
        "title": title,
        "plain": re.sub(r"[^\w .,:+-]", "_", title),
        "version": __version__,
        "listing": "\n".join(listed),
        "inputs": str(len(manifest.inputs)),
        "outputs": str(len(manifest.outputs)),
        "dims": ", ".join("{" + ", ".join(shape) + "}" for shape in shapes) or "{0}",
        "types": amalgamation.types(),
        "functions": amalgamation.functions(name),
        "call": _call(name, manifest),
    }


def _call(name: str, manifest: abi.Manifest) -> str:
    """A function that takes plain arrays, where each size is a number or a symbol of the inputs."""
    tensors = [*manifest.inputs, *manifest.outputs]
    given = {d for t in manifest.inputs for d in t.shape if isinstance(d, str)}
    symbols = [s.name for s in manifest.symbols if not s.data_dependent]
    if not given.issuperset(symbols) or not all(
        isinstance(d, int) or d in symbols for t in tensors for d in t.shape
    ):
        return ""
    taken = ["session", "inputs", "outputs", *(f"shape_{i}" for i in range(len(tensors)))]
    words = parameters([*symbols, *(t.name for t in tensors)], taken)
    of_symbol, of_tensor = dict(zip(symbols, words, strict=False)), words[len(symbols) :]
    arguments = [f"int64_t {of_symbol[s]}" for s in symbols]
    shapes: list[str] = []
    records: list[str] = []
    for i, (tensor, word) in enumerate(zip(tensors, of_tensor, strict=True)):
        const = "const " if i < len(manifest.inputs) else ""
        arguments.append(f"{const}{C_TYPES.get(tensor.dtype, 'uint8_t')} *{word}")
        dims = [str(d) if isinstance(d, int) else of_symbol[d] for d in tensor.shape]
        shapes.append(f"    const int64_t shape_{i}[] = {{{', '.join(dims) or '0'}}};")
        code = f"TW_{tensor.dtype.upper()}"
        records.append(f"{{(void *){word}, shape_{i}, {len(dims)}, {code}}}")
    count = len(manifest.inputs)
    return _text(
        texts.CALL,
        {
            "name": name,
            "arguments": "".join(f", {a}" for a in arguments),
            "shapes": "\n".join(shapes),
            "inputs": ", ".join(records[:count]) or "{0, 0, 0, 0}",
            "outputs": ", ".join(records[count:]) or "{0, 0, 0, 0}",
        },
    )


def _comment(text: str) -> str:
    """Text that cannot end a C comment or a line of it."""
    return " ".join(text.replace("*/", "* /").replace("/*", "/ *").split())
