"""What processor names mean: instruction-set features, vector registers, and what this machine is.

In: LLVM's processor name and triple. Out: the features that generated code may use, among those
this project knows to use. LLVM's own tables cannot be asked through llvmlite: what matters is here.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path

from tilewright.support.cache import Cache, make_key
from tilewright.support.llvm import release, says

_V1 = "sse sse2"
_V2 = _V1 + " sse3 ssse3 sse4.1 sse4.2 popcnt"
_V3 = _V2 + " avx avx2 fma f16c bmi bmi2 lzcnt movbe"
_V4 = _V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"
_ICELAKE = _V4 + " avx512vnni avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq"
_SAPPHIRE = _ICELAKE + " avx512bf16 avx512fp16 avxvnni amx-tile amx-int8 amx-bf16"
_ZEN4 = _ICELAKE + " avx512bf16"
_A76 = "neon fullfp16 dotprod lse"
_V1_NEOVERSE = _A76 + " bf16 i8mm sve"

X86 = {
    "x86-64": _V1,
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "nehalem": _V2,
    "sandybridge": _V2 + " avx",
    "ivybridge": _V2 + " avx f16c",
    "haswell": _V3,
    "broadwell": _V3,
    "skylake": _V3,
    "skylake-avx512": _V4,
    "cascadelake": _V4 + " avx512vnni",
    "cooperlake": _V4 + " avx512vnni avx512bf16",
    "icelake-client": _ICELAKE,
    "icelake-server": _ICELAKE,
    "tigerlake": _ICELAKE,
    "rocketlake": _ICELAKE,
    "alderlake": _V3 + " avxvnni",
    "sapphirerapids": _SAPPHIRE,
    "emeraldrapids": _SAPPHIRE,
    "graniterapids": _SAPPHIRE + " amx-fp16",
    "znver1": _V3,
    "znver2": _V3,
    "znver3": _V3,
    "znver4": _ZEN4,
    "znver5": _ZEN4 + " avxvnni",
}
AARCH64 = {
    "generic": "neon",
    "cortex-a53": "neon",
    "cortex-a57": "neon",
    "cortex-a72": "neon",
    "cortex-a76": _A76,
    "cortex-a78": _A76,
    "cortex-x1": _A76,
    "neoverse-n1": _A76,
    "neoverse-v1": _V1_NEOVERSE,
    "neoverse-n2": _V1_NEOVERSE + " sve2",
    "neoverse-v2": _V1_NEOVERSE + " sve2",
    "apple-m1": _A76,
    "apple-m2": _A76 + " bf16 i8mm",
    "apple-m3": _A76 + " bf16 i8mm",
    "apple-m4": _A76 + " bf16 i8mm",
}
ARM = {"generic": "", "cortex-a7": "neon", "cortex-a9": "neon", "cortex-a15": "neon"}
RISCV = {"generic-rv64": "m a f d c", "sifive-u74": "m a f d c", "sifive-x280": "m a f d c v"}
WASM = {"generic": "", "bleeding-edge": "simd128"}

# architecture → (its processors, the one that runs everywhere, the triple to assume)
ARCHITECTURES = {
    "x86_64": (X86, "x86-64", "x86_64-unknown-linux-gnu"),
    "aarch64": (AARCH64, "generic", "aarch64-unknown-linux-gnu"),
    "arm": (ARM, "generic", "armv7-unknown-linux-gnueabihf"),
    "riscv64": (RISCV, "generic-rv64", "riscv64-unknown-linux-gnu"),
    "wasm32": (WASM, "generic", "wasm32-unknown-unknown"),
}
# the first feature that the machine has decides: bytes of a vector, number of vector registers
VECTORS = (("avx512f", 64, 32), ("avx", 32, 16), ("sse", 16, 16), ("neon", 16, 32), ("v", 16, 32),
           ("simd128", 16, 16))  # fmt: skip
# Those that multiply and add one vector of 64 bytes a cycle; others do two of any width.
ONE_WIDE_PORT = frozenset({"icelake-client", "tigerlake", "rocketlake", "znver4"})
KNOWN_FEATURES = frozenset(
    f for table, *_ in ARCHITECTURES.values() for row in table.values() for f in row.split()
)


def architecture(triple: str) -> str:
    """The architecture of a triple, in the spelling of `ARCHITECTURES`; "" if it is not known."""
    first = triple.split("-")[0]
    first = {"amd64": "x86_64", "arm64": "aarch64", "AMD64": "x86_64"}.get(first, first)
    return "arm" if first.startswith("arm") else first if first in ARCHITECTURES else ""


def is_linked(triple: str) -> bool:
    """Whether whole models can be compiled for a triple: their code is linked from ELF objects of
    x86-64 and AArch64 (`codegen.link`). Systems with objects of their own have those by default."""
    words = triple.lower().split("-")[1:]
    others = ("darwin", "macos", "ios", "windows", "win32", "cygwin", "mingw", "uefi")
    is_elf = words[-1:] == ["elf"] or not any(word.startswith(others) for word in words)
    return architecture(triple) in ("x86_64", "aarch64") and is_elf


def features(cpu: str, triple: str) -> frozenset[str] | None:
    """The features that a processor's name stands for, or None if the name is not known."""
    table = ARCHITECTURES.get(architecture(triple), ({}, "", ""))[0]
    return frozenset(table[cpu].split()) if cpu in table else None


