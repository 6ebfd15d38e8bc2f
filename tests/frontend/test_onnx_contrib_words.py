"""Hashes of n-grams, words of letters, guesses and paths of com.microsoft, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.test_onnx_contrib_more import check, floats, made_of
from tilewright.support.errors import InputError

HEADS, ORDER = 2, 3
HASHED = {"max_ngram_size": ORDER, "n_head_per_ngram": HEADS, "pad_id": 1}


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(17)


@pytest.mark.sampled
@pytest.mark.parametrize("of", [np.int64, np.int32])
@pytest.mark.parametrize(
    ("past", "ends", "segments"),
    [(False, False, False), (True, True, False), (False, True, True), (True, False, True)],
)
def test_hashes_of_ngrams(
    draw: np.random.Generator, past: bool, ends: bool, segments: bool, of: Any
) -> None:
    parts: dict[str, Any] = {
        "ids": (2, "n"),
        "by": np.array([7919, -104729, 1299709], of),
        "vocabulary": np.array([11, 13, 17, 19], of),
        "past": (2, ORDER - 1) if past else None,
        "offsets": np.array([0, 100, 200, 300], of) if ends else None,
        "end": np.array(3, of) if ends else None,
        "segments": (2, "n") if segments else None,
    }
    runs = []
    for n in (9, 1):
        feed = {"ids": draw.integers(0, 6, (2, n)).astype(of)}
        if past:
            feed["past"] = draw.integers(0, 6, (2, ORDER - 1)).astype(of)
        if segments:
            feed["segments"] = np.cumsum(draw.random((2, n)) < 0.3, 1).astype(np.int32)
        runs.append(feed)
    letters = "ll" if of is np.int64 else "ii"
    check("NGramHashMapping", parts, *runs, results=letters, reset_on_eos=int(ends), **HASHED)


@pytest.mark.parametrize(
    ("past", "ends", "segments"),
    [(False, False, False), (True, True, False), (False, True, True), (True, False, True)],
)
def test_hashes_of_packed_requests(
    draw: np.random.Generator, past: bool, ends: bool, segments: bool
) -> None:
    of, back = np.int64, ORDER - 1
    parts: dict[str, Any] = {
        "ids": ("t",),
        "by": np.array([7919, -104729, 1299709], of),
        "vocabulary": np.array([11, 13, 17, 19], of),
        "lengths": ("b1",),
        "past": ("b", back) if past else None,
        "offsets": np.array([0, 100, 200, 300], of) if ends else None,
        "end": np.array(3, of) if ends else None,
        "segments": ("t",) if segments else None,
        "past_segments": ("b", back) if segments and past else None,
    }
    runs = []
    for lengths in ([4, 1, 2], [1], [3, 5]):
        count, total = len(lengths), sum(lengths)
        feed = {"ids": draw.integers(0, 6, total), "lengths": np.cumsum([0, *lengths])}
        feed["lengths"] = feed["lengths"].astype(np.int32)
        if past:
            feed["past"] = draw.integers(0, 6, (count, back))
        if segments:
            feed["segments"] = np.cumsum(draw.random(total) < 0.3).astype(np.int32)
        if segments and past:
            feed["past_segments"] = draw.integers(0, 2, (count, back)).astype(np.int32)
        runs.append(feed)
    results = "lli" if segments else "ll"
    check("VarlenNGramHashMapping", parts, *runs, results=results, reset_on_eos=int(ends),
          **HASHED)  # fmt: skip


@pytest.mark.parametrize("taps", [1, 2, 3])
def test_words_of_letters(draw: np.random.Generator, taps: int) -> None:
    parts = {"words": ("n", 5), "w": floats(draw, 4, 1, taps, 3), "b": floats(draw, 4),
             "table": floats(draw, 10, 3)}  # fmt: skip
    words = [[1, 2, 3, 0, 0], [4, 5, 6, 0, 0], [5, 6, 7, 8, 9], [1, 2, 0, 3, 4]]
    runs = [{"words": np.array(some, np.int32)} for some in (words, words[2:3])]
    check("WordConvEmbedding", parts, *runs)
    exe, _ = made_of("WordConvEmbedding", parts, runs)
    none = np.array([[0, 5, 6, 0, 1], [4, 0, 0, 0, 0]], np.int32)
    y = exe(words=none)[0]
    assert not y[0].any() and y[1].any()


def test_guesses_that_the_source_bears_out(draw: np.random.Generator) -> None:
    parts: dict[str, Any] = {"source": ("s",), "said": ("c",), "start": (1,), "guess": ("g",)}
    runs: list[dict[str, np.ndarray]] = []
    for _ in range(40):
        source, start = draw.integers(0, 3, draw.integers(2, 9)), 0
        start = int(draw.integers(0, len(source) + 1))
        guess = np.append(source[start:], 1)
        guess[draw.integers(0, len(guess))] = draw.integers(0, 3)
        said = draw.integers(0, 3, draw.integers(1, 5))
        runs.append({"source": source, "said": said, "start": np.array([start]), "guess": guess})
    check("BifurcationDetector", parts, *runs, results="ll", min_ngram_size=1, max_ngram_size=3)
    first = [{k: v for k, v in run.items() if k != "guess"} for run in runs]
    attrs: dict[str, Any] = {"min_ngram_size": 2, "max_ngram_size": 4}
    check("BifurcationDetector", {**parts, "guess": None}, *first, results="ll", **attrs)
    exe, _ = made_of("BifurcationDetector", parts, runs, "ll")
    with pytest.raises(InputError):
        exe(**{**runs[0], "guess": np.arange(20)})


@pytest.mark.parametrize("sizes", [("m", "n"), (1, "m", "n"), (5, 7)])
def test_paths_of_least_cost(draw: np.random.Generator, sizes: tuple[Any, ...]) -> None:
    runs = []
    for m, n in (5, 7), (1, 4), (6, 1), (1, 1), (9, 9):
        shape = (*[1] * (len(sizes) - 2), m, n)
        runs.append({"cost": floats(draw, *shape)})
        runs.append({"cost": draw.integers(0, 3, shape).astype(np.float32)})
    check("DynamicTimeWarping", {"cost": sizes}, *(runs[:2] if sizes == (5, 7) else runs),
          results="i")  # fmt: skip
