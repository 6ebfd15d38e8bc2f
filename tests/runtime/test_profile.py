"""Profiles: what kernels took, against the roofline."""

import numpy as np
import pytest

from tests.runtime.images import scale_program, symbolic_program
from tilewright.runtime.profile import KernelTime, Profile, Roofline, evaluate

MACHINE = Roofline(gflops=100.0, gbytes=10.0)


def test_kernels_are_counted_and_described(loaded):
    profile = loaded(symbolic_program(), 2).profile(
        np.ones(5000, np.float32), seconds=0.01, machine=MACHINE
    )
    scale, add = profile.kernels
    assert (scale.name, scale.ops, scale.shape) == ("scale", ("mul",), (5000,))
    assert (scale.flops, scale.bytes, scale.launches) == (5000, 40_000, 1)
    assert add.name == "add" and add.microseconds > 0
    assert scale.microseconds + add.microseconds <= profile.microseconds
    assert scale.gflops == pytest.approx(5000 / scale.microseconds / 1e3)
    assert scale.roofline == pytest.approx(100 * 4.0 / scale.microseconds)  # 40 kB at 10 GB/s
    assert scale.limit == "memory"
    assert profile.threads == 2 and profile.machine is MACHINE


def test_profiling_ends_with_the_profile(loaded):
    exe = loaded(scale_program())
    x = np.ones(1000, np.float32)
    first = exe.profile(x, seconds=0.0, machine=MACHINE)
    second = exe.profile(x=x, seconds=0.0, machine=MACHINE)
    assert [k.launches for k in first] == [k.launches for k in second] == [1, 1]


def test_table():
    kernels = (
        KernelTime(
            "conv_1", ("conv2d", "relu"), (1, 64, 56, 56), 1, 1000.0, 10**8, 10**6, "compute", 100.0
        ),
        KernelTime("add", ("add",), (), 2, 0.5, 0, 10, "memory", 0.4),
    )
    assert str(Profile(kernels, 1010.0, MACHINE, 2)) == (
        "kernel    ops fused    shape           us  GFLOP/s  GB/s    limit  % of it\n"
        "conv_1    conv2d relu  1x64x56x56  1000.0    100.0   1.0  compute      100\n"
        "add (x2)  add                         0.5      0.0   0.0   memory        0\n"
        "1000.5 us in kernels, 1010.0 us in all; 2 threads; peak 100 GFLOP/s, 10.0 GB/s"
    )


def test_the_limit_is_what_takes_longer():
    assert MACHINE.limit(flops=101, nbytes=10) == "compute"  # 1.01 ns against 1 ns
    assert MACHINE.limit(flops=99, nbytes=10) == "memory"
    assert MACHINE.limit(flops=0, nbytes=0) == "memory"


def test_intensity_is_operations_for_each_byte():
    def kernel(flops, nbytes):
        return KernelTime("k", (), (), 1, 1.0, flops, nbytes, "memory", 0.0).intensity

    assert (kernel(8, 2), kernel(0, 2), kernel(8, 0)) == (4.0, 0.0, float("inf"))


def test_machine_is_measured(loaded):
    exe = loaded(scale_program())
    machine = exe.roofline()
    assert 0.5 < machine.gflops < 1e4 and 0.1 < machine.gbytes < 1e4
    assert exe.roofline() is machine


def test_expressions_of_dimensions():
    dims = {"n": 7, "m": 3}
    for text, value in {
        "n": 7,
        "n * 2 + m": 17,
        "-(n // 2) % m": 0,
        "min(n, m, 5) + max(1, n)": 10,
        "n - 10": -3,
    }.items():
        assert evaluate(text, dims) == value
    assert evaluate(12, {}) == 12
    for text in ("k", "n / 2", "n.real", "abs(n)", "n ** 2", "[n]", "'a'", "1.5", "min(n, key=m)"):
        with pytest.raises(ValueError, match="not an expression of dimensions"):
            evaluate(text, dims)
