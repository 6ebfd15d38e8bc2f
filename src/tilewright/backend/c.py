"""Plain C for whatever compiler a processor has: source, in the calling convention of the host
program, that is compiled where it runs."""

from __future__ import annotations

from functools import partial

from tilewright.backend.backend import Backend
from tilewright.codegen.csource import emit_source
from tilewright.codegen.csource_dialect import C99

C = Backend(kind="c", emit=partial(emit_source, language=C99))
