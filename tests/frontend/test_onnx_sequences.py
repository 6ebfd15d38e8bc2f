"""Sequences and optional values of which only the run knows what they hold: one compilation
against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

from tilewright.driver.kernels import KernelPool
from tilewright.driver.onnx_backend import Prepared
from tilewright.support.errors import ImportFault, InputError

POOL = KernelPool(1)
random = np.random.default_rng(31)


def model(text, outputs=()):
    """A model from ONNX's text; `outputs` that are sequences or optional: (name, type)."""
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, kind in outputs:
        made.graph.output.add(name=name, type=kind)
    return made


def tensors(rank=1, of=TensorProto.FLOAT):
    return helper.make_tensor_type_proto(of, [None] * rank)


def sequence(of):
    return helper.make_sequence_type_proto(of)


def f(*shape):
    return random.uniform(-1, 1, shape).astype(np.float32)


def i(*values):
    return np.array(values[0] if len(values) == 1 else values, np.int64)


def same(made, expected):
    if expected is None or made is None:
        assert made is expected
    elif isinstance(expected, list):
        assert len(made) == len(expected)
        for a, b in zip(made, expected, strict=True):
            same(a, b)
    else:
        assert made.shape == expected.shape
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def agree(proto, *runs):
    """One compilation serves all runs."""
    onnx.checker.check_model(proto)
    run = Prepared(proto, POOL)
    peer = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [e.name for e in proto.graph.input]
    for arrays in runs:
        expected = peer.run(None, dict(zip(names, arrays, strict=True)))
        same(list(run.run(arrays)), expected)
    assert len(run.made) == 1
    return run


AXES = [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)]


@pytest.mark.parametrize("axis", AXES)
def test_parts_that_the_run_makes(axis):
    proto = model(
        f"""g (float[a, b, c] x, int64 size, int64 k, float[2, 1, 3] y)
        => (int64 count, float[d, e, f] one, float[g, h, i] all, float[n, o, p, q] heap) {{
            parts = SplitToSequence <axis = {axis}> (x, size)
            count = SequenceLength (parts)
            one = SequenceAt (parts, k)
            less = SequenceErase (parts, k)
            more = SequenceInsert (less, one, k)
            all = ConcatFromSequence <axis = {axis}> (more)
            single = SequenceConstruct (y)
            twice = SequenceInsert (single, y)
            here = Mod (k, count)
            third = SequenceInsert (twice, y, here)
            heap = ConcatFromSequence <axis = {axis + 1}, new_axis = 1> (third)
        }}"""
    )
    run = agree(
        proto,
        (f(4, 5, 6), i(2), i(1), f(2, 1, 3)),
        (f(3, 7, 5), i(3), i(0), f(2, 1, 3)),
        (f(6, 6, 6), i(4), i(-1), f(2, 1, 3)),
    )
    for bad in ((i(0), i(0)), (i(2), i(9))):  # no parts, and a position outside
        with pytest.raises(InputError):
            run.run((f(4, 4, 4), *bad, f(2, 1, 3)))


def test_elements_of_unlike_ranks_and_an_axis_of_any_size():
    proto = model(
        """g (float[n, m] x, int64 k, float s, float[2] v) => () {
            rows = SplitToSequence <axis = 0, keepdims = 0> (x)
            some = SequenceConstruct (s, v, s)
            mixed = SequenceInsert (some, v, k)
            left = SequenceErase (mixed, k)
            back = SequenceInsert (rows, v)
        }""",
        [("mixed", sequence(tensors(0))), ("left", sequence(tensors(0))),
         ("back", sequence(tensors(1)))],
    )  # fmt: skip
    for value in proto.graph.output:  # whose elements have one rank or another
        value.type.sequence_type.elem_type.tensor_type.ClearField("shape")
    agree(
        proto, (f(3, 2), i(0), f(), f(2)), (f(1, 4), i(2), f(), f(2)), (f(2, 1), i(-1), f(), f(2))
    )


def test_branches_of_unlike_shapes_and_lengths():
    proto = model(
        """g (bool yes, float[a, b] x, float[c, b] y) => () {
            z, some = If (yes) <
                then_branch = then () => (float[d, e] z1, seq(float[d, e]) s1) {
                    z1 = Add (x, x)
                    s1 = SequenceConstruct (x, y, x)
                },
                else_branch = other () => (float[d, e] z2, seq(float[d, e]) s2) {
                    z2 = Neg (y)
                    s2 = SequenceConstruct (y)
                }>
            total = ConcatFromSequence <axis = 0> (some)
            count = SequenceLength (some)
        }""",
        [("z", tensors(2)), ("some", sequence(tensors(2))), ("total", tensors(2)),
         ("count", tensors(0, TensorProto.INT64))],
    )  # fmt: skip
    runs = [(np.array(yes), f(2, 3), f(4, 3)) for yes in (True, False)]
    agree(proto, *runs, (np.array(True), f(5, 2), f(5, 2)))


