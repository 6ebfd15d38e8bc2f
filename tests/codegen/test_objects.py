"""Objects taken apart: a function is the same whatever it was compiled together with."""

from __future__ import annotations

import ctypes

import pytest

from tilewright.codegen.inprocess import map_image
from tilewright.codegen.link import link
from tilewright.codegen.llvm import Module, joined
from tilewright.codegen.llvm_compile import compile_object
from tilewright.codegen.objects import Object, part, read
from tilewright.target.target import target

X86, ARM = "cpu -mcpu=x86-64-v3", "cpu -mcpu=cortex-a72 -mtriple=aarch64-unknown-linux-gnu"
WIDE = "cpu -mcpu=skylake-avx512"
# constants of 8, 16 and 32 bytes, and those that functions have in common
KERNELS = [
    f"""define void @"k{n}"(ptr %p) #0 {{
  %x = load double, ptr %p
  %y = fmul double %x, {n}.125
  %z = fadd double %y, 7.125
  %c = call double @"0.shared"(double %z)
  store double %c, ptr %p
  %q = getelementptr double, ptr %p, i64 4
  %v = load <4 x double>, ptr %q, align 8
  %w = fadd <4 x double> %v, <double 1.5, double {n}.5, double 3.5, double 4.5>
  %u = fmul <4 x double> %w, splat (double 7.125)
  store <4 x double> %u, ptr %q, align 8
  ret void
}}"""
    for n in range(4)
]
SHARED = """define internal double @"0.shared"(double %x) #2 {
  %y = fmul double %x, 0.375
  ret double %y
}"""
ATTRIBUTES = "attributes #0 = { nounwind }\nattributes #2 = { nounwind noinline }\n"


def compiled(numbers: list[int], machine: str) -> Object:
    """An object of some of the kernels."""
    triple = f'target triple = "{target(machine).triple}"'
    modules = [Module((triple,), (KERNELS[n],), (SHARED,), ATTRIBUTES) for n in numbers]
    return read(compile_object(joined(modules).text, target(machine)))


@pytest.mark.parametrize("machine", [X86, WIDE, ARM])
def test_a_part_is_what_it_would_be_alone(machine: str) -> None:
    together, backwards = compiled([0, 1, 2, 3], machine), compiled([3, 1, 0, 2], machine)
    for n in range(4):
        alone = part(compiled([n], machine), [f"k{n}"])
        assert alone is not None
        assert part(together, [f"k{n}"]) == alone == part(backwards, [f"k{n}"])
        assert [name for name, _, _ in alone.symbols] == [f"k{n}"]
        assert sum(s.is_code for s in alone.sections) == 2  # with what it calls


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0]])
def test_parts_run(order: list[int]) -> None:
    together = compiled([0, 1, 2, 3], X86)
    parts = [p for n in order if (p := part(together, [f"k{n}"])) is not None]
    image = link(parts, [f"k{n}" for n in order])
    memory, address = map_image(image)
    for n in order:
        numbers = (ctypes.c_double * 8)(2.0, 0, 0, 0, 1.0, 2.0, 3.0, 4.0)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address + image.entries[f"k{n}"])(numbers)
        assert numbers[0] == (2 * (n + 0.125) + 7.125) * 0.375
        added = zip((1, 2, 3, 4), (1.5, n + 0.5, 3.5, 4.5), strict=True)
        assert list(numbers[4:]) == [(x + a) * 7.125 for x, a in added]
    assert len(memory) == len(image.bytes)


def test_several_functions_are_one_part() -> None:
    together = compiled([0, 1, 2], X86)
    assert part(together, ["k2", "k0"]) == part(compiled([0, 2], X86), ["k0", "k2"])


def test_a_part_takes_none_of_the_data_of_others() -> None:
    """A table says nothing of where what belongs to one function ends."""
    table = """
@table = internal constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
define double @pick(i64 %n) nounwind section ".text.pick" {
  %p = getelementptr double, ptr @table, i64 %n
  %x = load double, ptr %p
  ret double %x
}
define i64 @same(i64 %n) nounwind section ".text.same" {
  ret i64 %n
}
"""
    for machine in (X86, ARM):
        text = f'target triple = "{target(machine).triple}"\n{table}'
        whole = read(compile_object(text, target(machine)))
        assert part(whole, ["pick"]) is None
        same = part(whole, ["same"])
        assert same is not None and len(same.sections) == 1
