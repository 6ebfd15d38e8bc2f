"""The code image: references among objects are resolved, everything else is refused by name."""

from __future__ import annotations

import ctypes

import pytest

from tilewright.codegen.inprocess import map_image
from tilewright.codegen.link import link
from tilewright.codegen.llvm_compile import compile_object
from tilewright.support.errors import InternalFault
from tilewright.target.target import target

X86, ARM = "cpu -mcpu=x86-64-v2", "cpu -mcpu=cortex-a72 -mtriple=aarch64-unknown-linux-gnu"
TRIPLES = {X86: "x86_64-unknown-linux-gnu", ARM: "aarch64-unknown-linux-gnu"}
CALLEE = """
@table = internal constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
define double @pick(i64 %n) nounwind {
  %p = getelementptr double, ptr @table, i64 %n
  %x = load double, ptr %p
  ret double %x
}
"""
CALLER = """
declare hidden double @pick(i64)
define double @twice(i64 %n) nounwind {
  %x = call double @pick(i64 %n)
  %y = fmul double %x, 2.0
  ret double %y
}
define ptr @address() nounwind {
  ret ptr @pick
}
"""
STORE = """
define void @f() nounwind {
  store i32 1, ptr @state
  ret void
}
"""


def build(text: str, machine: str = X86) -> bytes:
    return compile_object(f'target triple = "{TRIPLES[machine]}"\n{text}', target(machine))


def test_calls_and_constants_across_objects() -> None:
    image = link([build(CALLER), build(CALLEE)], ["twice", "address", "pick"])
    memory, address = map_image(image)
    twice = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(address + image.entries["twice"])
    assert [twice(n) for n in range(4)] == [3.0, 5.0, 7.0, 9.0]
    address_of = ctypes.CFUNCTYPE(ctypes.c_void_p)(address + image.entries["address"])
    assert address_of() == address + image.entries["pick"]
    assert len(memory) == len(image.bytes)


@pytest.mark.parametrize("machine", [X86, ARM])
def test_image_is_the_same_wherever_objects_come_from(machine: str) -> None:
    objects = [build(CALLER, machine), build(CALLEE, machine)]
    image = link(objects, ["twice"])
    assert image == link(objects, ["twice"])
    assert image.machine == TRIPLES[machine].split("-")[0]


@pytest.mark.parametrize("machine", [X86, ARM])
def test_missing_symbol(machine: str) -> None:
    with pytest.raises(InternalFault, match="'pick' is not defined in any object"):
        link([build(CALLER, machine)], ["twice"])


def test_missing_entry() -> None:
    with pytest.raises(InternalFault, match="no object defines nothing"):
        link([build(CALLEE)], ["nothing"])


def test_library_function() -> None:
    text = CALLER.replace("declare hidden double @pick(i64)", "declare double @pick(i64)")
    text = text.replace("@pick", "@sin")
    with pytest.raises(InternalFault, match="'sin'"):
        link([build(text)], ["f"])


def test_defined_twice() -> None:
    with pytest.raises(InternalFault, match="'pick' is defined twice"):
        link([build(CALLEE), build(CALLEE)], ["pick"])


def test_writable_data() -> None:
    text = "@state = global i32 7\n" + STORE
    with pytest.raises(InternalFault, match=r"writable|not PC-relative"):
        link([build(text)], ["f"])


def test_absolute_address() -> None:
    text = "@table = constant [1 x ptr] [ptr @f]\ndefine void @f() nounwind {\n  ret void\n}\n"
    with pytest.raises(InternalFault, match=r"writable|not PC-relative"):
        link([build(text)], ["f"])


def test_machines_do_not_mix() -> None:
    with pytest.raises(InternalFault, match="aarch64, x86_64 together"):
        link([build(CALLEE, X86), build(CALLER, ARM)], ["twice"])


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" + bytes(200)])
def test_what_is_no_object(data: bytes) -> None:
    with pytest.raises(InternalFault, match="not a little-endian"):
        link([data], [])
