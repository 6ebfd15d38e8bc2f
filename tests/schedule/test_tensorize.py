"""tensorize: one instruction on tiles does a block; what does something else is refused."""

import pytest

import tilewright.te as te
from tilewright.schedule import Schedule, locate
from tilewright.schedule.primitives.tensorize import tensorize
from tilewright.support.errors import ScheduleError
from tilewright.target import intrinsics

intrinsics.declare(
    "test.mma", lambda: intrinsics.matrix_product("test.mma", 4, 4, 2, ("", "", ""), "mma")
)
intrinsics.declare(
    "test.mma.near",
    lambda: intrinsics.matrix_product("test.mma.near", 4, 4, 2, ("near", "", ""), "mma"),
)
intrinsics.declare("test.copy", lambda: intrinsics.copy("test.copy", (4,), "f32", ("", ""), "copy"))
intrinsics.declare("test.clear", lambda: intrinsics.fill("test.clear", (4, 4), "i32", "", "clear"))


def matmul(of: str = "i8", product=lambda a, b: a * b) -> te.Tensor:
    A, B = te.placeholder((8, 6), of, "A"), te.placeholder((6, 8), of, "B")
    k = te.reduce_axis(6, "k")
    C = te.compute(
        (8, 8),
        lambda i, j: te.sum(product(te.cast(A[i, k], "i32"), te.cast(B[k, j], "i32")), k),
        name="C",
    )
    return te.func("f", [A, B], [C])


def tiled(func: te.Tensor, tile: int = 4) -> Schedule:
    s = Schedule(func)
    i_o, i_i = s.split("i", tile)
    j_o, j_i = s.split("j", 4)
    k_o, k_i = s.split("k", 2)
    s.reorder(i_o, j_o, k_o, i_i, j_i, k_i)
    return s


def test_matrix_product(same_result, replays) -> None:
    before = matmul()
    s = tiled(before)
    assert s.tensorize("i_i", "test.mma") == "C_o"
    assert 'with block("C_o", tensorize="test.mma"):' in s.show()
    same_result(before, s.func)
    replays(before, s)


def test_operands(same_result) -> None:
    s = tiled(matmul(product=lambda a, b: b * a))  # the other way round
    name = s.blockize("i_i")
    s.tensorize(name, "test.mma")
    wanted = intrinsics.intrinsic("test.mma")
    tiles = intrinsics.match(locate.find_block(s.func, name), wanted)
    A, B, C = (tiles[b] for b in wanted.behaviour.buffers)
    assert (A.buffer.name, B.buffer.name, C.buffer.name) == ("A", "B", "C")
    assert A.dims == B.dims == C.dims == (0, 1)
    same_result(matmul(), s.func)


def test_the_start_of_the_reduction(same_result) -> None:
    s = tiled(matmul())
    init = s.decompose_reduction(s.blockize("i_i"), "k_o")
    assert init == "C_o_init"
    s.tensorize("C_o", "test.mma")
    s.tensorize(init, "test.clear")
    same_result(matmul(), s.func)


def test_a_tile_in_more_dimensions(same_result) -> None:
    """Batch and channel blocks stand still; the tile runs along two dimensions of four."""
    A = te.placeholder((2, 3, 8), "f32", "A")
    B = te.compute((2, 3, 8), lambda n, c, x: A[n, c, x], name="B")
    before = te.func("f", [A], [B])
    s = Schedule(before)
    _, x_i = s.split("x", 4)
    s.tensorize(x_i, "test.copy")
    same_result(before, s.func)


def test_P2_no_loops_inside(refused) -> None:
    refused("P2", tensorize, matmul(), "C", "test.mma")


def test_no_such_block() -> None:
    with pytest.raises(ScheduleError, match="there is no block 'nothing'"):
        tensorize(matmul(), "nothing", "test.mma")


def test_P1_unknown(refused) -> None:
    s = tiled(matmul())
    error = refused("P1", tensorize, s.func, "i_i", "test.nothing")
    assert "test.mma" in error.remedy


def test_P2_other_extents(refused) -> None:
    s = tiled(matmul(), tile=2)
    error = refused("P2", tensorize, s.func, "i_i", "test.mma")
    assert "[2, 4, 2]" in error.why and "[4, 4, 2]" in error.why


def test_P2_other_operation(refused) -> None:
    s = tiled(matmul(product=lambda a, b: a + b))
    error = refused("P2", tensorize, s.func, "i_i", "test.mma")
    assert "+" in error.why and "*" in error.why
    assert "--- test.mma" in error.remedy  # both, line by line


def test_P2_other_dtype(refused) -> None:
    s = tiled(matmul("i16"))
    error = refused("P2", tensorize, s.func, "i_i", "test.mma")
    assert "i16" in error.why and "i8" in error.why


def test_P2_other_walk(refused) -> None:
    """The transposed tile is not the tile."""
    A = te.placeholder((8, 8), "i8", "A")
    k = te.reduce_axis(8, "k")
    C = te.compute(
        (8, 8),
        lambda i, j: te.sum(te.cast(A[i, k], "i32") * te.cast(A[j, k], "i32"), k),
        name="C",
    )
    s = tiled(te.func("f", [A], [C]))
    refused("P2", tensorize, s.func, "i_i", "test.mma")


def test_P2_other_memory(refused) -> None:
    s = tiled(matmul())
    error = refused("P2", tensorize, s.func, "i_i", "test.mma.near")
    assert "'A' is in global" in error.why
    copy = s.cache_read("C", "A", "near")
    s.compute_at(copy, "k_o")
    s.tensorize("i_i", "test.mma.near")


def test_P2_guarded_instances(refused) -> None:
    A = te.placeholder((7,), "f32", "A")
    B = te.compute((7,), lambda x: A[x], name="B")
    s = Schedule(te.func("f", [A], [B]))
    _, x_i = s.split("x", 4)
    error = refused("P2", tensorize, s.func, x_i, "test.copy")
    assert "guarded" in error.why


def test_P2_begins_its_result(refused) -> None:
    s = tiled(matmul())
    s.split("k_i", 2)  # the same reduction, all inside
    s = Schedule(matmul())
    s.split("i", 4)
    s.split("j", 4)
    s.reorder("i_o", "j_o", "i_i", "j_i", "k")
    s.split("k", (1, 6))
    intrinsics.declare(
        "test.mma6", lambda: intrinsics.matrix_product("test.mma6", 4, 4, 6, ("", "", ""), "mma")
    )
    error = refused("P2", tensorize, s.func, "i_i", "test.mma6")
    assert "begins its result" in error.why