def optional_model():
    optional = helper.make_optional_type_proto(tensors(1))
    return model(
        """g (bool yes, float[n] x) => () {
            kept = If (yes) <
                then_branch = then () => (optional(float[n]) some) { some = Optional (x) },
                else_branch = other () => (optional(float[n]) none) {
                    none = Optional <type: type_proto = float[n]> () }>
            there = OptionalHasElement (kept)
            y = If (there) <
                then_branch = t () => (float[n] a) { a = OptionalGetElement (kept) },
                else_branch = o () => (float[n] b) { b = Neg (x) }>
        }""",
        [("there", tensors(0, TensorProto.BOOL)), ("kept", optional)],
    )


def test_what_may_not_be_there():
    run = Prepared(optional_model(), POOL)
    x = f(3)
    for yes in (True, False):
        there, kept = run.run((np.array(yes), x))
        assert bool(there) is yes
        same(kept, x if yes else None)
    proto = model("g (bool yes, float[n] x) => (float[n] y) { y = Neg (x) }")
    proto.graph.ClearField("node")
    proto.graph.node.extend(optional_model().graph.node[:1])
    proto.graph.node.append(helper.make_node("OptionalGetElement", ["kept"], ["y"]))
    run = Prepared(proto, POOL)
    same(list(run.run((np.array(True), x))), [x])
    with pytest.raises(InputError, match="element"):
        run.run((np.array(False), x))


def test_refusals_say_what_depends_on_data():
    proto = model(
        """g (float s, float[2] v, int64 k) => (float[n] y) {
            both = SequenceConstruct (s, v)
            y = SequenceAt (both, k)
        }"""
    )
    with pytest.raises(ImportFault, match="which rank the element has depends on data"):
        Prepared(proto, POOL)


GROWS = """g (int64 n, bool go, float[2, 3] h0, float[6] x)
=> (float[2, 3] h, float[a, b, c] rows) {
    none = SequenceEmpty ()
    one = SequenceConstruct (h0)
    h, all, parts, rows = Loop (n, go, h0, one, none) <body = body
        (int64 i, bool c, float[2, 3] h_in, seq(float[2, 3]) all_in, seq(float[d]) parts_in)
        => (bool on, float[2, 3] h_out, seq(float[2, 3]) all_out, seq(float[d]) parts_out,
            float[2, 3] row) {
        on = Identity (c)
        h_out = Tanh (h_in)
        half = SequenceInsert (all_in, h_in)
        all_out = SequenceInsert (half, h_out)
        unit = Constant <value = int64[1] {1}> ()
        two = Constant <value = int64[1] {2}> ()
        zero = Constant <value = int64[1] {0}> ()
        least = Mod (i, two)
        most = Add (i, two)
        part = Slice (x, least, most, zero, unit)
        wide = Mul (part, part)
        parts_out = SequenceInsert (parts_in, wide)
        row = Neg (h_out)
    }>
    flat = ConcatFromSequence <axis = 1> (all)
    line = ConcatFromSequence <axis = 0> (parts)
    count = SequenceLength (parts)
}"""


def test_loops_that_make_sequences():
    proto = model(
        GROWS,
        [("flat", tensors(2)), ("line", tensors(1)), ("count", tensors(0, TensorProto.INT64)),
         ("all", sequence(tensors(2))), ("parts", sequence(tensors(1)))],
    )  # fmt: skip
    agree(proto, *((i(n), np.array(True), f(2, 3), f(6)) for n in (1, 3, 9)))
    run = Prepared(proto, POOL)
    h0 = f(2, 3)
    h, rows, flat, line, count, every, parts = run.run((i(0), np.array(True), h0, f(6)))
    same([h, rows, flat, line, every, parts], [h0, f(0, 2, 3), h0, f(0), [h0], []])
    assert count == 0


