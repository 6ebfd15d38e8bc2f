"""Filters transformed for Winograd's convolution: the numbers, and the memory that it takes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tilewright.graph.ops.winograd import pack_winograd, transforms


@pytest.mark.parametrize("edge", [2, 4])
@pytest.mark.parametrize("shape", [(2, 5, 3, 3, 8, 4), (1, 40, 3, 3, 16, 16), (1, 2, 3, 3, 96, 96)])
def test_filters_are_transformed_along_rows_and_columns(shape: tuple[int, ...], edge: int) -> None:
    filters = np.random.default_rng(0).standard_normal(shape, np.float32)
    g = np.array(transforms(edge).filter, np.float64)
    expected = np.einsum("ar,bs,cirsxy->cabixy", g, g, filters.astype(np.float64))
    np.testing.assert_allclose(pack_winograd(filters, edge), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("edge", [2, 4])
def test_filters_of_several_planes_keep_them_apart(edge: int) -> None:
    filters = np.random.default_rng(0).standard_normal((2, 5, 4, 3, 3, 8, 4), np.float32)
    made = pack_winograd(filters, edge)
    for plane in range(4):
        np.testing.assert_array_equal(
            made[:, :, :, plane], pack_winograd(filters[:, :, plane], edge)
        )


def test_little_is_transformed_at_a_time() -> None:
    """Products of a whole filter would wait for threads, and hold everything twice in f64."""
    filters = np.random.default_rng(0).standard_normal((1, 64, 3, 3, 16, 16), np.float32)
    pack_winograd(filters[:, :1], 4)
    tracemalloc.start()
    made = pack_winograd(filters, 4)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < made.nbytes + (4 << 20)
