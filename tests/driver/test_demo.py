"""The demo: every held-out digit, beside ONNX Runtime; it tells when something is wrong."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from rich.console import Console

from tilewright.driver.demo import digits
from tilewright.support.errors import CompileError


def run(**options) -> tuple[bool, str]:
    out = io.StringIO()
    well = digits.run_digits(Console(file=out, width=160), seconds=0.05, **options)
    return well, out.getvalue()


def test_all_is_well():
    well, printed = run(threads=2)
    assert well
    assert "predictions  360 of 360 equal onnxruntime's" in printed
    for part in ("compile stages", "the fused graph", "conv → add → relu", "accuracy", "ours /"):
        assert part in printed


def test_it_tells_what_is_wrong_or_missing(monkeypatch):
    monkeypatch.setattr(digits, "LEAST_ACCURACY", 1.0)
    monkeypatch.setattr(digits, "REFERENCE", "no_such_package")
    well, printed = run()
    assert not well and "something is wrong" in printed
    assert "no_such_package is not installed: nothing to compare with" in printed


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(CompileError, match="its images come with scikit-learn"):
        run()


def test_no_image_was_trained_on():
    pytest.importorskip("torch")
    from examples.digits.train import split

    images, labels = digits.held_out()
    (trained, _), (kept, kept_labels) = split()
    np.testing.assert_array_equal(images, kept)
    np.testing.assert_array_equal(labels, kept_labels)
    assert len(images) == 360 and len(trained) + len(images) == 1797
