"""What the pages' commands are given: small models and pictures by the names that they use.

In: a page's path. Out: a function (`STAND_INS`) that writes its files into the current folder, and
gives the names that its Python finds defined.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "src/tilewright/driver/demo/digits.onnx"
DIGIT = (1, 1, 8, 8)

Names = dict[str, Any]


def save(path: str, nodes: Sequence[Any], inputs: Names, output: str, weights: Names) -> None:
    """Write an ONNX file. inputs: shapes of images in f32, of words in i64, by their names."""
    dtypes = {"image": TensorProto.FLOAT}
    graph = helper.make_graph(
        nodes,
        Path(path).stem,
        [
            helper.make_tensor_value_info(name, dtypes.get(name, TensorProto.INT64), shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def image_network(path: str, shape: Sequence[int | str], channels: int) -> None:
    """Three convolutions, a mean over the image and a product: sizes may stay open."""
    rng = np.random.default_rng(0)
    nodes, weights, at = list[Any](), dict[str, np.ndarray](), "image"
    for n, (inner, outer) in enumerate([(channels, 8), (8, 16), (16, 16)]):
        weights[f"w{n}"] = rng.standard_normal((outer, inner, 3, 3)) / (3 * inner**0.5)
        nodes += [
            helper.make_node("Conv", [at, f"w{n}"], [f"c{n}"], pads=[1] * 4),
            helper.make_node("Relu", [f"c{n}"], [f"r{n}"]),
            helper.make_node("MaxPool", [f"r{n}"], [f"p{n}"], kernel_shape=[2, 2], strides=[2, 2]),
        ]
        at = f"p{n}"
    weights["w"] = rng.standard_normal((16, 10))
    nodes += [
        helper.make_node("GlobalAveragePool", [at], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["features"]),
        helper.make_node("MatMul", ["features", "w"], ["scores"]),
    ]
    save(path, nodes, {"image": shape}, "scores", weights)


def text_network(path: str) -> None:
    """The rows of a table for words, masked and multiplied."""
    rng = np.random.default_rng(0)
    weights = {"table": rng.standard_normal((50, 8)), "w": rng.standard_normal((8, 4))}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
        helper.make_node("Mul", ["rows", "column"], ["masked"]),
        helper.make_node("MatMul", ["masked", "w"], ["states"]),
    ]
    nodes.insert(0, helper.make_node("Constant", [], ["last"], value_ints=[-1]))
    save(path, nodes, {"ids": [1, "words"], "mask": [1, "words"]}, "states", weights)


def photo(path: str, seed: int = 0, size: tuple[int, int] = (61, 48)) -> None:
    """A picture of noise, so many pixels wide and high."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)


def readme(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Models, a module and a picture; what is printed differs from run to run."""
    import torch

    shutil.copy(DIGITS, "model.onnx")
    image_network("open.onnx", [1, 1, "height", "width"], channels=1)
    photo("photo.jpg")
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU()).eval()
    return {"x": np.zeros(DIGIT, np.float32), "module": module, "print": lambda *_: None}


def landing(monkeypatch: pytest.MonkeyPatch) -> Names:
    """The demo's model."""
    shutil.copy(DIGITS, "model.onnx")
    return {}


def deploying(monkeypatch: pytest.MonkeyPatch) -> Names:
    """The demo's model; skipped without what builds programs."""
    if missing := [p for p in ("cc", "cmake", "make", "pkg-config") if not shutil.which(p)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    shutil.copy(DIGITS, "digits.onnx")
    return {}


def commands(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Models and inputs for `run` and `bench`."""
    image_network("resnet.onnx", ["batch", 3, 32, 32], channels=3)
    tw.compile("resnet.onnx", threads=1).save("resnet.tw")
    text_network("bert.onnx")
    shutil.copy(DIGITS, "model.onnx")
    photo("photo.jpg")
    Path("photos").mkdir()
    for n in range(3):
        photo(f"photos/{n}.png", n, (32, 32))
    ids = np.random.default_rng(0).integers(0, 50, (1, 7))
    np.savez("batch.npz", ids=ids, mask=np.ones_like(ids))
    return {}


def installing(monkeypatch: pytest.MonkeyPatch) -> Names:
    """The runtime's package as its wheel has it, and an artifact."""
    spec = importlib.util.spec_from_file_location(
        "tilewright_tree", ROOT / "build_backend/tilewright_tree.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tree = Path("tree").absolute()
    tree.mkdir()
    module.write_tree(ROOT, tree)
    for library in (ROOT / "src/tilewright/runtime/native").glob("libtilewright*"):
        shutil.copy(library, tree / "src/tilewright_runtime/runtime/native")
    monkeypatch.syspath_prepend(str(tree / "src"))
    for name in [n for n in sys.modules if n.partition(".")[0] == "tilewright_runtime"]:
        monkeypatch.delitem(sys.modules, name)
    tw.compile(DIGITS, threads=1).save("model.tw")
    return {"x": np.zeros(DIGIT, np.float32)}


STAND_INS: dict[str, Callable[[pytest.MonkeyPatch], Names]] = {
    "README.md": readme,
    "docs/index.md": landing,
    "docs/command_line.md": commands,
    "docs/deploy_in_c.md": deploying,
    "docs/install.md": installing,
}
