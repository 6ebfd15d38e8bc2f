"""What the code generator leaves out, and that its options stay ours."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import pytest
from llvmlite.binding import ffi

from tilewright.codegen import llvm_compile, llvm_library
from tilewright.codegen.llvm import emit
from tilewright.ir.parse import parse_func
from tilewright.lower.pipeline import lower
from tilewright.support.errors import InternalFault
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
TILE = """
def tile(A: f32[4, 6], B: f32[4, 8], C: f32[6, 8]):
    for i in unroll(0, 6):
        for j in vectorize(0, 8):
            C[i, j] = 0.0
    for k in unroll(0, 4):
        for i in unroll(0, 6):
            for j in vectorize(0, 8):
                C[i, j] = C[i, j] + A[k, i] * B[k, j]
"""


def plain(text: str) -> str:
    """What another user of llvmlite gets."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    found = llvm.Target.from_triple(X86.triple)
    options = {"cpu": X86.cpu, "features": X86.llvm_features, "opt": 3}
    machine = found.create_target_machine(reloc="pic", codemodel="small", **options)
    return machine.emit_assembly(llvm.parse_assembly(text))


@pytest.mark.parametrize(
    "name, text, cpu",
    [
        ("disable-lsr", COPY, "haswell"),
        ("disable-post-ra", emit(lower(parse_func(TILE), X86), X86).text, "znver3"),
    ],
)
def test_passes_are_left_out_for_x86(
    name: str, text: str, cpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = target(f"cpu -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    without = llvm_compile.compile_assembly(text, machine)
    others = tuple(n for n in llvm_compile.LEFT_OUT["x86_64"] if n != name)
    monkeypatch.setitem(llvm_compile.LEFT_OUT, "x86_64", others)
    assert llvm_compile.compile_assembly(text, machine) != without


def test_passes_that_find_little_do_not_run() -> None:
    """What they leave is nearly the same code, so their times are asked for."""
    llvm.set_time_passes(True)
    try:
        llvm_compile.compile_object(COPY, target("cpu -mtriple=x86_64-unknown-linux-gnu"))
    finally:
        told = llvm.report_and_reset_timings()
        llvm.set_time_passes(False)
    assert "Register Coalescer" in told and "\n" in told
    left_out = ("Optimize selects", "Constant Hoisting", "Machine Copy Propagation")
    for name in (*left_out, " Machine Loop Invariant Code Motion"):
        assert name not in told.replace("Early Machine Loop", "")


def test_each_run_has_a_pass_builder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run leaves in it what calls into memory that the run had; LLVM's timers, for one, did."""
    made: list[int] = []
    builder = llvm_compile._builder
    monkeypatch.setattr(llvm_compile, "_builder", lambda m: made.append(1) or builder(m))
    for _ in range(3):
        llvm_compile.compile_object(COPY, X86)
    assert len(made) == 3


def test_options_are_as_they_were_for_others() -> None:
    before = plain(COPY)
    assert llvm_compile.compile_assembly(COPY, X86) != before
    assert plain(COPY) == before


def test_threads_give_the_same_code_to_the_bit() -> None:
    expected = llvm_compile.compile_object(COPY, X86)
    with ThreadPoolExecutor(4) as threads:
        codes = threads.map(lambda _: llvm_compile.compile_object(COPY, X86), range(40))
        assert set(codes) == {expected}


def test_code_is_made_without_the_lock_of_llvmlite() -> None:
    """It would let one thread in at a time."""
    expected = llvm_compile.compile_object(COPY, X86)
    locked: list[None] = []
    callbacks = (lambda: locked.append(None)), (lambda: None)
    ffi.register_lock_callback(*callbacks)
    try:
        assert llvm_compile.compile_object(COPY, X86) == expected
    finally:
        ffi.unregister_lock_callback(*callbacks)
    assert not locked


def test_threads_that_want_other_options_wait() -> None:
    inside, leave = threading.Event(), threading.Event()
    seen: list[str] = []

    def first() -> None:
        with llvm_library.options(["disable-lsr"]):
            inside.set()
            leave.wait(20)
            seen.append("first")

    def others() -> None:
        with llvm_library.options([]):
            seen.append("others")

    def same() -> None:
        with llvm_library.options(["disable-lsr"]):
            seen.append("same")

    with ThreadPoolExecutor(3) as threads:
        threads.submit(first)
        inside.wait(20)
        waiting = threads.submit(others)
        threads.submit(same).result(20)
        leave.set()
        waiting.result(20)
    assert seen == ["same", "first", "others"]


def test_text_that_is_no_module_is_a_fault() -> None:
    with pytest.raises(InternalFault, match=r"(?s)expected instruction opcode.*oops"):
        llvm_compile.compile_object(COPY.replace("ret void", "oops"), X86)
    early = COPY.replace("br label %loop\nloop", "%z = add i64 %next, 1\n  br label %loop\nloop")
    with pytest.raises(InternalFault, match="does not dominate all uses"):
        llvm_compile.compile_object(early, X86)
    with pytest.raises(InternalFault, match="expected instruction opcode"):
        llvm_compile.compile_object(COPY.replace("ret void", "oops"), X86, verify=False)


@pytest.mark.parametrize(
    ("name", "calls", "inlined"),
    [
        ("exp", 24, True),
        ("sigmoid", 16, True),
        ("exp", 64, False),
        ("sin", 4, True),
        ("sin", 9, False),
    ],
)
def test_short_functions_are_inlined_where_many_call_them(name, calls, inlined):
    """A call costs all registers around it; long functions would fill the cache of code."""
    value = " + ".join(f"{name}(A[i] * {n}.0)" for n in range(calls))
    text = f"def k(A: f32[8], B: f32[8]):\n    for i in vectorize(0, 8):\n        B[i] = {value}\n"
    emitted = emit(lower(parse_func(text), X86), X86).text
    (kind,) = re.findall(rf'define internal .*tw.{name}\.f32\.v8"\(.*\) (#\d)', emitted)
    assert kind == ("#1" if inlined else "#2")
