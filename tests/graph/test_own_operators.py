"""Registering operators from outside: what is refused, what is held to what, what is taken back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import OPERATORS, Builder, evaluate, parse
from tilewright.graph.operator import CHEAP, FINITE, having
from tilewright.graph.outside import ONNX, OWN, TORCH
from tilewright.graph.own import all_or_nothing


def rows(random: np.random.Generator) -> Any:
    return [random.normal(size=(3, 4)).astype(np.float32)], {}


GIVEN: dict[str, Any] = {"fusion": "broadcast", "reference": lambda x: x * 3, "draw": rows}


def thrice(x):
    """3 x."""
    return te.compute(x.shape, lambda *i: x[i] * 3, name="thrice")


def register(define: Callable[..., Any] = thrice, **given: Any) -> Any:
    return tw.operator(**{**GIVEN, **given})(define)


def renamed(name: str, doc: str | None = "Of another name.") -> Callable[..., Any]:
    def define(x):
        return thrice(x)

    define.__name__, define.__doc__ = name, doc
    return define


REFUSED = [
    ({"reference": None}, "it has no reference"),
    ({"draw": None}, "it has no draw"),
    ({"fusion": "elementwise"}, 'fusion=\'elementwise\' is none.*"broadcast", "injective"'),
    ({"traits": ["quick"]}, "there is no trait 'quick'"),
    ({"define": renamed("relu")}, "'relu': Tilewright has one of that name"),
    ({"define": renamed("a b")}, "no name for an operator"),
    ({"define": renamed("_hidden")}, "no name for an operator"),
    ({"define": renamed("class")}, "no name for an operator"),
    ({"define": renamed("silent", None)}, "it has no docstring"),
    ({"define": lambda x: x}, "no name for an operator"),
    ({"define": print}, "its definition is no function"),
    ({"onnx": "SoftCap"}, "no name.*com.example::SoftCap"),
    ({"onnx": "::Relu"}, "of the domain ai.onnx"),
    ({"onnx": {"com.example::A": 3}}, "names nothing"),
    ({"torch": "soft_cap"}, "no name.*example::soft_cap"),
    ({"torch": "aten::relu"}, "PyTorch's own"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_cannot_be_registered(given: dict[str, Any], message: str) -> None:
    before = dict(OPERATORS)
    with pytest.raises(tw.CompileError) as caught:
        register(**given)
    assert re.search(message, str(caught.value), re.DOTALL) and caught.value.remedy
    assert before == OPERATORS and not OWN


def test_names_of_two_packages_are_told_apart() -> None:
    register(onnx="com.example::Thrice", torch="example::thrice")

    def other(x):
        """Another one."""
        return thrice(x)

    other.__module__ = "others"
    for given in ({"onnx": "com.example::Thrice"}, {"torch": "example::thrice.default"}):
        with pytest.raises(tw.CompileError, match=r"thrice'.* of the package 'tests.graph"):
            register(other, **given)
    other.__name__ = "thrice"
    with pytest.raises(tw.CompileError, match=r"the package 'tests.graph.*' has one of that name"):
        register(other)


def test_the_same_function_once_more_replaces_itself() -> None:
    first = register(traits=["finite"], onnx="com.example::Thrice")
    assert "thrice" in having(FINITE) and OPERATORS["thrice"] is first
    second = register(traits=["cheap"], torch="example::thrice")
    assert OPERATORS["thrice"] is second and second.package == __name__
    assert "thrice" in having(CHEAP) and "thrice" not in having(FINITE)
    assert not ONNX and set(TORCH) == {"example.thrice.default"}


def test_all_or_nothing() -> None:
    first = register(onnx="com.example::Thrice")
    with pytest.raises(RuntimeError), all_or_nothing():
        register(renamed("second"), onnx="com.example::Second")
        assert register(onnx="com.example::Other") is OPERATORS["thrice"]
        raise RuntimeError
    assert OPERATORS["thrice"] is first and "second" not in OPERATORS
    assert set(ONNX) == {("com.example", "Thrice")}


def graph_of(op: str, of: str = "f32", shape: Any = (3, 4), **attrs: Any) -> Any:
    build = Builder("own")
    x = build.input("x", of, shape)
    return build.finish({"y": build.emit(op, x, **attrs)})


def test_types_follow_from_the_definition() -> None:
    def halves(x, *, of="f16"):
        """The mean of two neighbours, and their difference, in another dtype."""
        n = x.shape[1] // 2
        mean = te.compute(
            (x.shape[0], n), lambda i, j: ((x[i, 2 * j] + x[i, 2 * j + 1]) / 2).astype(of)
        )
        rest = te.compute((x.shape[0], n), lambda i, j: x[i, 2 * j] - x[i, 2 * j + 1])
        return mean, rest

    def reference(x, of):
        a, b = x[:, ::2], x[:, 1::2]
        return ((a + b) / 2).astype({"f16": np.float16, "f64": np.float64}[of]), a - b

    def draw(random):
        shape = int(random.integers(1, 9)), 2 * int(random.integers(1, 9))
        return [random.normal(size=shape).astype(np.float32)], {
            "of": str(random.choice(["f16", "f64"]))
        }

    register(halves, fusion="injective", reference=reference, draw=draw)
    tw.check_operator("halves", times=2)
    build = Builder("own")
    mean, rest = build.emit("halves", build.input("x", "f32", (3, 4)), of="f64")
    graph = build.finish({"mean": mean, "rest": rest})
    assert [v.type_text for v in graph.outputs] == ["f64[3, 2]", "f32[3, 2]"]
    assert parse(str(graph)) == graph
    with pytest.raises(tw.CompileError, match="cannot apply halves"):
        graph_of("halves", shape=(3,))


def wrong_dtype(x):
    """Of another dtype than is said."""
    return te.compute(x.shape, lambda *i: x[i].astype("f64"), name="wrong")


def no_tensor(x):
    """Nothing that te knows."""
    return 3


def raising(x):
    """Raises."""
    raise KeyError("a slip")


SAME = {"infer": lambda x: (x.dtype, x.shape)}
WRONG: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (wrong_dtype, SAME, "it gives f64.3, 4. where the type rule says f32.3, 4."),
    (no_tensor, {}, "NoTensors: it gives 3"),
    (raising, {}, "definition of the operator 'raising' is wrong: KeyError: 'a slip'"),
    (thrice, {"reference": lambda x: x[0]}, "gives the shapes"),
    (thrice, {"reference": lambda x: x.nothing}, "reference of the operator 'thrice' is wrong"),
    (thrice, {"reference": lambda x: x * 3.5}, "elements differ"),
    (thrice, {"reference": lambda x: x.astype("f8") * 3}, "gives float64 where .* says f32"),
    (thrice, {"infer": lambda x: x.nothing}, "type rule of the operator 'thrice' is wrong"),
    (thrice, {"draw": lambda random: 3}, "cannot draw an application"),
    (thrice, {"draw": lambda random: ([], {})}, "takes 1 inputs, not 0"),
]


@pytest.mark.parametrize(("define", "given", "message"), WRONG, ids=[m for *_, m in WRONG])
def test_what_a_check_finds(define: Any, given: dict[str, Any], message: str) -> None:
    register(define, **given)
    with pytest.raises(tw.CompileError, match=message) as caught:
        tw.check_operator(define.__name__, times=1)
    assert __name__ in str(caught.value) or "tw.check_operator" in str(caught.value) or given


def test_a_wrong_definition_is_told_when_a_model_is_compiled() -> None:
    register(wrong_dtype, **SAME)
    with pytest.raises(
        tw.CompileError, match=r"'wrong_dtype' is wrong.*where the type rule"
    ) as told:
        tw.compile(graph_of("wrong_dtype"), threads=1)
    assert __name__ in told.value.remedy


def test_what_fusion_and_traits_promise() -> None:
    def inverse(x):
        """1 / x."""
        return te.compute(x.shape, lambda *i: 1 / x[i], name="inverse")

    register(inverse, traits=["finite"], reference=lambda x: 1 / x)
    with np.errstate(all="ignore"), pytest.raises(tw.CompileError, match="it is not 'finite'"):
        tw.check_operator("inverse", times=1, seed=1)

    def flipped(x):
        """Rows from their ends."""
        last = x.shape[-1] - 1
        return te.compute(x.shape, lambda *i: x[(*i[:-1], last - i[-1])], name="flipped")

    register(flipped, reference=lambda x: np.flip(x, -1))
    with pytest.raises(tw.CompileError, match="it is not element-wise"):
        tw.check_operator("flipped", times=1)


def test_only_registered_operators_are_checked() -> None:
    with pytest.raises(tw.CompileError, match="it is Tilewright's own"):
        tw.check_operator("relu")
    with pytest.raises(tw.CompileError, match="it is not registered"):
        tw.check_operator("wobble")


def test_constants_are_folded_by_the_reference() -> None:
    register()
    build = Builder("own")
    c = build.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    x = build.input("x", "f32", (3, 4))
    graph = build.finish({"y": build.emit("add", x, build.emit("thrice", c))})
    exe = tw.compile(graph, threads=1)
    assert not any("thrice" in kernel.name for kernel in exe.manifest.kernels)
    given = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(exe(given)[0], evaluate(graph, [given])[0])


def test_processes_that_write_kernels_need_no_package() -> None:
    def waves(x, *, count):
        """A sum of sines."""
        steps = te.reduce_axis(count, "steps")
        return te.compute(
            x.shape,
            lambda *i: te.sum(te.sin(x[i] * (steps + 1).astype("f32")), steps),
            name="waves",
        )

    def reference(x, count):
        return sum(np.sin(x * np.float32(n + 1)) for n in range(count))

    register(waves, fusion="reduction", reference=reference)
    build = Builder("own")
    x = build.input("x", "f32", (8, 16))
    outputs = {f"y{n}": build.emit("waves", x, count=n) for n in range(2, 8)}
    graph = build.finish(outputs)
    with KernelPool(workers=3) as pool:
        exe = compile_observed(graph, threads=2, cache=False, pool=pool)
        assert pool.processes  # one writes beside this process
    given = np.random.default_rng().normal(size=(8, 16)).astype(np.float32)
    for got, want in zip(exe(given), evaluate(graph, [given]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_an_operator_runs_inside_a_loop() -> None:
    onnx = pytest.importorskip("onnx")
    helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
    register(onnx="com.example::Thrice")
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Thrice", ["state"], ["next"], domain="com.example"),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "round",
        [info("i", 7, []), info("going", 9, []), info("state", FLOAT, [2])],
        [info("on", 9, []), info("next", FLOAT, [2])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["times", "", "x"], ["y"], body=body)],
        "looped",
        [info("times", 7, []), info("x", FLOAT, [2])],
        [info("y", FLOAT, [2])],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    exe = tw.compile(helper.make_model(graph, opset_imports=imports), threads=1)
    (y,) = exe(np.array(3), np.array([1, 2], np.float32))
    np.testing.assert_array_equal(y, [27, 54])


ATTRIBUTES = [
    ({"by": 2.5}, 2.5, None),
    ({"by": 2}, 2, None),  # a whole number for a float
    ({}, 1.5, None),
    ({"times": 2.0}, 0, "'scaled' has no attribute 'times'"),
    ({"by": [1.0, 2.0]}, 0, "scaled"),
]


@pytest.mark.parametrize(("attrs", "by", "message"), ATTRIBUTES)
def test_attributes_of_a_node(attrs: dict[str, Any], by: float, message: str | None) -> None:
    onnx = pytest.importorskip("onnx")

    def scaled(x, *, by=1.5):
        """x by."""
        if not isinstance(by, float):
            raise ValueError(f"scaled by {by!r}")
        return te.compute(x.shape, lambda *i: x[i] * by, name="scaled")

    register(scaled, reference=lambda x, by: (x * by).astype(x.dtype), onnx="com.example::Scaled")
    node = onnx.helper.make_node("Scaled", ["x"], ["y"], domain="com.example", **attrs)
    info = onnx.helper.make_tensor_value_info
    ends = [info("x", 1, ["n", 2])], [info("y", 1, None)]
    graph = onnx.helper.make_graph([node], "g", *ends)
    imports = [onnx.helper.make_opsetid(d, 17) for d in ("", "com.example")]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    if message is not None:
        with pytest.raises(tw.CompileError, match=message):
            tw.compile(model, threads=1)
        return
    x = np.random.default_rng().normal(size=(3, 2)).astype(np.float32)
    np.testing.assert_allclose(tw.compile(model, threads=1)(x)[0], x * by, rtol=1e-6)
