"""call_intrinsics: a tensorized block's body becomes the call of its instruction.

In: stage "blocks". Out: stage "blocks"; a block that `tensorize` marked, whose rule the code
generator has, calls the rule with, for each operand, the address of its tile and the dimensions of
the buffer that it runs along (counted from the last, -1, since others may come to stand before).
Its regions stay, so that buffers can still be cut down. Blocks whose rule is not there keep their
body.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tilewright.ir.dtype import i64
from tilewright.ir.expr import Call, Expr, Load, const
from tilewright.ir.stmt import Block, Eval, Func, Stmt, annotation
from tilewright.target.intrinsics import ANNOTATION, intrinsic, match


def call_intrinsics(func: Func, rules: Collection[str]) -> Func:
    """Replace the bodies of tensorized blocks by calls.

    rewrite:
        with block("D_o", tensorize="accel.clear"):
            writes(D[vi * 16:vi * 16 + 16, 0:16])
            for i in serial(0, 16):
                for j in serial(0, 16):
                    …
    →
        with block("D_o", tensorize="accel.clear"):
            writes(D[vi * 16:vi * 16 + 16, 0:16])
            accel.clear(address_of(D[vi * 16, 0]), -2, -1)
    """

    def go(stmt: Any) -> Any:
        if isinstance(stmt, Block) and annotation(stmt, ANNOTATION) is not None:
            return called(stmt)
        return stmt.map_children(go) if isinstance(stmt, Stmt) else stmt

    def called(block: Block) -> Block:
        wanted = intrinsic(annotation(block, ANNOTATION))
        if wanted.rule not in rules:
            return block
        tiles = match(block, wanted)
        arguments: list[Expr] = []
        for operand in wanted.behaviour.buffers:
            tile = tiles[operand]
            arguments.append(Call("address_of", (Load(tile.buffer, tile.starts),), i64))
            arguments += [const(d - tile.buffer.rank) for d in tile.dims]
        return block.replace(body=Eval(Call(wanted.rule, tuple(arguments), i64)))

    body = go(func.body)
    return func if body is func.body else func.replace(body=body)
