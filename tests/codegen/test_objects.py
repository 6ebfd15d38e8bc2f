"""Objects taken apart: a function is the same whatever it was compiled together with."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from tilewright.codegen.inprocess import map_image
from tilewright.codegen.link import link
from tilewright.codegen.llvm import Module, joined
from tilewright.codegen.llvm_compile import compile_object
from tilewright.codegen.objects import LONGEST, Object, part, read
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


def vector(first: int, kind: str = "i32") -> str:
    """Sixteen numbers, as LLVM writes a constant."""
    return ", ".join(f"{kind} {first + 3 * lane * lane}" for lane in range(16))


# so many constants of 64 bytes, of which each is one operand, with an immediate one behind it
LONG = [
    f"""define void @"k{n}"(ptr %p) #0 {{
  %x = load <16 x i32>, ptr %p, align 4
  %q = getelementptr <16 x i32>, ptr %p, i64 1
  %v0 = load <16 x i32>, ptr %q, align 4
"""
    + "".join(
        f"""  %o{k} = or <16 x i32> %x, %v{k}
  %a{k} = and <16 x i32> %o{k}, <{vector(100 * n + k)}>
  %v{k + 1} = add <16 x i32> %a{k}, <{vector(1000 * n + k)}>
"""
        for k in range(n)
    )
    + f"""  store <16 x i32> %v{n}, ptr %q, align 4
  ret void
}}"""
    for n in range(4)
]


def compiled(numbers: list[int], machine: str, kernels: list[str] = KERNELS) -> Object:
    """An object of some of the kernels."""
    triple = f'target triple = "{target(machine).triple}"'
    modules = [Module((triple,), (kernels[n],), (SHARED,), ATTRIBUTES) for n in numbers]
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


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 0, 1, 2], [2, 3, 1]])
def test_a_pool_of_long_vectors_is_a_functions_own(order: list[int]) -> None:
    together = compiled(order, WIDE, LONG)
    (pool,) = (s for s in together.sections if s.align == LONGEST and not s.is_code)
    assert len(pool.bytes) == 2 * LONGEST * sum(order)
    for n in order:
        own = part(together, [f"k{n}"])
        assert own is not None and own == part(compiled([n], WIDE, LONG), [f"k{n}"])
        constants = [s.bytes for s in own.sections if not s.is_code]
        told = [f"{100 * n + k}" for k in range(n)] + [f"{1000 * n + k}" for k in range(n)]
        starts = np.frombuffer(b"".join(constants), np.int32)[::16]
        assert sorted(starts) == sorted(map(int, told))


def test_a_pool_that_somebody_else_refers_to_is_nobodys() -> None:
    together = compiled([1, 2, 3], WIDE, LONG)
    code = [at for at, s in enumerate(together.sections) if s.is_code and s.references]
    one, other = (together.sections[at] for at in code[:2])
    foreign = replace(one, references=(*one.references, other.references[0]))
    sections = tuple(foreign if s is one else s for s in together.sections)
    assert part(replace(together, sections=sections), ["k1"]) is None


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
