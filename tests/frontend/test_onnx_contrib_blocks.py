"""Tables of GGML's blocks, beside onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from tests.frontend.test_onnx_contrib_more import check, floats, made_of
from tilewright.support.errors import ImportFault

ROWS, DEPTH = 7, 512
SIZES = {2: (18, 32), 6: (22, 32), 8: (34, 32), 13: (176, 256), 14: (210, 256), 20: (18, 32),
         23: (136, 256)}  # fmt: skip
RUNS = [{"at": np.array([[0, 6, 3], [-1, 9, 5]])}, {"at": np.array([[2], [2]])}]


def table(kind: int) -> np.ndarray:
    """Random codes, with scales that are numbers."""
    draw, (size, many) = np.random.default_rng(kind), SIZES[kind]
    made = draw.integers(0, 256, (ROWS, DEPTH // many, size)).astype(np.uint8)
    scales = draw.standard_normal((*made.shape[:2], 2)).astype(np.float16).view(np.uint8)
    scales = scales.reshape(*made.shape[:2], 4)
    at = 208 if kind == 14 else 0
    made[..., at : at + 2] = scales[..., :2]
    if kind == 13:
        made[..., 2:4] = scales[..., 2:]
    return made.reshape(ROWS, -1)


@pytest.mark.parametrize("kind", SIZES)
def test_codes_of_a_few_bits(kind: int) -> None:
    attrs = {"packed_type": kind, "K": DEPTH, "output_dtype": TensorProto.FLOAT}
    check("GatherPacked", {"table": table(kind), "at": (2, "n")}, *RUNS, tolerance=1e-6, **attrs)


@pytest.mark.parametrize(
    ("kind", "of"), [(0, np.float32), (1, np.float16), (30, ml_dtypes.bfloat16)]
)
def test_plain_numbers(kind: int, of: type) -> None:
    content = floats(np.random.default_rng(3), ROWS, 64).astype(of).view(np.uint8)
    attrs = {"packed_type": kind, "K": 64, "output_dtype": TensorProto.FLOAT}
    check("GatherPacked", {"table": content, "at": (2, "n")}, *RUNS, **attrs)


def test_what_no_format_is() -> None:
    with pytest.raises(ImportFault, match="packed_type 18 is none of"):
        made_of("GatherPacked", {"table": table(2), "at": (2,)}, [{"at": np.array([0, 1])}],
                packed_type=18, K=DEPTH)  # fmt: skip
