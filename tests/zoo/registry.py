"""Which models there are: a name in, a `Model` out; adding a model is adding a line to TABLE."""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tests.zoo import light, networks, others, weights
from tests.zoo.export import export

EDITION = 1  # raise when a change alters the files, so that cached ones are not used again

Inputs = dict[str, np.ndarray]
LAYERS = range(12)  # of GPT-2 small
PAST = 128


@dataclass(frozen=True)
class Entry:
    """How to build a model and what it takes: `inputs(random, batch)` gives fresh arrays."""

    build: Callable[[], nn.Module]
    inputs: Callable[[np.random.Generator, int], Inputs]
    outputs: list[str]
    opset: int = 18
    batches: tuple[int, ...] = (1, 2)


def normal(name: str, *shape: int) -> Callable[[np.random.Generator, int], Inputs]:
    """One input f32[n, *shape] of standard normal values."""
    return lambda random, n: {name: random.standard_normal((n, *shape), np.float32)}


def frames(random: np.random.Generator, n: int) -> Inputs:
    return {"frames": random.random((n, 4, 84, 84), np.float32)}


def sentence(random: np.random.Generator, n: int) -> Inputs:
    state = (2, n, 650)
    return {
        "tokens": random.integers(0, 10000, (35, n)),
        "h": random.uniform(-1, 1, state).astype(np.float32),
        "c": random.standard_normal(state, np.float32),
    }


def matrices(random: np.random.Generator, n: int) -> Inputs:
    shapes = {"a": (1024 * n, 1024), "b": (1024, 1024)}
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def document(random: np.random.Generator, n: int) -> Inputs:
    """Token ids, a mask that hides a tail of random length, and two segments."""
    places = np.arange(128)
    length, border = random.integers(64, 129, (n, 1)), random.integers(1, 64, (n, 1))
    return {
        "tokens": random.integers(0, 30522, (n, 128)),
        "mask": (places < length).astype(np.int64),
        "types": (places >= border).astype(np.int64),
    }


def prompt(random: np.random.Generator, n: int) -> Inputs:
    return {"tokens": random.integers(0, 50257, (n, 128))}


def step(random: np.random.Generator, n: int) -> Inputs:
    shape = (n, 12, PAST, 64)
    token = {"token": random.integers(0, 50257, (n, 1))}
    past = {name: random.standard_normal(shape, np.float32) for name in caches("past")}
    return token | past


def caches(when: str) -> list[str]:
    return [f"{when}_{kind}_{layer}" for layer in LAYERS for kind in ("key", "value")]


image = normal("image", 3, 224, 224)
noise = normal("noise", 100)
state = ["scores", "h_out", "c_out"]

TABLE = {
    "resnet18": Entry(networks.resnet18, image, ["scores"]),
    "resnet50": Entry(networks.resnet50, image, ["scores"]),
    "mobilenet_v1": Entry(networks.mobilenet_v1, image, ["scores"]),
    "mobilenet_v2": Entry(networks.mobilenet_v2, image, ["scores"]),
    "dqn": Entry(networks.DQN, frames, ["values"], batches=(1, 3)),
    "dcgan": Entry(lambda: networks.DCGAN(128), noise, ["image"]),
    "dcgan_half": Entry(lambda: networks.DCGAN(64), noise, ["image"]),
    "lstm_lm": Entry(lambda: networks.LanguageModel(False), sentence, state),
    "lstm_lm_unrolled": Entry(lambda: networks.LanguageModel(True), sentence, state),
    "bert_base": Entry(networks.Bert, document, ["states", "pooled"], opset=20),
    "gpt2": Entry(networks.Gpt2, prompt, ["scores"], opset=20),
    "gpt2_decode": Entry(networks.Gpt2Decode, step, ["scores", *caches("present")], opset=20),
    "gemm_1024": Entry(networks.Product, matrices, ["product"]),
}


@dataclass(frozen=True)
class Model:
    """One model at one batch size."""

    name: str
    batch: int

    @functools.cached_property
    def module(self) -> nn.Module | None:
        """The torch module with the file's weights; None for a model that came as a file."""
        if self.name in others.OTHERS:
            return others.made(self.name)[0]
        if self.name not in TABLE:
            return None
        entry = TABLE[self.name]
        built = weights.fill(entry.build())
        sample = entry.inputs(np.random.default_rng(weights.SEED), 2)
        return weights.calibrate(built, list(sample.values()))

    @property
    def onnx_path(self) -> Path:
        """The ONNX file, made when it is not there yet."""
        path = folder() / f"{self.name}-b{self.batch}.onnx"
        if path.exists():
            return path
        if self.module is None:
            light.write(self.name, path)
        elif self.name in others.OTHERS:
            export(self.module, self.inputs(0), others.outputs(self.name), 18, path)
        else:
            entry = TABLE[self.name]
            export(self.module, self.inputs(0), entry.outputs, entry.opset, path)
        return path

    def inputs(self, seed: int) -> Inputs:
        """Random arrays by input name, in the model's order; the same for the same seed."""
        random = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        if self.name in others.OTHERS:
            return others.made(self.name)[1](random)
        if self.name in TABLE:
            return TABLE[self.name].inputs(random, self.batch)
        return light.inputs(self.name, random)

    @property
    def input_names(self) -> list[str]:
        return list(self.inputs(0))


def names() -> list[str]:
    """Every model but the others: the networks, then the files that ship inside the onnx
    package."""
    return [*TABLE, *light.names()]


def batches(name: str) -> tuple[int, ...]:
    """The batch sizes a model is tested at."""
    return TABLE[name].batches if name in TABLE else (1,)


@functools.cache
def model(name: str, batch: int = 1) -> Model:
    """The model called `name`; raises KeyError for a name or ValueError for a batch it lacks."""
    known = [*names(), *others.OTHERS]
    if name not in known:
        raise KeyError(f"no model '{name}'; there are {', '.join(known)}")
    if name not in TABLE and batch != 1:
        raise ValueError(f"'{name}' is a file of batch 1, not {batch}")
    return Model(name, batch)


def folder() -> Path:
    """Where the files are kept: $TILEWRIGHT_ZOO, or the user's cache folder."""
    chosen = os.environ.get("TILEWRIGHT_ZOO")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    root = Path(chosen) if chosen else cache / "tilewright-zoo"
    return root / f"edition-{EDITION}-torch-{torch.__version__.split('+')[0]}"
