"""Machine descriptions: what the words mean, and that the line gives the description back."""

from pathlib import Path

import pytest

from tests.target.feature_names import printed_by_llvm
from tilewright.support.cache import Cache
from tilewright.support.errors import CompileError
from tilewright.target import Target, processors, target
from tilewright.target.feature_names import NAMES
from tilewright.target.processors import ARCHITECTURES, known_features

LINES = [
    "cpu",
    "cpu -cores=3",
    "cpu -mcpu=haswell",
    "cpu -mcpu=x86-64-v2 -cores=8",
    "cpu -mcpu=cascadelake -mattr=-avx512vnni,+avx512bf16",
    "cpu -mcpu=sapphirerapids -vector=32",
    "cpu -mtriple=aarch64-linux-gnu",
    "cpu -mcpu=neoverse-v1",
    "cpu -mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-x280",
    "cpu -mtriple=wasm32-unknown-unknown -mattr=+simd128",
    "cpu -mcpu=haswell -caches=32768:64:1,262144:64:1",
    "c",
    "c -cores=4",
    "opencl",
    "opencl -shared=65536 -block=1024",
    "metal",
    "cuda",
    "cuda -arch=sm_90",
    "accel",
]


@pytest.mark.parametrize("line", LINES)
def test_the_line_gives_the_description_back(line: str) -> None:
    read = target(line)
    assert isinstance(read, Target)
    assert target(str(read)) == read
    assert str(target(str(read))) == str(read)


@pytest.mark.parametrize(
    ("line", "width", "registers", "feature"),
    [
        ("cpu -mcpu=x86-64", 16, 16, "sse2"),
        ("cpu -mcpu=haswell", 32, 16, "fma"),
        ("cpu -mcpu=cascadelake", 64, 32, "avx512vnni"),
        ("cpu -mcpu=sapphirerapids", 64, 32, "amx-int8"),
        ("cpu -mcpu=cortex-a72", 16, 32, "neon"),
        ("cpu -mcpu=neoverse-n1", 16, 32, "dotprod"),
        ("cpu -mtriple=wasm32-unknown-unknown -mcpu=bleeding-edge", 16, 16, "simd128"),
    ],
)
def test_processors(line: str, width: int, registers: int, feature: str) -> None:
    read = target(line)
    assert (read.vector_bytes, read.vector_registers) == (width, registers)
    assert read.has(feature)
    assert read.lanes(32) == width // 4


@pytest.mark.parametrize(
    ("line", "rate"),
    [("cpu -mcpu=znver4", 1), ("cpu -mcpu=znver3", 2), ("cpu -mcpu=sapphirerapids", 2),
     ("cpu -mcpu=znver4 -vector=32", 2)],
)  # fmt: skip
def test_some_machines_multiply_one_wide_vector_a_cycle(line: str, rate: int) -> None:
    assert target(line).costs.multiply_adds == rate


def test_no_vectors_is_one_lane() -> None:
    assert target("cpu -mtriple=riscv64-unknown-linux-gnu").lanes(32) == 1


def test_host_is_what_llvm_said_of_this_machine_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said, asked = processors._asked(), list[int]()
    monkeypatch.setattr(processors, "_memory", [])
    monkeypatch.setattr(processors, "_asked", lambda: asked.append(1) or said)
    assert processors._told() == said and len(asked) == 1  # nobody has a memory
    processors.remember_host(Cache(tmp_path), lambda: "model name: this one")
    assert [processors._told() for _ in range(2)] == [said, said] and len(asked) == 2
    processors.remember_host(Cache(tmp_path), lambda: "model name: another")
    assert processors._told() == said and len(asked) == 3


def test_host_has_cores_caches_and_vectors() -> None:
    host = target()
    assert host.triple and host.cpu and host.cores >= 1
    assert [c.size for c in host.caches] == sorted(c.size for c in host.caches)


def test_removed_features_reach_llvm() -> None:
    read = target("cpu -mcpu=haswell -mattr=-fma")
    assert not read.has("fma")
    assert "-fma" in read.llvm_features.split(",")
    assert "+avx2" in read.llvm_features.split(",")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_names_of_features_are_those_of_llvm(architecture: str) -> None:
    assert known_features(architecture) <= NAMES[architecture]
    told = set(printed_by_llvm(architecture))
    assert len(told) > 10
    new = told - NAMES[architecture]
    assert not new, "write them again: python -m tests.target.feature_names"


def test_unknown_features_are_refused_with_what_is_near() -> None:
    with pytest.raises(CompileError, match=r"no feature 'avx512' of x86_64") as caught:
        target("cpu -mcpu=haswell -mattr=+fma,+avx512")
    assert "avx512f" in caught.value.remedy
    with pytest.raises(CompileError, match=r"no feature 'zzzz' of aarch64"):
        target("cpu -mtriple=aarch64-linux-gnu -mattr=-zzzz")
    assert target("cpu -mcpu=haswell -mattr=+vaes,-aes").has("vaes")  # LLVM's, of no processor here


def test_gpu_scopes_and_threads() -> None:
    gpu = target("cuda -arch=sm_90")
    assert gpu.scope("shared").size == 227 << 10
    assert gpu.threads is not None and gpu.threads.warp == 32
    assert gpu.has("wgmma") and not target("cuda -arch=sm_80").has("wgmma")
    with pytest.raises(CompileError, match=r"cannot use scope 'shared': cpu has no such memory"):
        target("cpu").scope("shared")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "there is no kind of machine ''"),
        ("gpu", "there is no kind of machine 'gpu'"),
        ("cpu haswell", "'haswell' is not of the form -key=value"),
        ("cpu -mcpu", "'-mcpu' is not of the form -key=value"),
        ("cpu -march=haswell", "'cpu' has no option '-march'"),
        ("cpu -mcpu=hasswell", "processor 'hasswell' is not known"),
        ("cpu -mcpu=haswell -mtriple=aarch64-linux-gnu", "'haswell' is not known for aarch64"),
        ("cpu -cores=0", "-cores=0 is not a positive whole number"),
        ("cpu -cores=two", "-cores=two is not a positive whole number"),
        ("cpu -caches=32K", "'32K' is not a cache"),
        ("cuda -arch=sm_12", "architecture 'sm_12' is not known"),
    ],
)
def test_faults_name_the_word(line: str, message: str) -> None:
    with pytest.raises(CompileError) as fault:
        target(line)
    assert message in str(fault.value)
    assert fault.value.remedy


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(CompileError, match="tuple is no description of a machine"):
        target((1, 2))  # type: ignore[arg-type]
