"""A kernel of an artifact as assembly.

In: a loaded artifact. Out: the instructions of one of its kernels, as `objdump` (of LLVM or of
binutils) reads them. An artifact's code is a flat image without symbols; its manifest notes where
kernels start, and an object file of one section and one symbol is made of what lies there.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path

from tilewright.codegen.objects import ALLOCATED, EXECUTABLE, MACHINES, PROGBITS
from tilewright.runtime.artifact import CODE, list_sections
from tilewright.runtime.executor import Executable
from tilewright.support.errors import CompileError

TOOLS = ("llvm-objdump", "objdump")  # the first reads every machine's code
SYMBOLS, STRINGS = 2, 3  # kinds of sections
RELOCATABLE, GLOBAL_FUNCTION, HEADER, ENTRY = 1, 0x12, 64, 64


def disassemble(exe: Executable, name: str) -> str:
    """The assembly of the kernel called `name` ("k3" is enough) in the code that this machine runs.
    Raises CompileError where it cannot be told."""
    manifest = exe.manifest
    what = f"cannot show kernel '{name}' as assembly"
    names = list(dict.fromkeys(k.name for k in manifest.kernels))
    found = [k for k in names if name in (k, k.partition("_")[0])]
    if not found:
        raise CompileError(
            f"cannot show kernel '{name}'",
            "there is no such kernel",
            remedy=f"kernels: {', '.join(names)}",
        )
    noted = manifest.notes.get("code")
    if not noted:
        raise CompileError(
            what,
            "the artifact does not say where its kernels start",
            remedy="compile the model again with this version",
        )
    image = next(
        bytes(data)
        for kind, index, data in list_sections(exe.artifact())
        if (kind, index) == (CODE, exe.variant)
    )
    starts = noted[exe.variant]
    known = sorted({at for functions in starts.values() for at in functions})
    ends = dict(pairwise([*known, len(image)]))
    arch = manifest.notes["targets"][exe.variant].partition("-mtriple=")[2].partition("-")[0]
    parts = starts[found[0]]
    return "\n".join(
        _printed(image[at : ends[at]], arch, found[0] + f"_{n}" * (len(parts) > 1), what)
        for n, at in enumerate(parts)
    )


def _printed(code: bytes, arch: str, name: str, what: str) -> str:
    tool = next((found for word in TOOLS if (found := shutil.which(word))), None)
    if tool is None:
        raise CompileError(
            what,
            f"neither {' nor '.join(TOOLS)} is on the path",
            remedy="install LLVM or binutils, or inspect the model file: it is compiled again",
        )
    intel = ("-M", "intel") if arch == "x86_64" else ()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.o")
        file.write_bytes(_object(code, arch, name))
        done = subprocess.run(
            [tool, "-d", "--no-show-raw-insn", *intel, file], capture_output=True, text=True
        )
    _, sign, text = done.stdout.partition(f"<{name}>:\n")
    if done.returncode or not sign:
        why = f"{Path(tool).name} says: {done.stderr.strip() or 'nothing'}"
        raise CompileError(what, why, remedy=f"install llvm-objdump, which reads {arch}")
    return f"{name}:\n{text.rstrip()}\n"


def _object(code: bytes, arch: str, name: str) -> bytes:
    """An ELF file of one function."""
    machine = {word: number for number, word in MACHINES.items()}[arch]
    names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0"
    symbol = struct.pack("<IBBHQQ", 1, GLOBAL_FUNCTION, 0, 1, 0, len(code))
    contents = [code, bytes(24) + symbol, b"\0" + name.encode() + b"\0", names]
    kinds = [
        (".text", PROGBITS, ALLOCATED | EXECUTABLE, 0, 0, 64, 0),
        (".symtab", SYMBOLS, 0, 3, 1, 8, 24),
        (".strtab", STRINGS, 0, 0, 0, 1, 0),
        (".shstrtab", STRINGS, 0, 0, 0, 1, 0),
    ]
    body, table = bytes(HEADER), bytes(ENTRY)
    for (title, kind, flags, link, local, align, entry), content in zip(
        kinds, contents, strict=True
    ):
        body += bytes(-len(body) % align)
        at = names.index(title.encode() + b"\0")
        table += struct.pack(
            "<IIQQQQIIQQ", at, kind, flags, 0, len(body), len(content), link, local, align, entry
        )
        body += content
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", RELOCATABLE, machine, 1, 0, 0, len(body), 0,
        HEADER, 0, 0, ENTRY, 1 + len(kinds), len(kinds),
    )  # fmt: skip
    return header + body[HEADER:] + table
