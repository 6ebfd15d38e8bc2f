"""What the code generator leaves out, and that its options stay ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import pytest

from tilewright.codegen import llvm_compile
from tilewright.target.target import target

COPY = """
define void @k(ptr noalias %p, ptr noalias %q, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = mul i64 %i, 48
  %a = getelementptr float, ptr %p, i64 %at
  %b = getelementptr float, ptr %q, i64 %at
  %x = load float, ptr %a
  store float %x, ptr %b
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
X86 = target("cpu -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")


def plain(text: str) -> str:
    """What another user of llvmlite gets."""
    machine = llvm_compile.machine(X86)
    return machine.emit_assembly(llvm.parse_assembly(text))


def test_loop_strength_reduction_is_left_out_for_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    without = llvm_compile.compile_assembly(COPY, X86)
    monkeypatch.setattr(llvm_compile, "LEFT_OUT", ())
    assert llvm_compile.compile_assembly(COPY, X86) != without


def test_options_are_as_they_were_for_others() -> None:
    before = plain(COPY)
    assert llvm_compile.compile_assembly(COPY, X86) != before
    assert plain(COPY) == before


def test_threads_give_the_same_code_to_the_bit() -> None:
    expected = llvm_compile.compile_object(COPY, X86)
    with ThreadPoolExecutor(4) as threads:
        codes = threads.map(lambda _: llvm_compile.compile_object(COPY, X86), range(40))
        assert set(codes) == {expected}
