"""NonMaxSuppression beside onnxruntime, and what it takes."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.frontend.onnx import import_onnx
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import For
from tilewright.ir.walk import visit
from tilewright.target.target import target

BATCH, CLASSES, COUNT = 2, 3, 60


def suppression(count: int = COUNT, centred: int = 0) -> onnx.ModelProto:
    inputs = {
        "boxes": (TensorProto.FLOAT, [BATCH, count, 4]),
        "scores": (TensorProto.FLOAT, [BATCH, CLASSES, count]),
        "limit": (TensorProto.INT64, [1]),
        "overlap": (TensorProto.FLOAT, [1]),
        "least": (TensorProto.FLOAT, [1]),
    }
    node = helper.make_node("NonMaxSuppression", list(inputs), ["chosen"], center_point_box=centred)
    graph = helper.make_graph(
        [node],
        "suppression",
        [helper.make_tensor_value_info(k, *of) for k, of in inputs.items()],
        [helper.make_tensor_value_info("chosen", TensorProto.INT64, [None, 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("centred", [0, 1])
def test_the_boxes_that_onnxruntime_takes(centred: int) -> None:
    """Corners in any order, boxes without an area, every limit and threshold."""
    proto = suppression(centred=centred)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    ours = tw.compile(proto, cache=False)
    random = np.random.default_rng(7)
    taken = set()
    for limit, overlap, least in ((1000, 0.3, 0.2), (4, 0.0, 0.0), (9, 0.7, 0.9), (0, 0.5, 0.1)):
        boxes = random.random((BATCH, COUNT, 4), np.float32)
        boxes[:, :5, 2:] = 0 if centred else boxes[:, :5, :2]
        values = {
            "boxes": boxes,
            "scores": random.random((BATCH, CLASSES, COUNT), np.float32),
            "limit": np.array([limit]),
            "overlap": np.array([overlap], np.float32),
            "least": np.array([least], np.float32),
        }
        (expected,) = theirs.run(None, values)
        (found,) = ours(*values.values())
        np.testing.assert_array_equal(found, expected)
        taken.add(len(np.asarray(expected)))
    assert len(taken) == 4


def test_boxes_are_compared_with_those_that_stay() -> None:
    """Not each with each: 23 classes of 4,789 boxes would be 527 million overlaps."""
    count = 500
    graph = import_onnx(suppression(count))
    sizes = [v.static_shape for n in graph.nodes for v in n.outputs]
    assert max(prod(s) for s in sizes if s is not None) <= BATCH * CLASSES * count * 4


def test_threads_share_the_classes() -> None:
    """The rows that are sorted and those that are compared do not know of each other."""
    machine = target("cpu -mcpu=haswell")
    *_, jobs = kernel_jobs(prepare(import_onnx(suppression()), machine, 3), machine, 2, Watch())
    for name in ("top_k", "keep_apart"):
        (job,) = [job for job in jobs if name in job.func.name]
        loops = [n for n in visit(job.func.body) if isinstance(n, For) and n.kind == "parallel"]
        assert [as_int(loop.extent) for loop in loops] == [BATCH * CLASSES]
