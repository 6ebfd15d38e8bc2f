"""Train the demo's model: scikit-learn's 8x8 images of digits in, `digits.onnx` out.

The 1,797 images are split by index: every fifth one (0, 5, 10, ...; 360 in all) is held out and
never trained on; the demo classifies exactly those. The model takes one image, f32[1, 1, 8, 8]
with grey values 0..16 as the data set has them, and gives f32[1, 10] scores, one per digit.

    python -m examples.digits.train [PATH]      needs torch, onnx, scikit-learn; about 20 seconds
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn

HELD_OUT_EVERY = 5
LEAST_ACCURACY = 0.97
EPOCHS = 40
OPSET = 18
DEFAULT_PATH = Path(__file__).parents[2] / "src/tilewright/driver/demo/digits.onnx"


def split() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images, labels) to train on and (images, labels) held out; images are f32[n, 1, 8, 8]."""
    digits = load_digits()
    images = digits.images.astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    held_out = np.arange(len(labels)) % HELD_OUT_EVERY == 0
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


class DigitsNet(nn.Module):
    """Three 3x3 convolutions with batch norm and ReLU, two poolings, two dense layers."""

    def __init__(self) -> None:
        super().__init__()

        def conv(inputs: int, outputs: int) -> list[nn.Module]:
            return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]

        self.features = nn.Sequential(
            *conv(1, 32), *conv(32, 32), nn.MaxPool2d(2), *conv(32, 64), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(nn.Linear(64 * 2 * 2, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.features(image / 16.0), 1))


def shift(images: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Each image moved by -1, 0 or 1 pixel both ways, so that the net does not learn positions."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    rows, columns = torch.randint(0, 3, (2, len(images)), generator=random)
    windows = padded.unfold(2, 8, 1).unfold(3, 8, 1)
    return windows[torch.arange(len(images)), :, rows, columns]


def train(images: np.ndarray, labels: np.ndarray) -> DigitsNet:
    """A net fitted by Adam with a falling learning rate; the same seed gives the same net."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    model = DigitsNet().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(x), generator=random).split(64):
            loss = nn.functional.cross_entropy(model(shift(x[batch], random)), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        schedule.step()
        print(f"\repoch {epoch + 1}/{EPOCHS}  loss {total / len(x):.4f}", end="", flush=True)
    print()
    return model.eval()


def accuracy(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    """The fraction of images whose highest score is their label."""
    with torch.no_grad():
        predicted = model(torch.from_numpy(images)).argmax(1).numpy()
    return float((predicted == labels).mean())


def export(model: nn.Module, path: Path) -> None:
    """Write the model for one image; batch norm stays an operator, for the compiler to fold."""
    image = torch.zeros(1, 1, 8, 8)
    program = torch.onnx.export(
        model,
        (image,),
        input_names=["image"],
        output_names=["scores"],
        opset_version=OPSET,
        dynamo=True,
        optimize=False,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    del proto.metadata_props[:]  # source locations of the exporting machine
    del proto.graph.metadata_props[:]
    del proto.graph.value_info[:]
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.checker.check_model(proto, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, path)


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PATH
    (images, labels), (held_images, held_labels) = split()
    model = train(images, labels)
    fraction = accuracy(model, held_images, held_labels)
    print(f"held-out accuracy {fraction:.2%} on {len(held_labels)} images")
    if fraction < LEAST_ACCURACY:
        sys.exit(f"below {LEAST_ACCURACY:.0%}: not written")
    export(model, path)
    print(f"wrote {path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
