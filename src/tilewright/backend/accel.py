"""The accelerator of `target/accel.py`: a stream of instructions, of which its units take their
own."""

from __future__ import annotations

from tilewright.backend.backend import Backend
from tilewright.codegen.accel import RULES, emit_program
from tilewright.lower.call_intrinsics import call_intrinsics
from tilewright.lower.compact_buffers import compact_buffers
from tilewright.lower.pipeline import Pass
from tilewright.lower.vthread import inject_vthreads

ACCEL = Backend(
    kind="accel",
    emit=emit_program,
    pipeline=(
        # while blocks stand, which say by what they were tensorized
        Pass("call_intrinsics", lambda func, _: call_intrinsics(func, RULES), "blocks", "blocks"),
        # regions are known only while blocks stand; lowers blocks on the way out
        Pass("compact_buffers", lambda func, _: compact_buffers(func), "blocks", "loops"),
        # last: copies of what each virtual thread has are small by now
        Pass("inject_vthreads", lambda func, _: inject_vthreads(func), "loops", "loops"),
    ),
)
