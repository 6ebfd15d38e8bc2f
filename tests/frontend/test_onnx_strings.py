"""Strings and floats that are codes, compiled: against Python's own strings and ml_dtypes."""

from __future__ import annotations

import io
import re

import ml_dtypes
import numpy as np
import PIL.Image
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.frontend.onnx.regex import compile_pattern
from tilewright.graph import parse
from tilewright.support.errors import ImportFault, InputError

POOL = KernelPool(1)  # kernels are compiled in this process: they are few and small
S, F, B, I = TensorProto.STRING, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
random = np.random.default_rng(23)


def strings(*shape, letters="aab ÄßŁ日,-"):
    """Random strings, empty ones among them."""
    made = np.empty(shape, object)
    for position in np.ndindex(*shape):
        made[position] = "".join(random.choice(list(letters), random.integers(0, 9)))
    return made


def compiled(nodes, inputs, outputs):
    """The executable of nodes; inputs and outputs: name → (type, shape)."""
    entries = [
        [helper.make_tensor_value_info(n, *t) for n, t in p.items()] for p in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *entries)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("ai.onnx.ml", 1)],
        ir_version=10,
    )
    made = import_onnx(model)
    assert parse(str(made)) == made
    return compile_observed(made, cache=False, pool=POOL)


def node(op, inputs, outputs="y", **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def test_concat_and_equal_broadcast():
    nodes = [node("StringConcat", "a b"), node("Equal", "a b", "same")]
    shapes = {"a": (S, ["m", 3]), "b": (S, [3])}
    run = compiled(nodes, shapes, {"y": (S, None), "same": (B, None)})
    for m in (1, 4):
        a, b = strings(m, 3), strings(3)
        a[0, 1] = b[1]
        y, same = run(a, b)
        np.testing.assert_array_equal(y, a + b)
        np.testing.assert_array_equal(same, a == b)


def test_open_sizes_broadcast():
    nodes = [node("StringConcat", "a b"), node("Equal", "a b", "same")]
    run = compiled(nodes, {"a": (S, ["m"]), "b": (S, ["n"])}, {"y": (S, None), "same": (B, None)})
    for m, n in ((3, 3), (1, 4), (4, 1), (1, 1)):
        a, b = strings(m), strings(n)
        y, same = run(a, b)
        np.testing.assert_array_equal(y, a + b)
        np.testing.assert_array_equal(same, a == b)
    with pytest.raises(InputError):
        run(strings(2), strings(3))


def test_strings_move():
    nodes = [
        node("Constant", "", "k", value_ints=[2, 0]),
        node("Constant", "", "more", value_strings=["long enough to widen", ""]),
        node("Gather", "x k", "some", axis=1),
        node("Concat", "some more2", "all", axis=0),
        node("Transpose", "all"),
        node("Constant", "", "pair", value_ints=[1, 2]),
        node("Reshape", "more pair", "more2"),
        node("Shape", "y", "size"),
    ]
    nodes = [*nodes[:2], *nodes[5:7], *nodes[2:5], nodes[7]]
    run = compiled(nodes, {"x": (S, [2, 3])}, {"y": (S, None), "size": (I, None)})
    x = strings(2, 3)
    more = np.array([["long enough to widen", ""]], object)
    y, size = run(x)
    np.testing.assert_array_equal(y, np.concatenate([x[:, [2, 0]], more]).T)
    np.testing.assert_array_equal(size, [2, 3])


@pytest.mark.parametrize("mark,most", [(",", -1), ("aa", 1), ("", -1), ("", 1)])
def test_split(mark, most):
    attributes = {"delimiter": mark} | ({"maxsplit": most} if most >= 0 else {})
    split = node("StringSplit", "x", "y z", **attributes)
    run = compiled([split], {"x": (S, ["n"])}, {"y": (S, None), "z": (I, None)})
    for n in (1, 7):
        x = strings(n)
        parts = [s.split(mark or None, most) for s in x]
        y, z = run(x)
        np.testing.assert_array_equal(z, [len(p) for p in parts])
        assert y.shape == (n, max(map(len, parts)))
        for row, part in zip(y, parts, strict=True):
            assert list(row) == part + [""] * (y.shape[1] - len(part))


@pytest.mark.parametrize("action", ["NONE", "UPPER", "LOWER"])
@pytest.mark.parametrize("exact", [0, 1])
def test_normalizer(action, exact):
    attributes = {"case_change_action": action, "is_case_sensitive": exact}
    nodes = [node("StringNormalizer", "x", stopwords=["die", "Über"], **attributes)]
    run = compiled(nodes, {"x": (S, ["n"])}, {"y": (S, None)})
    change = {"NONE": str, "UPPER": str.upper, "LOWER": str.lower}[action]
    same = str if exact else str.lower
    for words in (["Die", "Kähne", "über", "die", "ÉTÉ"], ["die"], ["Über", "x"]):
        kept = [w for w in words if same(w) not in map(same, ("die", "Über"))]
        (y,) = run(np.array(words, object))
        assert list(y) == ([change(w) for w in kept] or [""])


PATTERNS = [
    r"www\.[\w.-]+\.\bcom\b", r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|\Z)", "a*b+c?",
    "(a|b){2,3}", "(ab){0,2}c{2,}", "[^a]*", "(?:a|)b*?", r"\bab\b a*", "(a|b*)+", r"\Bab", "",
    r"a{0}", r"(a{2}){2,}", r"[a-c\d]{1,}", r"\d+\.?\d*", "日?[ÄŁ]+",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_pythons_do(pattern):
    automaton = compile_pattern(pattern.replace(r"\Z", "$"))
    expected = re.compile(pattern, re.ASCII)
    for _ in range(300):
        text = "".join(random.choice(list("ab c@.1\nÄŁ日"), random.integers(0, 9)))
        state = 0
        for letter in text:
            state = automaton.table[state, np.searchsorted(automaton.edges, ord(letter), "right")]
        assert automaton.accepts[state] == (expected.fullmatch(text) is not None), (pattern, text)


def test_full_match():
    run = compiled(
        [node("RegexFullMatch", "x", pattern="[ab]+ ?")], {"x": (S, ["n"])}, {"y": (B, None)}
    )
    x = strings(40, letters="ab ")
    np.testing.assert_array_equal(run(x)[0], [bool(re.fullmatch("[ab]+ ?", s)) for s in x])


@pytest.mark.parametrize("pattern", ["(a", "a)", "*a", "[a", "(?=a)", "[b-a]", "a{3,1}", r"\p{L}"])
def test_a_pattern_that_is_none_is_refused(pattern):
    with pytest.raises(ImportFault, match="its pattern"):
        compiled(
            [node("RegexFullMatch", "x", pattern=pattern)], {"x": (S, ["n"])}, {"y": (B, None)}
        )


def test_numbers_are_no_strings():
    run = compiled([node("StringConcat", "a a")], {"a": (S, ["n"])}, {"y": (S, None)})
    with pytest.raises(InputError, match="dtype is float32"):
        run(np.ones((2, 3), np.float32))
    with pytest.raises(ImportFault, match="holds elements that Neg does not work on"):
        compiled([node("Neg", "a")], {"a": (S, ["n"])}, {"y": (S, None)})


@pytest.mark.parametrize("code,of", [(TensorProto.FLOAT4E2M1, "float4_e2m1fn")])
def test_small_floats_round_as_ml_dtypes(code, of):
    nodes = [node("Cast", "x", "h", to=code), node("Identity", "h"), node("Cast", "h", "z", to=F)]
    run = compiled(nodes, {"x": (F, ["n"])}, {"y": (code, None), "z": (F, None)})
    x = np.concatenate([random.normal(0, 3, 500), np.arange(-7, 7, 0.25)]).astype(np.float32)
    y, z = run(x)
    expected = x.astype(getattr(ml_dtypes, of))
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(z, expected.astype(np.float32))


def test_small_floats_come_in():
    run = compiled(
        [node("Cast", "x", to=F)], {"x": (TensorProto.FLOAT4E2M1, [3, 5])}, {"y": (F, None)}
    )
    x = random.normal(0, 3, (3, 5)).astype(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(run(x)[0], x.astype(np.float32))


@pytest.mark.parametrize("pixels", ["RGB", "BGR", "Grayscale"])
def test_encoded_images_come_in(pixels):
    inputs = {"x": (TensorProto.UINT8, ["bytes"])}
    nodes = [node("ImageDecoder", "x", "image", pixel_format=pixels), node("Cast", "image", to=F)]
    run = compiled(nodes, inputs, {"y": (F, None)})
    for shape in ((4, 6), (3, 2)):
        image = random.integers(0, 256, (*shape, 3)).astype(np.uint8)
        file = io.BytesIO()
        PIL.Image.fromarray(image).save(file, "png")
        expected = {"RGB": image, "BGR": image[:, :, ::-1]}.get(pixels)
        if expected is None:
            expected = np.array(PIL.Image.fromarray(image).convert("L"))[:, :, None]
        encoded = np.frombuffer(file.getvalue(), np.uint8)
        np.testing.assert_array_equal(run(encoded)[0], expected.astype(np.float32))
    with pytest.raises(InputError, match="no image that Pillow reads"):
        run(encoded[:20])


def test_an_image_that_is_read_otherwise_is_refused():
    nodes = [node("Neg", "x", "z"), node("ImageDecoder", "z")]
    outputs = {"y": (TensorProto.UINT8, None)}
    with pytest.raises(ImportFault, match="is not an input of the model"):
        compiled(nodes, {"x": (TensorProto.INT8, ["bytes"])}, outputs)


def test_labels_chosen_by_numbers():
    """As skl2onnx writes the label of a neural network or of the nearest neighbours."""
    names = helper.make_tensor("names", S, [4], ["cat", "dog", "Ä", ""])
    nodes = [
        node("Constant", "", "c", value=names),
        node("ArrayFeatureExtractor", "c i", domain="ai.onnx.ml"),
    ]
    run = compiled(nodes, {"i": (I, ["n", 1])}, {"y": (S, None)})
    for numbers in ([2], [3, 0, 1, 1, 2]):
        (y,) = run(np.array(numbers, np.int64)[:, None])
        np.testing.assert_array_equal(y, np.array([["cat", "dog", "Ä", ""]])[:, numbers])
