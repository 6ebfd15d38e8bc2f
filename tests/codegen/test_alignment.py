"""Alignment: what an access says of its address holds, whatever the terms of its index are."""

from __future__ import annotations

import random

import pytest

from tilewright.codegen.llvm_builder import Builder
from tilewright.codegen.llvm_convert import Convert
from tilewright.codegen.llvm_index import Linear
from tilewright.codegen.llvm_memory import Memory
from tilewright.ir.dtype import DType, bf16, f32, f64, u8
from tilewright.ir.expr import Buffer, const


@pytest.mark.parametrize("of", [u8, bf16, f32, f64], ids=str)
@pytest.mark.parametrize("starts", [1, 16, 256])
def test_addresses_are_multiples_of_what_is_told(of: DType, starts: int) -> None:
    rng, builder = random.Random(starts), Builder()
    memory = Memory(builder, Convert(builder, half=True))
    memory.starts = starts
    buffer, told = Buffer("A", (const(1 << 20),), of), 0
    for _ in range(200):
        terms = {f"%v{n}": rng.choice((1, 2, 3, 8, 12, 64)) for n in range(rng.randint(0, 2))}
        index = Linear(rng.choice((0, 1, 4, 6, 16, 32)), terms, range(rng.choice((0, 2, 8)), 64))
        known = memory.known_multiple(buffer, index)
        told += known > of.bits // 8
        for _ in range(20):
            first = index.first + sum(c * rng.randint(0, 99) for c in terms.values())
            start = rng.randint(0, 9) * max(starts, of.bits // 8)
            assert (start + first * of.bits // 8) % known == 0, (index, known)
    assert told > 20 or starts == 1