def test_sizes_that_a_state_tells():
    proto = model(
        """g (int64 n, bool go, float[1] y0, float[5] x) => (float[1] y, float[k, 1] rows) {
            y, rows = Loop (n, go, y0) <body = body (int64 i, bool c, float[1] y_in)
                => (bool on, float[1] y_out, float[1] row) {
                on = Identity (c)
                unit = Constant <value = int64[1] {1}> ()
                zero = Constant <value = int64[1] {0}> ()
                first = Reshape (i, unit)
                last = Add (first, unit)
                one = Slice (x, first, last, zero)
                y_out = Add (y_in, one)
                row = Identity (y_out)
            }>
        }"""
    )
    run = agree(proto, *((i(n), np.array(True), f(1), f(5)) for n in (1, 4, 5)))
    with pytest.raises(InputError, match="the sizes that the rounds found"):
        run.run((i(6), np.array(True), f(1), f(5)))  # the last slice is empty


def test_a_sequence_that_grows_is_read():
    proto = model(
        """g (int64 n, bool go, float[k] x) => () {
            first = SequenceConstruct (x)
            all = Loop (n, go, first) <body = body (int64 i, bool c, seq(float[m]) have)
                => (bool on, seq(float[m]) more) {
                on = Identity (c)
                one = Constant <value = int64 {1}> ()
                count = SequenceLength (have)
                at = Sub (count, one)
                last = SequenceAt (have, at)
                twice = Concat <axis = 0> (last, x)
                more = SequenceInsert (have, twice)
            }>
        }""",
        [("all", sequence(tensors(1)))],
    )
    runs = [(i(n), np.array(go), f(k)) for n in (0, 1, 4) for go in (True, False) for k in (0, 3)]
    agree(proto, *runs)


def test_rounds_that_put_longer_and_longer_tensors_behind_a_scalar():
    """What test_loop16_seq_none computes, whose own comparison takes the length of a scalar."""
    proto = model(
        """g (int64 n, bool go, float s, float[5] x) => () {
            one = SequenceConstruct (s)
            all = Loop (n, go, one) <body = body (int64 i, bool c, seq(float) have)
                => (bool on, seq(float) more) {
                on = Identity (c)
                unit = Constant <value = int64[1] {1}> ()
                zero = Constant <value = int64[1] {0}> ()
                first = Reshape (i, unit)
                last = Add (first, unit)
                part = Slice (x, zero, last)
                more = SequenceInsert (have, part)
            }>
        }""",
        [("all", sequence(tensors(0)))],
    )
    proto.graph.output[0].type.sequence_type.elem_type.tensor_type.ClearField("shape")
    body = proto.graph.node[1].attribute[0].g
    for entry in (body.input[2], body.output[1]):
        entry.type.sequence_type.elem_type.tensor_type.ClearField("shape")
    run, x = Prepared(proto, POOL), f(5)
    for n in (1, 5, 7):  # the slice ends with x
        (made,) = run.run((i(n), np.array(True), np.float32(2), x))
        same(made, [np.array(2, np.float32), *(x[: k + 1] for k in range(n))])


@pytest.mark.parametrize(("axis", "told"), [(-1, "a"), (0, "")])
def test_a_rank_that_only_the_model_tells(axis, told):
    """Elements behind one of another rank that is erased: the result says which rank they have."""
    proto = model(
        f"""g (int64 n, bool go, float s, float[k] x, int64 at) => (float[{told or "a"}] y) {{
            one = SequenceConstruct (s)
            all = Loop (n, go, one) <body = body (int64 i, bool c, seq(float) have)
                => (bool on, seq(float) more) {{
                on = Identity (c)
                y = Mul (x, s)
                more = SequenceInsert (have, y)
            }}>
            rest = SequenceErase (all, at)
            y = ConcatFromSequence <axis = {axis}> (rest)
        }}"""
    )
    body = proto.graph.node[1].attribute[0].g
    for entry in (body.input[2], body.output[1]):
        entry.type.sequence_type.elem_type.tensor_type.ClearField("shape")
    if not told:
        proto.graph.output[0].type.tensor_type.ClearField("shape")
        with pytest.raises(ImportFault, match="must have one rank that is known"):
            Prepared(proto, POOL)
        return
    run, x, s = Prepared(proto, POOL), f(5), np.float32(2)
    for n in (1, 4):
        (made,) = run.run((i(n), np.array(True), s, x, i(0)))
        np.testing.assert_array_equal(made, np.concatenate([x * s] * n))
    with pytest.raises(InputError, match="elements of rank 1"):
        run.run((i(2), np.array(True), s, x, i(1)))
