"""tensorize: let one instruction on tiles do a block."""

from __future__ import annotations

from tilewright.ir.stmt import Func, annotated
from tilewright.schedule.locate import (
    block_names,
    block_path,
    find_block,
    loop_names,
    primitive,
    refuse,
    replace,
)
from tilewright.schedule.primitives.blockize import blockize
from tilewright.support.errors import CompileError
from tilewright.target.intrinsics import ANNOTATION, Mismatch, difference, match
from tilewright.target.intrinsics import intrinsic as find_intrinsic


@primitive("tensorize '{at}' by '{intrinsic}'")
def tensorize(func: Func, at: str, intrinsic: str) -> tuple[Func, str]:
    """Mark a block, or the block made of a loop, as done by a tensor intrinsic; gives its name.

    The body stays: it is the block's meaning. A code generator that has the intrinsic's rule puts
    the instruction there instead.

    rewrite:
        for i_i in serial(0, 16):           →   with block("C_o"):
            with block("C"):                        annotate(tensorize="copy16")
                C[vi] = A[vi]                       for i_i in serial(0, 16):
                                                        with block("C"):
                                                            C[vi] = A[vi]
    needs:
        P1  the intrinsic is known
        P2  the block has loops inside, and does what the intrinsic does, up to names and the order
            of commutative operands, on operands in the right memories
    """
    if at not in block_names(func) and at in loop_names(func):
        func, at = blockize(func, at)
    block = find_block(func, at)
    try:
        wanted = find_intrinsic(intrinsic)
    except CompileError as error:
        raise refuse("P1", func, block, error.why, error.remedy) from None
    try:
        match(block, wanted)
    except Mismatch as why:
        remedy = f"it must do what the intrinsic does:\n{difference(block, wanted)}"
        raise refuse("P2", func, block, str(why), remedy) from None
    marked = block.replace(annotations=annotated(block.annotations, ANNOTATION, intrinsic))
    return replace(func, block_path(func, at), marked), at
