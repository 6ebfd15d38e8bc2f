"""Linear models and support vector machines of ai.onnx.ml, compiled: against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.driver.report.compare import difference
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import parse
from tilewright.runtime.executor import load
from tilewright.support.errors import ImportFault, SizeWarning

POOL = KernelPool(1)
ML = "ai.onnx.ml"
F, I, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
random = np.random.default_rng(41)


def numbers(*shape, least=-1.0):
    return random.uniform(least, 1, shape).astype(np.float32)


def model(op, results, width, **attributes):
    plain = {k: v.ravel().tolist() if hasattr(v, "ravel") else v for k, v in attributes.items()}
    node = helper.make_node(op, ["x"], [f"y{k}" for k in range(len(results))], domain=ML, **plain)
    outputs = [helper.make_tensor_value_info(f"y{k}", t, None) for k, t in enumerate(results)]
    x = helper.make_tensor_value_info("x", F, ["rows", width])
    graph = helper.make_graph([node], "g", [x], outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def agree(op, results, width=5, **attributes):
    m = model(op, results, width, **attributes)
    run = compile_observed(m, cache=False, pool=POOL)
    peer = onnxruntime.InferenceSession(m.SerializeToString())
    for rows in (1, 9):
        x = numbers(rows, width)
        for a, b in zip(run(x), peer.run(None, {"x": x}), strict=True):
            assert a.shape == b.shape
            if a.dtype.kind == "f":
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            else:
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("how", ["NONE", "SOFTMAX"])
def test_linear_regressor(how):
    agree("LinearRegressor", [F], coefficients=numbers(3, 5), intercepts=numbers(3), targets=3,
          post_transform=how)  # fmt: skip


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_classifier(how):
    agree("LinearClassifier", [I, F], coefficients=numbers(3, 5), intercepts=numbers(3),
          classlabels_ints=[4, 7, 9], post_transform=how)  # fmt: skip
    agree("LinearClassifier", [S, F], coefficients=numbers(2, 5), intercepts=numbers(2),
          classlabels_strings=["no", "yes"], post_transform=how)  # fmt: skip


def test_more_weights_than_features_ask_for_are_told():
    """As in onnxruntime's own example of irises: weights of four features, inputs of two."""
    with pytest.warns(SizeWarning, match="12 coefficients of 3 rows for 2 features"):
        agree("LinearClassifier", [I, F], 2, coefficients=numbers(3, 4), intercepts=numbers(3),
              classlabels_ints=[4, 7, 9], post_transform="SOFTMAX")  # fmt: skip
    with pytest.warns(SizeWarning, match="10 coefficients of 2 rows for 3 features"):
        agree("LinearRegressor", [F], 3, coefficients=numbers(2, 5), targets=2)


def test_probit():
    agree("LinearRegressor", [F], coefficients=numbers(2, 5) / 25, intercepts=np.array([0.4, 0.7]),
          targets=2, post_transform="PROBIT")  # fmt: skip


KERNELS = {
    "LINEAR": (0.0, 0.0, 0.0),
    "POLY": (0.5, 1.0, 3.0),
    "RBF": (0.7, 0.0, 0.0),
    "SIGMOID": (0.3, 0.2, 0.0),
}


@pytest.mark.parametrize("kind", KERNELS)
def test_support_vectors(kind):
    vectors = numbers(6, 5)
    options = {"kernel_type": kind, "kernel_params": KERNELS[kind], "support_vectors": vectors}
    agree("SVMRegressor", [F], coefficients=numbers(6), n_supports=6, rho=[0.3], **options)
    agree("SVMRegressor", [F], coefficients=numbers(6), n_supports=6, rho=[0.0], one_class=1,
          **options)  # fmt: skip
    agree("SVMClassifier", [I, F], coefficients=numbers(1, 6), vectors_per_class=[4, 2], rho=[0.1],
          classlabels_ints=[3, 8], **options)  # fmt: skip
    agree("SVMClassifier", [S, F], coefficients=numbers(2, 6), vectors_per_class=[1, 2, 3],
          rho=[0.1, -0.2, 0.05], classlabels_strings=["a", "b", "c"], **options)  # fmt: skip


@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_of_support_vectors(classes):
    pairs, each = classes * (classes - 1) // 2, 3
    agree("SVMClassifier", [I, F], coefficients=numbers(classes - 1, classes * each),
          vectors_per_class=[each] * classes, rho=numbers(pairs), prob_a=-1 - numbers(pairs),
          prob_b=numbers(pairs) / 5, classlabels_ints=list(range(classes)), kernel_type="RBF",
          kernel_params=[0.3, 0.0, 0.0],
          support_vectors=numbers(classes * each, 5))  # fmt: skip


def test_without_support_vectors():
    plain = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    agree("SVMRegressor", [F], coefficients=numbers(5), rho=[0.3], **plain)
    agree("SVMClassifier", [I, F], coefficients=numbers(3, 5), rho=[0.1, 0.1, 0.1],
          classlabels_ints=[0, 1, 2], **plain)  # fmt: skip


@pytest.mark.parametrize(
    "keys", [{"classlabels_int64s": [3, -1, 7]}, {"classlabels_strings": ["dog", "Ä 'x'", "cat"]}]
)
def test_maps_come_out_as_dicts(keys, tmp_path):
    """As onnxruntime gives them; in the artifact they are a matrix and a list of keys."""
    m = model("ZipMap", [F], 3, **keys)
    value = helper.make_tensor_type_proto(F, [])
    key = TensorProto.INT64 if "classlabels_int64s" in keys else S
    m.graph.output[0].type.CopyFrom(
        helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    )
    made = import_onnx(m)
    assert parse(str(made)) == made
    compile_observed(m, cache=False, pool=POOL).save(tmp_path / "m.tw")
    run, peer = load(tmp_path / "m.tw"), onnxruntime.InferenceSession(m.SerializeToString())
    for rows in (1, 5):
        x = numbers(rows, 3)
        (ours,), (theirs,) = run(x), peer.run(None, {"x": x})
        assert ours == theirs and [list(d) for d in ours] == [next(iter(keys.values()))] * rows
        assert difference([ours], [theirs]) == 0


MISFIT = """\
cannot import node 'y0' (ZipMap): its 3 labels do not fit the rows of f32[rows, 2]

    ai.onnx.ml.ZipMap (version 1)
    inputs: 'x' f32[rows, 2]
    outputs: y0
"""


def test_labels_must_fit_the_rows():
    with pytest.raises(ImportFault) as caught:
        import_onnx(model("ZipMap", [F], 2, classlabels_int64s=[0, 1, 2]))
    assert str(caught.value) == MISFIT
