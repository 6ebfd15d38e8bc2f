# ruff: noqa: E501
"""What lowering costs, in nodes built: loops stay loops until code is generated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.lower.programs import MATMUL, PADDED, TILED
from tilewright.ir import expr, stmt
from tilewright.ir.parse import parse_func
from tilewright.lower.pipeline import lower
from tilewright.support.node import Node
from tilewright.target.target import target

CONVOLUTION = """
def conv(A: f32[1, 4, 58, 58, 16], W: f32[4, 4, 3, 3, 16, 16], B: f32[1, 4, 56, 56, 16]):
    acc = alloc(f32[1, 4, 56, 56, 16], "local")
    for f in parallel(0, 224):
        for x_o in serial(0, 5):
            for ci in serial(0, 4):
                for kh in serial(0, 3):
                    for kw in serial(0, 3):
                        for cii in serial(0, 16):
                            for x_i in unroll(0, 12):
                                for c in vectorize(0, 16):
                                    with block("acc", where=x_o * 12 + x_i < 56):
                                        vo = spatial(4, f // 56)
                                        vy = spatial(56, f % 56)
                                        vx = spatial(56, x_o * 12 + x_i)
                                        vc = spatial(16, c)
                                        ri = reduce(4, ci)
                                        rh = reduce(3, kh)
                                        rw = reduce(3, kw)
                                        rii = reduce(16, cii)
                                        reads(A[0, ri, vy + rh, vx + rw, rii], W[vo, ri, rh, rw, rii, vc])
                                        writes(acc[0, vo, vy, vx, vc])
                                        with init():
                                            acc[0, vo, vy, vx, vc] = 0.0
                                        acc[0, vo, vy, vx, vc] = acc[0, vo, vy, vx, vc] + A[0, ri, vy + rh, vx + rw, rii] * W[vo, ri, rh, rw, rii, vc]
            for x_i_1 in unroll(0, 12):
                for c_1 in vectorize(0, 16):
                    with block("B", where=x_o * 12 + x_i_1 < 56):
                        wo = spatial(4, f // 56)
                        wy = spatial(56, f % 56)
                        wx = spatial(56, x_o * 12 + x_i_1)
                        wc = spatial(16, c_1)
                        reads(acc[0, wo, wy, wx, wc])
                        writes(B[0, wo, wy, wx, wc])
                        B[0, wo, wy, wx, wc] = max(acc[0, wo, wy, wx, wc], 0.0)
"""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each class of node is constructed."""
    counts: Counter[str] = Counter()

    def counted(cls: type) -> None:
        construct = cls.__init__

        def init(self, *args, **named) -> None:
            counts[cls.__name__] += 1
            construct(self, *args, **named)

        monkeypatch.setattr(cls, "__init__", init)

    for module in (expr, stmt):
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, Node) and "__init__" in cls.__dict__:
                counted(cls)
    yield counts


@pytest.mark.parametrize(
    ("program", "most"), [(CONVOLUTION, 2000), (MATMUL, 1500), (PADDED, 1500), (TILED, 500)]
)
def test_nodes_built(program: str, most: int, built: Counter[str]) -> None:
    func = parse_func(program)
    built.clear()
    lower(func, target("cpu -mcpu=skylake-avx512"))
    assert 0 < sum(built.values()) <= most