@functools.cache
def known_features(architecture: str) -> frozenset[str]:
    """The features that processors of an architecture have in these tables."""
    table = ARCHITECTURES.get(architecture, ({}, "", ""))[0]
    return frozenset(f for row in table.values() for f in row.split())


def generic(triple: str) -> str:
    """The processor that stands for every machine of the triple."""
    return ARCHITECTURES.get(architecture(triple), ({}, "generic", ""))[1]


def triple_of(cpu: str) -> str:
    """The triple to assume for a processor named without one; "" if the name is not known."""
    for table, _, triple in ARCHITECTURES.values():
        if cpu in table:
            return triple
    return ""


def vectors(have: frozenset[str]) -> tuple[int, int]:
    """Bytes of a vector register and how many there are; (0, 0) without vectors."""
    for feature, width, registers in VECTORS:
        if feature in have:
            return width, registers
    return 0, 0


def as_linux(triple: str) -> str:
    """The triple of Linux on the same architecture: code calls nothing of a system and is called as
    on Linux on each of them, so that what is compiled on one runs on all, and objects are ELF."""
    if "linux" in triple or not architecture(triple):
        return triple
    return ARCHITECTURES[architecture(triple)][2]


_memory: list[tuple[Cache, Callable[[], str]]] = []  # see `remember_host`


def remember_host(memory: Cache, machine: Callable[[], str]) -> None:
    """Let `host` take from `memory` what LLVM said of this machine to an earlier process, or leave
    it there. machine: gives what tells this processor from all others."""
    _memory[:] = [(memory, machine)]


def _asked() -> tuple[str, str, str]:
    """What LLVM says of this machine: its triple, its processor's name, features on and off."""
    return (
        says("LLVMPY_GetDefaultTargetTriple"),
        says("LLVMPY_GetHostCPUName"),
        says("LLVMPY_GetHostCPUFeatures"),
    )


def _told() -> tuple[str, str, str]:
    """As `_asked`, from the memory if it knows: loading LLVM takes a third of a Python's start."""
    if not _memory:
        return _asked()
    ((memory, machine),) = _memory
    key = make_key("host", machine(), release())
    known = memory.fetch_bytes(key)
    if known is not None:
        triple, cpu, features = json.loads(known)
        return triple, cpu, features
    told = _asked()
    memory.store_bytes(key, json.dumps(told).encode())
    return told


@functools.lru_cache(maxsize=1)
def host() -> tuple[str, str, frozenset[str]]:
    """This machine: LLVM's processor name, its triple, its features. Loads LLVM, unless an earlier
    process left what it says (`remember_host`)."""
    triple, cpu, told_on = _told()
    triple = as_linux(triple)
    have = frozenset(f[1:] for f in told_on.split(",") if f.startswith("+")) & KNOWN_FEATURES
    told = features(cpu, triple)
    if told is None:  # newer than our table: say what it has, under the name that runs everywhere
        cpu = generic(triple)
    if not have:  # LLVM cannot detect features here: trust the name
        have = features(cpu, triple) or frozenset()
    return cpu, triple, have


@functools.lru_cache(maxsize=1)
def host_caches() -> tuple[tuple[int, int, int], ...]:
    """This machine's data caches, innermost first: (bytes, bytes of a line, cores sharing it)."""
    found: dict[int, tuple[int, int, int]] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            told = {k: (index / k).read_text().strip() for k in
                    ("level", "type", "size", "coherency_line_size", "shared_cpu_map")}  # fmt: skip
            if told["type"] != "Instruction":
                sharers = bin(int(told["shared_cpu_map"].replace(",", ""), 16)).count("1")
                size = int(told["size"].rstrip("K")) << 10
                found[int(told["level"])] = (
                    size,
                    int(told["coherency_line_size"]),
                    max(1, sharers),
                )
        except (OSError, ValueError):
            continue
    return tuple(found[level] for level in sorted(found)) or DEFAULT_CACHES


DEFAULT_CACHES = ((32 << 10, 64, 1), (1 << 20, 64, 1), (16 << 20, 64, 8))


def host_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
