"""GPUs: kernels on grids of blocks of threads, as text that a driver compiles where they run.

Nothing here runs them yet: `codegen/launch.py` says what a launch takes.
"""

from __future__ import annotations

from functools import partial

from tilewright.backend.backend import Backend
from tilewright.codegen import csource_dialect
from tilewright.codegen.csource import emit_source
from tilewright.codegen.llvm_compile import compile_assembly
from tilewright.codegen.llvm_gpu import emit_device

CUDA = Backend(kind="cuda", emit=emit_device, assembly=compile_assembly)  # PTX
OPENCL = Backend(kind="opencl", emit=partial(emit_source, language=csource_dialect.OPENCL))
METAL = Backend(kind="metal", emit=None)
