"""Winograd's convolution can be turned off, and one pixel that is no number stays in its tiles."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import tilewright as tw
from tests.graph.rewriting import ops
from tilewright.driver.compile import prepare
from tilewright.driver.identity import artifact_key
from tilewright.driver.source import open_source
from tilewright.target.target import target

SIZE, REACH = 24, 4
LINE = "cpu -mcpu=skylake-avx512"


@pytest.fixture(scope="module")
def conv() -> nn.Module:
    torch.manual_seed(2)
    return nn.Conv2d(64, 64, 3, padding=1, bias=False).eval()


def image() -> torch.Tensor:
    return torch.randn(2, 64, SIZE, SIZE, generator=torch.Generator().manual_seed(4))


def test_the_option_decides(conv: nn.Module) -> None:
    def made(winograd: bool) -> list[str]:
        graph = open_source(conv, (image(),)).graph()
        return ops(prepare(graph, target(LINE), 3, winograd=winograd).graph)

    assert "winograd_packed" in made(True)
    assert "winograd_packed" not in made(False) and "conv_packed" in made(False)


@pytest.mark.parametrize(("taps", "stride"), [((3, 3, 3), 1), ((1, 3, 3), 1), ((3, 3, 3), 2)])
def test_convolutions_over_three_axes_take_it(taps: tuple[int, ...], stride: int) -> None:
    torch.manual_seed(3)
    pads = tuple(k // 2 for k in taps)
    conv = nn.Conv3d(32, 40, taps, stride, pads).eval()
    x = torch.randn(1, 32, 4, 14, 15)
    graph = open_source(conv, (x,)).graph()
    made = ops(prepare(graph, target(LINE), 3).graph)
    assert ("winograd_packed" in made) == (stride == 1)
    with torch.no_grad():
        exact = conv.double()(x.double()).numpy()
    got = np.asarray(tw.compile(conv.float(), example_inputs=(x,), cache=False)(x))
    np.testing.assert_allclose(got.reshape(exact.shape), exact, atol=1e-5)


VOLUMES = [
    *((5, 14, 17), (8, 20, 24), (1, 1, 1), (0, 4, 4), (3, 0, 5), (3, 5, 0)),
    *((2, 3, 7), (33, 5, 1), (1, 33, 20), (7, 7, 7), (2, 1, 33), (17, 14, 3)),
]


@pytest.mark.sampled
@pytest.mark.parametrize("open_axes", ["dhw", "d", "dh", "hw", "w"])
@pytest.mark.parametrize(("taps", "dilation"), [((3, 3, 3), 1), ((1, 3, 3), 1), ((2, 3, 3), 2)])
def test_one_compilation_takes_volumes_of_any_size(
    taps: tuple[int, ...], dilation: int, open_axes: str
) -> None:
    """Batches of one and three, the same bits on one and two threads."""
    random = np.random.default_rng([*map(ord, open_axes), *taps])
    w, b = (random.standard_normal(s).astype(np.float32) for s in ((24, 32, *taps), (24,)))
    w /= w[0].size ** 0.5
    pads = [dilation * (k // 2) for k in taps]
    conv = helper.make_node(
        "Conv", ["x", "w", "b"], ["y"], pads=[*pads, *pads], dilations=[dilation] * 3
    )
    known = dict(zip("dhw", (3, 14, 17), strict=True))
    own = [a if a in open_axes else known[a] for a in "dhw"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 32, *own))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(a, name) for name, a in (("w", w), ("b", b))]
    graph = helper.make_graph([conv], "volumes", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert "winograd_packed" in ops(prepare(open_source(model).graph(), target(LINE), 3).graph)
    one, two = (tw.compile(model, threads=n, cache=False) for n in (1, 2))
    for batch in (1, 3):
        for volume in VOLUMES:
            sizes = [s if a in open_axes else known[a] for s, a in zip(volume, "dhw", strict=True)]
            image = random.standard_normal((batch, 32, *sizes)).astype(np.float32)
            exact = of_volume(image, w, b, pads, dilation)
            found = np.asarray(one(image)[0])
            np.testing.assert_allclose(found, exact, atol=2e-5)
            np.testing.assert_array_equal(found, two(image)[0])


def of_volume(
    x: np.ndarray, w: np.ndarray, b: np.ndarray, pads: list[int], dilation: int
) -> np.ndarray:
    """PyTorch's result in f64; it takes no axis without positions."""
    if 0 in x.shape:
        taps = zip(x.shape[2:], w.shape[2:], pads, strict=True)
        sizes = [max(0, n + 2 * p - (k - 1) * dilation) for n, k, p in taps]
        return np.broadcast_to(b.reshape(-1, 1, 1, 1), (len(x), len(w), *sizes))
    image, filters, bias = (torch.tensor(v, dtype=torch.float64) for v in (x, w, b))
    deep, high, wide = pads
    made = nn.functional.conv3d(image, filters, bias, padding=(deep, high, wide), dilation=dilation)
    return made.numpy()


def test_the_cache_tells_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(winograd: bool | None) -> str:
        return artifact_key("m", "cpu", 1, 3, None, winograd)

    assert key(None) == key(True) != key(False)
    monkeypatch.setenv("TILEWRIGHT_WINOGRAD", "0")
    assert key(None) == key(False) != key(True)


@pytest.mark.parametrize("winograd", [True, False])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 7e37])
def test_a_wrong_pixel_spoils_its_tiles_only(conv: nn.Module, wrong: float, winograd: bool) -> None:
    x, spoiled = image(), image()
    row, column = 9, 14
    spoiled[0, 5, row, column] = wrong
    exe = tw.compile(conv, example_inputs=(x,), winograd=winograd, cache=False)
    plain, other = (np.asarray(exe(v)) for v in (x, spoiled))
    plain, other = (y.reshape(2, 64, SIZE, SIZE) for y in (plain, other))
    reach = REACH if winograd else 1
    far = np.ones((2, 1, SIZE, SIZE), bool)
    far[0, :, row - reach : row + reach + 1, column - reach : column + reach + 1] = False
    far = np.broadcast_to(far, plain.shape)
    np.testing.assert_array_equal(plain[far], other[far])


def test_plain_convolutions_are_as_exact_as_eager(conv: nn.Module) -> None:
    x = image() * 100
    with torch.no_grad():
        exact, eager = conv.double()(x.double()).numpy(), conv.float()(x).numpy()
    made = tw.compile(conv, example_inputs=(x,), winograd=False, cache=False)(x)
    error, theirs = (
        np.abs(np.asarray(y).reshape(exact.shape) - exact).max() for y in (made, eager)
    )
    assert error < 3 * theirs


def test_every_command_can_do_without(command, tmp_path) -> None:
    """As `compile`, `inspect` and `bench` take --no-winograd."""
    w = np.random.default_rng(1).standard_normal((64, 64, 3, 3)).astype(np.float32)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], "g",
        [info("x", onnx.TensorProto.FLOAT, [1, 64, 28, 28])],
        [info("y", onnx.TensorProto.FLOAT, [1, 64, 28, 28])],
        [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    path = tmp_path / "conv.onnx"
    opset = onnx.helper.make_opsetid("", 18)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9), path)
    for options, there in (((), True), (("--no-winograd",), False)):
        status, printed, errors = command("inspect", path, "--kernels", *options)
        assert (status, errors) == (0, "") and ("winograd" in printed) == there
    bench = "bench", path, "--against", "none", "--seconds", "0.02", "--no-winograd", "--roofline"
    status, printed, errors = command(*bench)
    assert status == 0 and "conv_packed" in printed and "winograd" not in printed
