"""Machine descriptions, written and read as one line of text.

In: a line such as "cpu", "cpu -mcpu=haswell -cores=4" or "cuda -arch=sm_90". Out: a frozen `Target`
with everything a strategy or a code generator asks about a machine. The one idea: a kind of machine
is a function from options to a description, and the description prints as the line that gives it
back, so that caches, artifacts and tuning records can carry a machine as text.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.support.errors import CompileError
from tilewright.support.record import record
from tilewright.target import calibration, costs, processors
from tilewright.target.costs import COMMON, Costs


@record
class Cache:
    """One level of data cache: bytes in all, bytes of a line, how many cores share it."""

    size: int
    line: int = 64
    shared_by: int = 1


@record
class Scope:
    """A memory scope: its name in the IR, its bytes (0: no limit), the alignment of its buffers."""

    name: str
    size: int = 0
    align: int = 64


@record
class ThreadLimits:
    """The thread hierarchy: most threads of a block, of each axis, lanes that run in step, and most
    blocks along each axis."""

    block: int
    axes: tuple[int, int, int]
    warp: int
    grid: tuple[int, int, int]


MASKED = frozenset({"avx512f", "sve", "v"})  # features of machines with registers of masks


@record
class Target:
    """A machine. `target(str(t)) == t`: the line says everything that detection found."""

    kind: str  # one of KINDS
    options: tuple[tuple[str, str], ...] = ()  # sorted; what the line says after the kind
    triple: str = ""  # LLVM's target triple; "" where LLVM does not generate the code
    cpu: str = ""  # LLVM's processor name
    features: frozenset[str] = frozenset()  # instruction-set features, LLVM's names
    lacks: frozenset[str] = frozenset()  # features that `cpu` stands for and this machine has not
    vector_bytes: int = 0  # bytes of a vector register; 0 without vectors
    vector_registers: int = 0
    cores: int = 1
    caches: tuple[Cache, ...] = ()  # from the core outwards
    scopes: tuple[Scope, ...] = (Scope("global"), Scope("local"))
    threads: ThreadLimits | None = None  # None: no thread axes
    costs: Costs = COMMON  # what the strategies' analytic model counts with

    def __str__(self) -> str:
        return _line(self.kind, dict(self.options))

    @property
    def processor(self) -> str:
        """The line without what may change from one run to another on the same machine: how many
        cores there are to use, and what was calibrated."""
        kept = {k: v for k, v in self.options if k not in ("cores", "costs")}
        return _line(self.kind, kept)

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register (1 where there are no vectors)."""
        return max(1, self.vector_bytes * 8 // bits)

    def cache(self, level: int) -> Cache:
        """A core's data cache, the nearest being level 0; the last one where there are fewer."""
        return self.caches[min(level, len(self.caches) - 1)]

    def has(self, *features: str) -> bool:
        """Whether the machine has all the features named."""
        return self.features.issuperset(features)

    @property
    def has_masks(self) -> bool:
        """Whether a vector with some lanes off costs what a whole one does: where masks are plain
        vectors, or branches, a store of some lanes takes a dozen cycles."""
        return self.kind != "cpu" or self.has_mask_registers

    @property
    def has_mask_registers(self) -> bool:
        """Whether a processor reads and writes some lanes of a vector in no more time than all."""
        return self.kind == "cpu" and not self.features.isdisjoint(MASKED)

    @property
    def has_masked_reads(self) -> bool:
        """Whether a processor reads some lanes of a vector, and zeros for the others, at once."""
        return self.kind == "cpu" and not self.features.isdisjoint(MASKED | {"avx"})

    def scope(self, name: str) -> Scope:
        """The memory scope called `name`. Raises CompileError with the known ones."""
        for scope in self.scopes:
            if scope.name == name:
                return scope
        known = ", ".join(s.name for s in self.scopes)
        raise CompileError(
            f"cannot use scope '{name}'",
            f"{self.kind} has no such memory",
            remedy=f"it has: {known}",
        )

    @property
    def is_translated_again(self) -> bool:
        """Whether another compiler makes machine code of what LLVM writes, as of PTX."""
        return self.triple.startswith("nvptx")

    @property
    def llvm_features(self) -> str:
        """The features as LLVM's comma-separated list; of processors, whose names are LLVM's. The
        systems of AArch64 that are no Linux keep a register for themselves: no code uses it."""
        if self.kind != "cpu":
            return ""
        kept = ["+reserve-x18"] if processors.architecture(self.triple) == "aarch64" else []
        known = [f"+{f}" for f in sorted(self.features)] + [f"-{f}" for f in sorted(self.lacks)]
        return ",".join(known + kept)


def target(text: str | Target = "cpu") -> Target:
    """The machine that a line of text describes.

    Args:
        text: a kind, then options `-key=value`, as in `cpu -mcpu=haswell -cores=4`; `cpu` alone is
            this machine. `tilewright targets` lists kinds and options.

    Raises:
        CompileError: it names the word at fault, and what is known instead.
    """
    if isinstance(text, Target):
        return text
    if not isinstance(text, str):
        why = f"{type(text).__name__} is no description of a machine"
        raise _fault(type(text).__name__, why, 'it is a text, such as "cpu -mcpu=znver4"')
    return _read(text)


@functools.lru_cache(maxsize=256)
def _read(text: str) -> Target:
    kind, *words = text.split() or [""]
    if kind not in KINDS:
        raise _fault(text, f"there is no kind of machine '{kind}'", f"known: {', '.join(KINDS)}")
    known = KINDS[kind].options
    options: dict[str, str] = {}
    for word in words:
        key, _, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not value:
            raise _fault(
                text, f"'{word}' is not of the form -key=value", 'as in "cpu -mcpu=haswell"'
            )
        if key not in known:
            told = ", ".join(f"-{k}" for k in known) or "none"
            raise _fault(text, f"'{kind}' has no option '-{key}'", f"its options: {told}")
        options[key] = value
    return KINDS[kind].describe(text, kind, options)


def _line(kind: str, options: dict[str, str]) -> str:
    return " ".join([kind, *(f"-{key}={options[key]}" for key in sorted(options))])


def keep_costs(machine: Target, found: Mapping[str, float] | None) -> Path | None:
    """Let "cpu" be the machine with these constants from now on, in this process and in others;
    None: with those of a machine that nobody calibrated. Gives the file, None where none could be
    written."""
    path = None
    if found is None:
        calibration.forget(machine.processor)
    else:
        path = calibration.keep(machine.processor, found)
    _read.cache_clear()
    return path


def _fault(text: str, why: str, remedy: str) -> CompileError:
    return CompileError(f"cannot read target '{text}'", why, remedy=remedy)


def _number(text: str, options: dict[str, str], key: str, default: int) -> int:
    """A positive whole number among the options; `default` if it is not said."""
    value = options.get(key, str(default))
    if not value.isdecimal() or (int(value) < 1 and key in options):
        raise _fault(text, f"-{key}={value} is not a positive whole number", f"write -{key}=4")
    return int(value)


def _cpu(text: str, kind: str, options: dict[str, str]) -> Target:
    """A processor that LLVM knows: this machine unless a name or a triple is given.

    `-costs=loads:0.9,…` gives constants of the model, `-costs=default` those of machines that
    nobody calibrated; without it, this machine has what was calibrated of it.
    """
    is_here = "mcpu" not in options and "mtriple" not in options
    if not is_here:
        triple = options.get("mtriple") or processors.triple_of(options["mcpu"])
        cpu = options.get("mcpu") or processors.generic(triple)
        have, cores, caches = processors.features(cpu, triple), 1, processors.DEFAULT_CACHES
        if have is None:
            raise _fault(
                text,
                f"processor '{cpu}' is not known" + (f" for {triple}" if triple else ""),
                "name one that is and add what it lacks: -mcpu=x86-64-v3 -mattr=+avx512f",
            )
    else:
        cpu, triple, have = processors.host()
        cores, caches = processors.host_cores(), processors.host_caches()
    named = processors.features(cpu, triple) or frozenset()
    words = [word for word in options.get("mattr", "").split(",") if word]
    _check_features(text, triple, [word.lstrip("+-") for word in words])
    have = have - {w[1:] for w in words if w[0] == "-"} | {
        w.lstrip("+") for w in words if w[0] != "-"
    }
    differs = [f"+{f}" for f in sorted(have - named)] + [f"-{f}" for f in sorted(named - have)]
    width, registers = processors.vectors(have)
    if "caches" in options:
        caches = _read_caches(text, options["caches"])
    cores = _number(text, options, "cores", cores)
    said = {"mcpu": cpu, "mtriple": triple, "caches": _write_caches(caches)}
    if differs:
        said["mattr"] = ",".join(differs)
    if "vector" in options:
        width = _number(text, options, "vector", width)
        said["vector"] = str(width)
    default = own = costs.default(cpu, width)
    if is_here and "costs" not in options:
        own = costs.changed(default, calibration.fetch(_line(kind, said)) or {})
    elif options.get("costs", "default") != "default":
        own = _read_costs(text, default, options["costs"])
    if own != default:
        said["costs"] = costs.written(own, default)
    said["cores"] = str(cores)
    return Target(
        kind=kind,
        options=tuple(sorted(said.items())),
        triple=triple,
        cpu=cpu,
        features=have,
        lacks=named - have,
        vector_bytes=width,
        vector_registers=registers,
        cores=cores,
        caches=tuple(Cache(*c) for c in caches),
        costs=own,
    )


def _check_features(text: str, triple: str, names: Sequence[str]) -> None:
    """Refuse what LLVM has no name for: it would print a warning, and make code without it."""
    architecture = processors.architecture(triple)
    if processors.known_features(architecture).issuperset(names) or not architecture:
        return
    known = importlib.import_module("tilewright.target.feature_names").NAMES[architecture]
    for name in names:
        if name not in known:
            near = importlib.import_module("difflib").get_close_matches(name, sorted(known))
            raise _fault(
                text,
                f"there is no feature '{name}' of {architecture}",
                f"near it: {', '.join(near)}" if near else "LLVM's names, as in -mattr=+avx2,-fma",
            )


def _read_costs(text: str, default: Costs, told: str) -> Costs:
    try:
        return costs.read(default, told)
    except ValueError as fault:
        remedy = "write name:number, as in loads:1.5, or default"
        raise _fault(text, str(fault), remedy) from fault


def _write_caches(caches: tuple[tuple[int, int, int], ...]) -> str:
    """Caches as text: bytes:line:cores, from the core outwards."""
    return ",".join(":".join(str(n) for n in cache) for cache in caches)


def _read_caches(text: str, written: str) -> tuple[tuple[int, int, int], ...]:
    caches: list[tuple[int, int, int]] = []
    for word in written.split(","):
        numbers = word.split(":")
        if len(numbers) != 3 or not all(n.isdecimal() and int(n) > 0 for n in numbers):
            raise _fault(
                text, f"'{word}' is not a cache", "write bytes:line:cores, as in 32768:64:1"
            )
        caches.append((int(numbers[0]), int(numbers[1]), int(numbers[2])))
    return tuple(caches)


def _c(text: str, kind: str, options: dict[str, str]) -> Target:
    """Plain C99 for any compiler: no vectors are assumed."""
    cores = _number(text, options, "cores", 1)
    caches = tuple(Cache(*c) for c in processors.DEFAULT_CACHES)
    return Target(kind, tuple(sorted(options.items())), cores=cores, caches=caches)


# the accelerator's on-chip memories, in bytes
ACCEL_SCOPES = (
    Scope("global"),
    Scope("accel.input", 32 << 10, 16),
    Scope("accel.weight", 64 << 10, 16),
    Scope("accel.acc", 64 << 10, 16),
)

# kinds of GPU: (shared memory in bytes, threads of a block, threads along each axis, lanes in step,
# blocks along each axis)
_MANY = (1 << 31) - 1
_GPUS = {
    "opencl": (32 << 10, 256, (256, 256, 256), 1, (_MANY, _MANY, _MANY)),
    "metal": (32 << 10, 1024, (1024, 1024, 1024), 32, (_MANY, _MANY, _MANY)),
    "cuda": (48 << 10, 1024, (1024, 1024, 64), 32, (_MANY, 65535, 65535)),
}
# CUDA: shared memory that a block may ask for, by compute capability
_CUDA_SHARED = {
    "sm_70": 96,
    "sm_75": 64,
    "sm_80": 163,
    "sm_86": 99,
    "sm_89": 99,
    "sm_90": 227,
    "sm_100": 227,
}


def _gpu(text: str, kind: str, options: dict[str, str]) -> Target:
    """A GPU: blocks of threads that share on-chip memory."""
    shared, block, axes, warp, grid = _GPUS[kind]
    features: set[str] = set()
    triple = cpu = ""
    if kind == "cuda":
        cpu = options.setdefault("arch", "sm_80")
        if cpu not in _CUDA_SHARED:
            raise _fault(
                text, f"architecture '{cpu}' is not known", f"known: {', '.join(_CUDA_SHARED)}"
            )
        triple, shared = "nvptx64-nvidia-cuda", _CUDA_SHARED[cpu] << 10
        generation = int(cpu[3:])
        features = {f for f, since in {"mma": 75, "async-copy": 80, "bf16": 80, "wgmma": 90}.items()
                    if generation >= since and (f != "wgmma" or generation == 90)}  # fmt: skip
    shared = _number(text, options, "shared", shared)
    block = _number(text, options, "block", block)
    return Target(
        kind=kind,
        options=tuple(sorted(options.items())),
        triple=triple,
        cpu=cpu,
        features=frozenset(features),
        vector_bytes=16,
        vector_registers=0,
        cores=_number(text, options, "cores", 1),
        scopes=(
            Scope("global"),
            Scope("shared", shared, 16),
            Scope("local", align=16),
            Scope("warp"),
        ),
        threads=ThreadLimits(block, axes, warp, grid),
    )


def _accel(text: str, kind: str, options: dict[str, str]) -> Target:
    """The accelerator of `target/accel.py`."""
    return Target(kind, (), cores=1, scopes=ACCEL_SCOPES)


@record
class Kind:
    """A kind of machine: what reads its line, the options that it has, and the names of what is
    made for it elsewhere, as "module:name": its `Strategies` ("": none yet) and its `Backend`."""

    describe: Callable[[str, str, dict[str, str]], Target]
    options: tuple[str, ...]
    strategies: str
    backend: str


_CPU = ("mcpu", "mtriple", "mattr", "cores", "caches", "vector", "costs")
_LOOPS = "tilewright.strategy.cpu.families:CPU"  # of processors, whose code is loops
_GPU = "shared", "block", "cores"
_BACKEND = "tilewright.backend."
# A new kind is a line here, and what the line names.
KINDS: dict[str, Kind] = {
    "cpu": Kind(_cpu, _CPU, _LOOPS, _BACKEND + "cpu:CPU"),
    "c": Kind(_c, ("cores",), _LOOPS, _BACKEND + "c:C"),
    "opencl": Kind(_gpu, _GPU, "", _BACKEND + "gpu:OPENCL"),
    "metal": Kind(_gpu, _GPU, "", _BACKEND + "gpu:METAL"),
    "cuda": Kind(_gpu, ("arch", *_GPU), "", _BACKEND + "gpu:CUDA"),
    "accel": Kind(_accel, (), "", _BACKEND + "accel:ACCEL"),
}


@functools.cache
def named(text: str) -> Any:
    """What "module:name" names."""
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)
