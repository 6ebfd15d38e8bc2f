"""One artifact with code for several machines: each variant computes the same on shared weights,
the loader picks the first that fits, and lists that make no sense are refused."""

from __future__ import annotations

import dataclasses
import io
import platform

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import tilewright as tw
from tests.driver.conftest import DIGITS
from tilewright.driver.compile import compile_graph
from tilewright.driver.identity import artifact_key
from tilewright.driver.source import open_source
from tilewright.runtime.artifact import write_artifact
from tilewright.support.errors import CompileError
from tilewright.target.target import target

LINES = ["cpu -mcpu=skylake-avx512", "cpu -mcpu=haswell", "cpu -mcpu=nehalem"]
x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the variants are x86's"
)


class Reader(nn.Module):
    """An LSTM over 5 steps and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(24, 40), nn.Linear(40, 70)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0])


def digits() -> tuple[str, torch.Tensor, np.ndarray]:
    session = onnxruntime.InferenceSession(str(DIGITS), providers=["CPUExecutionProvider"])
    shape = [d if isinstance(d, int) else 1 for d in session.get_inputs()[0].shape]
    x = torch.from_numpy(np.random.default_rng(0).random(shape, np.float32))
    return str(DIGITS), x, session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


def of_torch(module: nn.Module, *shape: int) -> tuple[nn.Module, torch.Tensor, np.ndarray]:
    x = torch.from_numpy(np.random.default_rng(1).standard_normal(shape, np.float32))
    with torch.no_grad():
        return module.eval(), x, module(x).numpy()


def encoder() -> nn.Module:
    """A transformer's layer whose products have many rows and panels of several vectors."""
    return nn.TransformerEncoderLayer(96, 4, 200, batch_first=True)


MODELS = {
    "convolutions": digits,
    "lstm": lambda: of_torch(Reader(), 5, 1, 24),
    "transformer": lambda: of_torch(encoder(), 1, 33, 96),
}


@x86
@pytest.mark.parametrize("name", MODELS)
def test_every_variant_computes_the_same(name):
    torch.manual_seed(0)
    source, x, expected = MODELS[name]()
    graph = open_source(source, (x,) if isinstance(source, nn.Module) else None).graph()
    machines = [target(line) for line in LINES]
    program = compile_graph(graph, machines, threads=2)
    assert [v.features for v in program.variants] == [tuple(sorted(m.features)) for m in machines]
    fits = [m.features <= target("cpu").features for m in machines]
    for masked in range(len(LINES)):  # a machine that has not what the first ones need
        if not any(fits[masked:]):
            continue
        file = io.BytesIO()
        rest = dataclasses.replace(program, variants=program.variants[masked:])
        write_artifact(rest, file)
        exe = tw.load(file.getvalue(), threads=2)
        assert exe.variant == fits[masked:].index(True)
        (found,) = exe(x.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@x86
def test_a_list_makes_one_artifact(command, model):
    one = tw.compile(model, target=LINES[1:], threads=1)
    assert one.manifest.notes["targets"] == [str(target(line)) for line in LINES[1:]]
    assert one.variant == (0 if target(LINES[1]).features <= target("cpu").features else 1)
    options = [word for line in LINES for word in ("--target", line)]
    status, _, errors = command("compile", model, "-o", "all.tw", "--threads", 1, *options)
    assert (status, errors) == (0, "")
    printed = command("inspect", "all.tw")[1]
    assert all(str(target(line)) in printed for line in LINES)
    assert printed.count("; this machine runs it") == 1


def test_another_list_is_another_artifact():
    keys = [
        artifact_key("m", targets, 1, 3)
        for targets in ("cpu", LINES[0], LINES[:2], LINES[1::-1], LINES)
    ]
    assert len(set(keys)) == len(keys)
    assert artifact_key("m", [LINES[0]], 1, 3) == artifact_key("m", LINES[0], 1, 3)


@pytest.mark.parametrize(
    ("targets", "why", "remedy"),
    [
        ([], "the list names no machine", "name one or more"),
        ([LINES[1], "cuda"], "whole models run on CPUs", "use target='cpu'"),
        (
            [LINES[0], "cpu -mcpu=neoverse-n1"],
            "x86_64 and aarch64 are two architectures",
            "compile an artifact for each",
        ),
        ([LINES[1], LINES[1]], "the second would never run", "leave one out"),
        ([LINES[2], LINES[0]], "the second would never run", "name the one that needs more"),
        ([LINES[1], "cpu -mcpu=skylake"], "the second would never run", "leave one out"),
    ],
)
def test_lists_that_make_no_sense_are_refused(targets, why, remedy, model):
    with pytest.raises(CompileError) as told:
        tw.compile(model, target=targets)
    asked, *_ = str(told.value).partition(":")
    assert asked.startswith("cannot compile")
    assert why in str(told.value) and remedy in str(told.value)
