"""The host program: frames, sizes from symbols, branches and loops, called through its C
interface.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.codegen import host
from tilewright.codegen.host import host_program
from tilewright.codegen.host_steps import Branch, Check, Launch, Location, While, is_straight
from tilewright.codegen.inprocess import aligned, map_image
from tilewright.codegen.link import link
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_object
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Var
from tilewright.ir.parse import parse_func
from tilewright.lower.pipeline import lower
from tilewright.runtime.abi import CALL_FIELDS
from tilewright.target.target import target

ADD = """
def add(A: f32[n], B: f32[n], C: f32[n], n: i64):
    for i in parallel(0, n):
        C[i] = A[i] + B[i]
"""


class Call(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in CALL_FIELDS)


KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
LAUNCH = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
    ctypes.c_int32,
)  # fmt: skip


class Program:
    """A host program and its kernels, loaded; remembers what it launched."""

    quick = False  # is the host program compiled as it is written?

    def __init__(self, kernels: Sequence[str], steps: Sequence[Any], **more: Any) -> None:
        machine = target("cpu")
        texts = [emit(lower(parse_func(k), machine), machine) for k in kernels]
        main = host_program(steps, machine, **more)
        objects = [compile_object(e.text, machine) for e in texts]
        objects.append(compile_object(main, machine, self.quick))
        names = [host.ENTRY] + ([host.SHAPES] if more.get("shapes") is not None else [])
        self.image = link(objects, names)
        self.memory, self.address = map_image(self.image)
        self.launched: list[tuple[int, int]] = []
        self.alone: list[bool] = []

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any], dims: Sequence[int] = (),
            arena: Any = None, weights: Any = None) -> int:  # fmt: skip
        def launch(call: int, kernel: int, function: int, frame: int, extent: int,
                   alone: int) -> None:  # fmt: skip
            self.launched.append((kernel, extent))
            self.alone.append(bool(alone))
            KERNEL(function)(frame, None, 0, extent)

        pointers = [(ctypes.c_void_p * (len(a) + 1))(*(x.ctypes.data for x in a))
                    for a in (inputs, outputs)]  # fmt: skip
        sizes = (ctypes.c_int64 * (len(dims) + 1))(*dims)
        back = LAUNCH(launch)
        call = Call(
            ctypes.addressof(pointers[0]),
            ctypes.addressof(pointers[1]),
            ctypes.addressof(sizes),
            None if arena is None else arena.ctypes.data,
            None if weights is None else weights.ctypes.data,
            ctypes.cast(back, ctypes.c_void_p),
        )
        entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
        return entry(self.address + self.image.entries[host.ENTRY])(ctypes.addressof(call))


@pytest.fixture(autouse=True, params=[False, True], ids=["optimised", "quick"])
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "quick", request.param)


def test_fields_of_the_call_agree_with_the_runtime() -> None:
    assert CALL_FIELDS == {
        "inputs": host.INPUTS, "outputs": host.OUTPUTS, "dims": host.DIMS,
        "arena": host.ARENA, "weights": host.WEIGHTS, "launch": host.LAUNCH,
        "provide": host.PROVIDE, "refuse": host.REFUSE,
    }  # fmt: skip


def test_one_function_takes_all_frames_of_a_size_apart() -> None:
    machine = target("cpu")
    locations = Location("input", 0), Location("input", 1), Location("output", 0)
    steps = [Launch(n, f"k{n % 3}", 1, locations, (2,) * (n > 4)) for n in range(6)]
    text = host_program(steps, machine)
    assert re.findall(r"define internal void @(\w+)", text) == ["take_3_0", "take_3_1"]
    kernel = emit(lower(parse_func(ADD), machine), machine).text
    assert kernel.count("define ") == 1  # nothing to compile but the kernel


def test_programs_that_visit_elements_are_not_straight() -> None:
    launch = Launch(0, "k", 1, (Location("input"),))
    check = Check(Location("input"), i64, 1, 1, 0, 7, "gather")
    loop, looking = (While((s,), *[Location("buffer")] * 3, (), (), *[Location("buffer")] * 2, 0)
                     for s in (launch, check))  # fmt: skip
    assert is_straight([launch, Branch(Location("input"), (launch,), (launch,)), loop])
    assert not is_straight([launch, check])
    assert not is_straight([Branch(Location("input"), (), (looking,))])


def test_launches_with_symbolic_sizes() -> None:
    m = Var("m")
    middle = Location("arena", offset=m * 4)
    steps = [
        Launch(0, "add", m, (Location("input", 0), Location("weights", offset=64), middle), (m,)),
        Launch(
            1, "add", m, (middle, Location("input", 1), Location("output", 0)), (m,), spare=m - 11
        ),
    ]
    program = Program([ADD], steps, symbols=["m"], shapes=[[m, 2], [m * 3]], arena_bytes=m * 8)
    random = np.random.default_rng(0)
    a, b, w = random.standard_normal((3, 10), np.float32)
    weights, arena = aligned(64 + 40), aligned(80)
    weights[64:] = w.view(np.uint8)
    c = np.zeros(10, np.float32)
    assert program.run([a, b], [c], [10], arena, weights) == 0
    np.testing.assert_array_equal(c, (a + w) + b)
    assert program.launched == [(0, 10), (1, 10)]
    assert program.alone == [False, True]

    shapes, size = (ctypes.c_int64 * 3)(), ctypes.c_int64()
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)
    run = kind(program.address + program.image.entries[host.SHAPES])
    dims = (ctypes.c_int64 * 1)(10)
    status = run(ctypes.addressof(dims), ctypes.addressof(shapes), ctypes.addressof(size))
    assert (status, list(shapes), size.value) == (0, [10, 2, 30], 80)


def test_branch_takes_one_side() -> None:
    first = Launch(
        0, "add", 4, (Location("input", 1), Location("input", 1), Location("output")), (4,)
    )
    second = Launch(
        1, "add", 4, (Location("input", 1), Location("output"), Location("output")), (4,)
    )
    program = Program([ADD], [Branch(Location("input", 0), (first,), (second,)), second])
    x = np.arange(4, dtype=np.float32)
    for flag, want in ((True, x * 3), (False, x * 2)):
        out = np.zeros(4, np.float32)
        assert program.run([np.array([flag]), x], [out]) == 0
        np.testing.assert_array_equal(out, want)
    assert [k for k, _ in program.launched] == [0, 1, 1, 1]
