"""annotate: note something on a loop or block for the compiler further down."""

from __future__ import annotations

from typing import Any

from tilewright.ir.stmt import Block, For, Func, annotated
from tilewright.schedule.locate import (
    block_names,
    block_path,
    find_loop,
    loop_names,
    loop_path,
    need,
    primitive,
    replace,
)


@primitive("annotate '{handle}' with {key} = {value}")
def annotate(func: Func, handle: str, key: str, value: Any) -> Func:
    """Note `key = value` on a loop or a block; None removes the note.

    rewrite: annotate("i", "unroll_limit", 16)
        for i in serial(0, 4):
            with block("B"):
                vi = spatial(4, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    →
        for i in serial(0, 4, unroll_limit=16):
            with block("B"):
                vi = spatial(4, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    needs:
        P1  there is a loop or a block of that name, not both
        P2  the key is a name, the value a number, a word, a truth value or None
    """
    is_loop, is_block = handle in loop_names(func), handle in block_names(func)
    why = "there is a loop and a block of that name" if is_loop else "nothing has that name"
    found = find_loop(func, handle) if is_loop else None
    remedy = "s.loops() and s.blocks() list the names"
    need("P1", is_loop != is_block, func, found, why, remedy)
    path = loop_path(func, handle) if is_loop else block_path(func, handle)
    target = path[-1]
    assert isinstance(target, For | Block)
    plain = value is None or isinstance(value, int | float | str)
    why = "a key is a name, and a value is a number, a word, a truth value or None"
    need("P2", key.isidentifier() and plain, func, target, why, "use a plain value")
    return replace(
        func, path, target.replace(annotations=annotated(target.annotations, key, value))
    )
