"""Loops and scans inside loops and branches, and loops that data alone ends: against
onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import parser

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import evaluate, parse

POOL = KernelPool(1)  # kernels are compiled in this process: they are few and small
HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
ALWAYS = """
    yes = Constant <value_int: int = 1> ()
    t = Cast <to: int = 9> (yes)
"""


def agree(text: str, *runs: dict[str, Any]) -> None:
    """One compilation serves all runs."""
    model = parser.parse_model(HEAD + text.replace("ALWAYS", ALWAYS))
    graph = import_onnx(model)
    assert parse(str(graph)) == graph
    exe = compile_observed(graph, cache=False, pool=POOL)
    peer: Any = onnxruntime.InferenceSession(model.SerializeToString())
    for run in runs:
        given = {k: np.asarray(v) for k, v in run.items()}
        wanted = peer.run(None, given)
        for made in (exe(*given.values()), evaluate(graph, list(given.values()))):
            for a, b in zip(made, wanted, strict=True):
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


X = np.array([1, 2, 3], np.float32)


def test_a_loop_in_a_loop() -> None:
    agree(
        """
        g (int64 n, int64 m, float[3] x) => (float[3] y) {
          ALWAYS
          y = Loop (n, t, x) <body = body (int64 i, bool c, float[3] h) => (bool co, float[3] hh) {
             co = Identity(c)
             hh = Loop (m, c, h) <body = inner (int64 j, bool d, float[3] k)
                => (bool do, float[3] kk) {
                do = Identity(d)
                ij = Add(i, j)
                f = Cast <to: int = 1> (ij)
                s = Sin(k)
                kk = Add(s, f)
             }>
          }>
        }
        """,
        *({"n": n, "m": m, "x": X} for n, m in ((2, 3), (0, 3), (3, 0), (5, 7))),
    )


def test_as_many_rounds_as_the_round_before_had() -> None:
    agree(
        """
        g (int64 n, float[3] x) => (float[3] y) {
          ALWAYS
          y = Loop (n, t, x) <body = body (int64 i, bool c, float[3] h) => (bool co, float[3] hh) {
             co = Identity(c)
             hh = Loop (i, c, h) <body = inner (int64 j, bool d, float[3] k)
                => (bool do, float[3] kk) {
                do = Identity(d)
                f = Cast <to: int = 1> (j)
                s = Sin(k)
                kk = Add(s, f)
             }>
          }>
        }
        """,
        *({"n": n, "x": X} for n in (0, 1, 2, 5)),
    )


def test_a_loop_in_a_branch_in_a_loop() -> None:
    agree(
        """
        g (int64 n, float[3] x) => (float[3] y) {
          ALWAYS
          two = Constant <value_int: int = 2> ()
          zero = Constant <value_int: int = 0> ()
          y = Loop (n, t, x) <body = body (int64 i, bool c, float[3] h) => (bool co, float[3] hh) {
             co = Identity(c)
             r = Mod(i, two)
             e = Equal(r, zero)
             hh = If (e) <then_branch = th () => (float[3] a) {
                a = Loop (i, c, h) <body = inner (int64 j, bool d, float[3] k)
                => (bool do, float[3] kk) {
                  do = Identity(d)
                  kk = Sin(k)
                }>
             }, else_branch = el () => (float[3] a2) { a2 = Exp(h) }>
          }>
        }
        """,
        *({"n": n, "x": X} for n in (0, 1, 3, 6)),
    )


def test_a_scan_in_a_loop_and_what_both_give() -> None:
    agree(
        """
        g (int64 n, float[L,3] x, float[3] s) => (float[3] y, float[p,q,r] z) {
          ALWAYS
          y, z = Loop (n, t, s) <body = body (int64 i, bool c, float[3] h)
                => (bool co, float[3] hh, float[w,3] rows) {
             co = Identity(c)
             hh, rows = Scan <num_scan_inputs = 1, body = inner (float[3] k, float[3] r)
                => (float[3] kk, float[3] o) {
                a = Add(k, r)
                kk = Tanh(a)
                o = Identity(kk)
             }> (h, x)
          }>
        }
        """,
        *({"n": n, "x": np.ones((m, 3), np.float32), "s": X} for n, m in ((2, 4), (3, 1))),
    )


def test_a_loop_that_its_state_ends() -> None:
    agree(
        """
        g (float x0, float lim) => (float y, float[k] rows) {
          ALWAYS
          y, rows = Loop (, t, x0) <body = body (int64 i, bool c, float h)
                => (bool co, float hh, float row) {
             two = Constant <value_float: float = 1.5> ()
             hh = Mul(h, two)
             row = Identity(h)
             co = Less(hh, lim)
          }>
        }
        """,
        *({"x0": np.float32(a), "lim": np.float32(b)} for a, b in ((1, 100), (1, 0.5), (3, 1e9))),
    )


def test_loops_that_their_state_ends_inside_another() -> None:
    agree(
        """
        g (int64 n) => (int64[k] rows) {
          ALWAYS
          zero = Constant <value_int: int = 0> ()
          last, rows = Loop (n, t, zero) <body = body (int64 i, bool c, int64 s)
                => (bool co, int64 so, int64 row) {
             co = Identity(c)
             so = Identity(s)
             one = Constant <value_int: int = 1> ()
             two = Constant <value_int: int = 2> ()
             three = Constant <value_int: int = 3> ()
             z = Constant <value_int: int = 0> ()
             start = Add(i, one)
             g1 = Greater(start, one)
             q, row = Loop (, g1, start, z) <body = inner (int64 j, bool d, int64 k, int64 steps)
                => (bool do, int64 kk, int64 so2) {
                half = Div(k, two)
                tr = Mul(k, three)
                tr1 = Add(tr, one)
                rest = Mod(k, two)
                even = Equal(rest, z)
                kk = Where(even, half, tr1)
                so2 = Add(steps, one)
                do = Greater(kk, one)
             }>
          }>
        }
        """,
        {"n": 1},
        {"n": 30},
    )


def test_three_loops() -> None:
    agree(
        """
        g (int64 n, int64 m, float[2] x) => (float[2] y) {
          ALWAYS
          y = Loop (n, t, x) <body = b1 (int64 i, bool c, float[2] h) => (bool co, float[2] hh) {
             co = Identity(c)
             hh = Loop (m, c, h) <body = b2 (int64 j, bool d, float[2] k)
                => (bool do, float[2] kk) {
                do = Identity(d)
                kk = Loop (n, d, k) <body = b3 (int64 l, bool e, float[2] u)
                => (bool eo, float[2] uu) {
                  eo = Identity(e)
                  f0 = Add(i, j)
                  f1 = Add(f0, l)
                  f = Cast <to: int = 1> (f1)
                  s = Sin(u)
                  uu = Add(s, f)
                }>
             }>
          }>
        }
        """,
        *({"n": n, "m": m, "x": X[:2]} for n, m in ((2, 3), (0, 3), (3, 0), (3, 2))),
    )


def test_what_each_round_gives_of_as_many_rounds() -> None:
    agree(
        """
        g (int64 n, int64 m, float[2] x) => (float[2] y, float[a,b,c] z) {
          ALWAYS
          y, z = Loop (n, t, x) <body = b1 (int64 i, bool c, float[2] h)
                => (bool co, float[2] hh, float[w,2] rows) {
             co = Identity(c)
             hh, rows = Loop (m, c, h) <body = b2 (int64 j, bool d, float[2] k)
                => (bool do, float[2] kk, float[2] row) {
                do = Identity(d)
                kk = Sin(k)
                row = Identity(k)
             }>
          }>
        }
        """,
        *({"n": n, "m": m, "x": X[:2]} for n, m in ((2, 3), (3, 1))),
    )


def test_values_around_a_loop_that_are_called_as_its_own_are() -> None:
    agree(
        """
        g (int64 n, int64 round, float[3] state0, float[3] x) => (float[3] y) {
          ALWAYS
          y = Loop (n, t, x) <body = body (int64 i, bool c, float[3] h)
              => (bool co, float[3] hh) {
            co = Identity(c)
            r = Cast <to: int = 1> (round)
            a = Add(h, r)
            hh = Add(a, state0)
          }>
        }
        """,
        {"n": 3, "round": 7, "state0": 2 * X, "x": X},
    )
