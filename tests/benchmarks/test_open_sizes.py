"""One compilation with open sizes: right at every size, and scheduled like fixed sizes are."""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard

import numpy as np
import onnxruntime as ort
import pytest

import tilewright as tw
from benchmarks import open_sizes
from benchmarks.open_sizes import CASES
from tilewright.codegen.llvm import emit
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.driver.source import open_source
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Alloc
from tilewright.ir.walk import visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target

WIDE = target("cpu -mcpu=x86-64-v4")
TINY = [1, 2, 3, 5, 7, 16, 17, 31, 37, 64]
QUICK = [
    "mean pool 3x3",
    "packed max pool SAME_UPPER", "max pool 3x3", "conv 3x3", "conv 3x3 unpadded", "transpose",
    "pad", "resize, linear", "LSTM", "GRU", "conv 3x3 dilated", "two convs unpadded",
]  # fmt: skip


def code(name: str) -> str:
    """The LLVM text of all kernels of a case."""
    fused = prepare(open_source(CASES[name].model()).graph(), WIDE, 3)
    jobs = kernel_jobs(fused, WIDE, 1, Watch())[-1]
    return "".join(emit(lower(default(j.func, WIDE, 1).func, WIDE), WIDE).text for j in jobs)


def check(name: str, sizes: list[open_sizes.Sizes]) -> None:
    """The results for some sizes are onnxruntime's."""
    case = CASES[name]
    model = case.model()
    exe = tw.compile(model, threads=2, cache=False)
    session = ort.InferenceSession(model.SerializeToString())
    for at in sizes:
        arrays = case.arrays(at)
        try:
            wanted = session.run(None, dict(zip(case.inputs, arrays, strict=True)))[0]
        except Exception:  # an image smaller than the window
            continue
        got = exe(*arrays)[0]
        if not got.size:  # onnxruntime rounds a window that does not fit towards zero
            continue
        assert got.shape == wanted.shape, (name, at)
        scale = np.abs(wanted).max(initial=1e-6)
        np.testing.assert_allclose(got, wanted, atol=2e-5 * scale, rtol=0, err_msg=f"{name} {at}")


def sizes_of(name: str, count: int) -> list[open_sizes.Sizes]:
    random = np.random.default_rng(len(name))
    symbols = CASES[name].sizes[0]
    return [{s: int(random.choice(TINY)) for s in symbols} for _ in range(count)]


@pytest.mark.parametrize("name", QUICK)
def test_open_sizes_are_right(name: str) -> None:
    check(name, [*sizes_of(name, 6), *CASES[name].sizes[1:]])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case_is_right(name: str) -> None:
    check(name, [*sizes_of(name, 12), *CASES[name].sizes])


@pytest.mark.parametrize("name", ["elementwise", "per channel", "transpose", "concat of channels"])
def test_memory_is_walked_in_vectors(name: str) -> None:
    """The vectors lie along memory, whatever the sizes are: one gather is in the tail at most."""
    text = code(name)
    assert "masked.scatter" not in text
    assert text.count("call <16 x float> @llvm.masked.gather") <= 16


def test_tables_of_an_axis_are_made_once() -> None:
    """Where new rows of an image lie in the old ones is not computed again for each pixel."""
    text = code("resize, linear")
    assert text.count("@llvm.ceil") < 50
    assert "masked.gather" in text  # of columns


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_a_recurrence_keeps_sums_in_registers(name: str) -> None:
    """The product of a step is tiled: no sum is combined number by number out of its lanes."""
    fused = prepare(open_source(CASES[name].model()).graph(), WIDE, 3)
    jobs = kernel_jobs(fused, WIDE, 1, Watch())[-1]
    (kernel,) = [j.func for j in jobs if j.func.name.endswith(name.lower())]
    made = decisions(default(kernel, WIDE, 1, strict=True))
    assert made[f"{name.lower()}_matmul.tile_m"] == 6
    assert made[f"{name.lower()}_matmul.tile_n"] == 4 * WIDE.lanes(32)


@pytest.mark.parametrize("name", ["conv 3x3", "conv 3x3 dilated", "two convs unpadded"])
def test_open_images_take_winograds_convolution(name: str) -> None:
    """And transform a part of them when its turn comes, which then lies near."""
    fused = prepare(open_source(CASES[name].model()).graph(), WIDE, 3)
    made = [n.op for g in fused.groups for n in g.nodes]
    assert made.count("winograd_packed") == made.count("relu") + (name == "two convs unpadded")
    for job in kernel_jobs(fused, WIDE, 2, Watch())[-1]:
        schedule = default(job.func, WIDE, 2, strict=True)
        if "winograd" in job.func.name:
            assert decisions(schedule)["spread.compute_at"] == "tiles"
            lowered = lower(schedule.func, WIDE)
            sizes = {n.buffer.name: n.buffer.shape for n in visit(lowered.body) if is_alloc(n)}
            for part in ("half", "spread", "product"):
                assert as_int(sizes[part][0]) is not None, part


def is_alloc(n: object) -> TypeGuard[Alloc]:
    return isinstance(n, Alloc)


@pytest.mark.parametrize("name", ["max pool 2x2", "max pool 3x3", "mean pool 3x3"])
def test_pools_of_open_rows_read_the_image_as_it_lies(name: str) -> None:
    """Packing and unpacking it would take longer than the pool."""
    for shapes in ({}, {"h": 56, "w": 56}):
        fused = prepare(open_source(CASES[name].model(), shapes=shapes).graph(), WIDE, 3)
        assert [g.outputs[0].rank for g in fused.groups] == [4]
    (job,) = kernel_jobs(
        prepare(open_source(CASES[name].model()).graph(), WIDE, 3), WIDE, 1, Watch()
    )[-1]
    text = emit(lower(default(job.func, WIDE, 1, strict=True).func, WIDE), WIDE).text
    assert "gather" not in text


def test_pools_of_images_padded_by_the_run_stay_plain() -> None:
    """Masked taps cost less than packing the image for one pool; the pad is never a copy."""
    fused = prepare(open_source(CASES["max pool 3x3 SAME_UPPER"].model()).graph(), WIDE, 3)
    (pool,) = [g for g in fused.groups if g.ops[-1] == "max_pool"]
    assert list(pool.ops) == ["pad", "max_pool"] and pool.outputs[0].rank == 4


def test_padding_of_open_images_stays_packed() -> None:
    fused = prepare(open_source(CASES["packed max pool SAME_UPPER"].model()).graph(), WIDE, 3)
    made = [n for g in fused.groups for n in g.nodes]
    (pad,) = [n for n in made if n.op == "pad"]
    assert pad.output.rank == 5
    assert [n.op for n in made].count("unpack_channels") == 1  # of the result
    assert ["pad", "max_pool"] in [list(g.ops) for g in fused.groups]  # which reads no padded copy
    for job in kernel_jobs(fused, WIDE, 2, Watch())[-1]:
        default(job.func, WIDE, 2, strict=True)


def test_the_table_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [open_sizes.Found({"n": 8, "t": 64}, 2e-6, 1e-6, 0.0)]
    monkeypatch.setattr(open_sizes, "measure", lambda case, threads: found)
    open_sizes.main(["matmul, open batch"], 1, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Open sizes\n")
    assert "| matmul, open batch | 8×64 | 2 | 1 | 2.00 ◀ | 0e+00 |" in page
