"""One row of an open number goes by a matrix that the run computes as it is; both products of the
choice write where its result lies."""

import numpy as np
import pytest

import tilewright as tw
from tests.graph.rewriting import graph, ops, rewritten
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.one_row import one_row
from tilewright.graph.passes.plan_memory import plan_memory

SCORES = """
    def g(q: f32[2, t, 8], k: f32[2, n, 8], v: f32[2, n, 8]):
        s: f32[2, t, n] = matmul(q, k, transpose_b=True)
        p: f32[2, t, n] = softmax(s)
        y: f32[2, t, 8] = matmul(p, v)
        return {"y": y}
"""


def test_a_product_with_what_the_run_made_has_one_for_a_single_row():
    after = rewritten(one_row, graph(SCORES))
    assert ops(after).count("matmul") == 3  # the second has no open width
    assert ops(after)[:2] == ["size_values", "equal"]  # the condition is there before its branches


def test_what_follows_element_by_element_is_on_both_sides():
    after = rewritten(one_row, graph(SCORES.replace("softmax(s)", "relu(s)")))
    assert ops(after).count("relu") == 2
    (choice,) = [g for g in fuse(after).groups if g.joins]
    assert choice.ops == ("where",)


@pytest.mark.parametrize(
    "text",
    [
        SCORES.replace("[2, t, ", "[2, 5, "),
        SCORES.replace("[2, n, ", "[2, 9, ").replace(", n]", ", 9]"),
        SCORES.replace("[2, t, ", "[2, n, "),
    ],
    ids=["known rows", "known width", "as many columns as rows"],
)
def test_other_products_stay(text):
    before = graph(text)
    assert one_row(before) is before


def test_what_a_run_makes_one_of_lies_where_the_choice_does():
    fused = fuse(one_row(graph(SCORES)))
    (choice,) = [g for g in fused.groups if g.joins]
    locations = plan_memory(fused).locations
    assert choice.is_view
    assert {locations[v] for v in choice.anchor.inputs[1:]} == {locations[choice.outputs[0]]}


def test_what_others_read_too_is_copied():
    fused = fuse(
        graph(
            """
            def g(c: bool[1], x: f32[n, 8], y: f32[n, 8]):
                a: f32[n, 8] = sin(x)
                b: f32[n, 8] = cos(y)
                z: f32[n, 8] = where(c, a, b)
                return {"z": z, "a": a}
            """
        )
    )
    assert not any(g.joins for g in fused.groups)


@pytest.mark.parametrize("is_output", [False, True])
def test_choices_of_branches_are_no_code(is_output):
    g = graph(
        f"""
        def g(c: bool[1], x: f32[n, 8], y: f32[n, 8]):
            a: f32[n, 8] = sin(x)
            b: f32[n, 8] = cos(y)
            z: f32[n, 8] = where(c, a, b)
            s: f32[n] = reduce_sum(z, axes=(1,), keepdims=False)
            return {{"{"z" if is_output else "s"}": {"z" if is_output else "s"}}}
        """
    )
    x, y = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    exe = tw.compile(g, cache=False)
    for holds in (True, False, True):
        (found,) = exe(np.array([holds]), x, y)
        z = np.sin(x) if holds else np.cos(y)
        np.testing.assert_allclose(found, z if is_output else z.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_any_number_of_rows(threads):
    exe = tw.compile(graph(SCORES), threads=threads, cache=False)
    random = np.random.default_rng(1)
    for rows, keys in ((1, 9), (5, 9), (1, 1), (2, 40), (1, 300), (0, 3)):
        q, k, v = (random.standard_normal((2, n, 8)).astype(np.float32) for n in (rows, keys, keys))
        p = np.exp(q @ k.transpose(0, 2, 1))
        (found,) = exe(q, k, v)
        np.testing.assert_allclose(found, p / p.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)
