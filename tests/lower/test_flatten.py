"""flatten: one index for each access."""

from __future__ import annotations

from tests.lower.programs import MATMUL, PADDED, TAIL, TILED, same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import visit
from tilewright.lower.flatten import flatten
from tilewright.lower.lower_blocks import lower_blocks


def test_rewrite() -> None:
    func = parse_func("""
def transpose(A: f32[n, 8], B: f32[8, n], n: i64):
    for i in serial(0, n):
        for j in serial(0, 8):
            B[j, i] = A[i, j]
""")
    made = flatten(func)
    verify(made, "flat")
    assert (
        print_func(made).strip()
        == """
def transpose(A: f32[n * 8], B: f32[8 * n], n: i64):
    for i in serial(0, n):
        for j in serial(0, 8):
            B[j * n + i] = A[i * 8 + j]
""".strip()
    )
    same_meaning(func, made, n=3)


def test_programs_keep_their_meaning() -> None:
    for text in (TAIL, PADDED, TILED, MATMUL):
        func = parse_func(text)
        made = flatten(lower_blocks(func))
        verify(made, "flat")
        same_meaning(func, made)


def length(storage: str) -> int:
    func = parse_func(f"""
def some(A: f32[1]):
    T = alloc({storage})
    A[0] = 0.0
""")
    (alloc,) = [n for n in visit(flatten(func).body) if isinstance(n, Alloc)]
    (extent,) = alloc.buffer.shape
    return int(extent.value)


def test_lengths() -> None:
    assert length("f32[3, 4, 5]") == 60
    assert length("f32[3, 20], strides=[32, 1]") == 96
    assert length("f32[3, 20], strides=[1, 3]") == 60
    assert length("f32[1]") == 1


def test_rows_of_local_buffers_are_whole_vectors() -> None:
    assert length('f32[12, 28], "local"') == 12 * 32
    assert length('f32[4, 7], "local"') == 4 * 8
    assert length('f32[4, 16], "local"') == 64
    assert length('f32[7], "local"') == 7


def test_scalar_has_one_element() -> None:
    func = parse_func("""
def one(A: f32[()], B: f32[()]):
    B[()] = A[()]
""")
    made = flatten(func)
    verify(made, "flat")
    assert all(len(b.shape) == 1 for b in made.buffers)
