"""Seeded weights: a freshly built module in, the same module with reproducible parameters out.

Each parameter is drawn from its own generator, seeded by its name, at a scale that keeps the
activations near one. Batch-norm statistics are then measured on seeded inputs in f64 and rounded to
eight bits, so that folding them is really tested and thread counts cannot change a byte.
"""

from __future__ import annotations

import copy
import math
import zlib
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from transformers.pytorch_utils import Conv1D

SEED = 20180101
BIAS_SCALE = 0.1
EMBEDDING_SCALE = 0.5

Norm = nn.BatchNorm2d | nn.LayerNorm


def fill(root: nn.Module) -> nn.Module:
    """Draw every parameter of `root` in place; returns it in eval mode, without gradients.

    Raises TypeError for a parameter of a layer that no rule below knows.
    """
    drawn: set[int] = set()  # tied parameters are drawn once, under the first name
    for path, layer in root.named_modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if id(parameter) in drawn:
                continue
            drawn.add(id(parameter))
            random = np.random.default_rng([SEED, zlib.crc32(f"{path}.{name}".encode())])
            values = draw(layer, name, tuple(parameter.shape), random)
            parameter.requires_grad_(False).copy_(torch.from_numpy(values))
    return root.eval()


def draw(
    layer: nn.Module, name: str, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """Values for one parameter: gains around one, small biases, weights scaled by their fan-in."""
    if isinstance(layer, Norm) and name == "weight":
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    if name.startswith("bias"):
        return BIAS_SCALE * random.standard_normal(shape, np.float32)
    return np.float32(scale(layer, shape)) * random.standard_normal(shape, np.float32)


def scale(layer: nn.Module, shape: tuple[int, ...]) -> float:
    """The standard deviation that carries unit activations to unit activations."""
    match layer:
        case nn.Conv2d():
            return math.sqrt(2 / math.prod(shape[1:]))
        case nn.ConvTranspose2d():
            taps = math.prod(shape[2:]) / math.prod(layer.stride)
            return math.sqrt(2 / (shape[0] * taps))
        case nn.Linear() | nn.LSTM():
            return math.sqrt(1 / shape[1])
        case Conv1D():
            return math.sqrt(1 / shape[0])
        case nn.Embedding():
            return EMBEDDING_SCALE
        case _:
            raise TypeError(f"no scale is known for the weights of {type(layer).__name__}")


def batch_norms(root: nn.Module) -> list[Any]:
    return [layer for layer in root.modules() if isinstance(layer, _BatchNorm)]


def calibrate(root: nn.Module, inputs: list[np.ndarray]) -> nn.Module:
    """Set the statistics of each batch norm to those of `inputs`; nothing changes without one."""
    norms = batch_norms(root)
    if not norms:
        return root
    doubled = copy.deepcopy(root).double()
    measured = batch_norms(doubled)
    for layer in measured:
        layer.train()
        layer.reset_running_stats()
        layer.momentum = None  # the plain average over the one batch
    with torch.no_grad():
        doubled(*(torch.from_numpy(x).double() for x in inputs))
    for layer, source in zip(norms, measured, strict=True):
        layer.running_mean.copy_(source.running_mean.to(torch.bfloat16))
        layer.running_var.copy_(source.running_var.to(torch.bfloat16))
    return root
