"""Inputs of `run` from files: arrays, archives, images and folders of them; outputs in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.driver.conftest import dense, expected

Image = pytest.importorskip("PIL.Image")
FLOAT, HALF, BYTES = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8
RANDOM = np.random.default_rng(0)


def identity(shape, dtype=FLOAT):
    """A model that gives what it takes, as identity.onnx."""
    nodes = [helper.make_node("Identity", ["image"], ["same"])]
    taken = helper.make_tensor_value_info("image", dtype, shape)
    graph = helper.make_graph(
        nodes, "identity", [taken], [helper.make_tensor_value_info("same", dtype, shape)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, "identity.onnx")


def photo(name="photo.png", width=6, height=5, mode="RGB"):
    """An image of random pixels; they, as [height, width, channels]."""
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = RANDOM.integers(0, 256, (height, width, *channels), np.uint8)
    Path(name).parent.mkdir(exist_ok=True)
    Image.fromarray(pixels, mode).save(name)
    return pixels if channels else pixels[..., None]


@pytest.fixture
def same(command):
    """What a model that gives what it takes was given."""

    def run(*options):
        status, _, errors = command("run", "identity.onnx", *options, "-o", "out.npz")
        assert (status, errors) == (0, "")
        return np.load("out.npz")["same"]

    return run


@pytest.mark.parametrize(
    ("shape", "mode", "axes"),
    [
        ([1, 3, 5, 6], "RGB", (2, 0, 1)),
        ([1, 5, 6, 3], "RGB", (0, 1, 2)),
        ([3, 5, 6], "RGB", (2, 0, 1)),
        ([5, 6, 3], "RGB", (0, 1, 2)),
        ([1, 1, 5, 6], "L", (2, 0, 1)),
        ([1, 4, 5, 6], "RGBA", (2, 0, 1)),
        (["n", 3, "height", "width"], "RGB", (2, 0, 1)),
        (["n", "height", "width", 3], "RGB", (0, 1, 2)),
    ],
)
def test_an_image_takes_the_shape_of_its_input(shape, mode, axes, same):
    pixels = photo(mode=mode)
    for dtype, values in ((BYTES, pixels), (FLOAT, pixels.astype(np.float32) / np.float32(255))):
        identity(shape, dtype)
        got = same("--input", "photo.png")
        wanted = values.transpose(axes)
        np.testing.assert_array_equal(got, wanted if len(shape) == 3 else wanted[None])


def test_images_are_normalised(same):
    pixels = photo() / 255
    identity([1, 3, 5, 6])
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    numbers = [",".join(map(str, given)) for given in (mean, std)]
    got = same("--input", "image=photo.png", "--mean", numbers[0], "--std", numbers[1])
    np.testing.assert_allclose(got[0], ((pixels - mean) / std).transpose(2, 0, 1), atol=1e-5)
    got = same("--input", "photo.png", "--mean", "0.5", "--std", "0.5")
    np.testing.assert_allclose(got[0], (pixels * 2 - 1).transpose(2, 0, 1), atol=1e-5)
    identity([1, 3, 5, 6], HALF)
    np.testing.assert_allclose(
        same("--input", "photo.png")[0], pixels.transpose(2, 0, 1), atol=1e-3
    )


def test_a_grey_matrix(same):
    pixels = photo(mode="L")
    identity([5, 6], BYTES)
    np.testing.assert_array_equal(same("--input", "photo.png"), pixels[..., 0])


def test_colours_become_grey_and_grey_becomes_colours(same):
    photo()
    identity([1, 1, 5, 6], BYTES)
    grey = np.asarray(Image.open("photo.png").convert("L"))
    np.testing.assert_array_equal(same("--input", "photo.png")[0, 0], grey)
    pixels = photo(mode="L")
    identity([1, 3, 5, 6], BYTES)
    got = same("--input", "photo.png")
    np.testing.assert_array_equal(got[0], np.repeat(pixels.transpose(2, 0, 1), 3, 0))


def test_images_of_other_sizes_are_fitted(same):
    pixels = photo(width=9, height=5)
    identity([1, 5, 5, 3], BYTES)
    np.testing.assert_array_equal(same("--input", "photo.png", "--fit", "crop")[0], pixels[:, 2:7])
    padded = same("--input", "photo.png", "--fit", "pad")[0]
    assert not padded[0].any() and not padded[-1].any() and padded[2].any()
    whole = Image.open("photo.png").resize((5, 5), Image.Resampling.BILINEAR)
    got = same("--input", "photo.png", "--fit", "stretch")
    np.testing.assert_array_equal(got[0], np.asarray(whole))
    identity([1, "height", "width", 3], BYTES)
    sizes = "--size", "height=2", "--size", "width=4"
    assert same("--input", "photo.png", "--fit", "stretch", *sizes).shape == (1, 2, 4, 3)


def test_an_image_is_turned_as_its_camera_says(same):
    pixels = photo("plain.png", width=5, height=6)
    image = Image.fromarray(pixels)
    tags = image.getexif()
    tags[0x0112] = 6  # shown turned by a quarter to the right
    image.save("photo.png", exif=tags)
    identity([1, 5, 6, 3], BYTES)
    np.testing.assert_array_equal(same("--input", "photo.png")[0], np.rot90(pixels, -1))


def test_jpeg_too(same):
    Image.new("RGB", (6, 5), (200, 100, 50)).save("photo.jpeg", quality=95)
    identity([1, 5, 6, 3], BYTES)
    got = same("--input", "photo.jpeg").reshape(-1, 3)
    np.testing.assert_allclose(got, [[200, 100, 50]] * 30, atol=4)


# ---- Archives and folders -----------------------------------------------------------------------


def test_archives(command, model):
    x = RANDOM.standard_normal((2, 8)).astype(np.float32)
    np.savez("named.npz", x=x, other=np.zeros(3))
    np.savez("single.npz", whatever=x)
    np.savez("x.npz", x=x)
    np.save("x.npy", x)
    for given in ("x=named.npz", "x=single.npz", "single.npz", "x.npz", "x.npy", "x=x.npy"):
        assert command("run", model, "--input", given, "-o", "out.npz")[0] == 0
        np.testing.assert_allclose(np.load("out.npz")["y"], expected(x), rtol=1e-5)


def test_a_folder_is_a_call_for_each_file(command):
    images = {name: photo(f"photos/{name}.png") for name in ("b", "a", "c")}
    Path("photos/notes.txt").write_text("no image")
    identity([1, 5, 6, 3], BYTES)
    status, printed, errors = command("run", "identity.onnx", "--input", "photos", "-o", "out")
    assert (status, errors) == (0, "")
    assert [printed.index(f"outputs of {name}") for name in "abc"] == sorted(
        printed.index(f"outputs of {name}") for name in images
    )
    assert {p.name for p in Path("out").iterdir()} == {"a.npz", "b.npz", "c.npz"}
    for name, pixels in images.items():
        np.testing.assert_array_equal(np.load(f"out/{name}.npz")["same"][0], pixels)


def test_a_folder_in_batches(command):
    images = [photo(f"photos/{n}.png") for n in range(5)]
    identity(["n", 5, 6, 3], BYTES)
    assert command("run", "identity.onnx", "--input", "photos", "--batch", 2, "-o", "out")[0] == 0
    found = {p.name: np.load(p)["same"] for p in Path("out").iterdir()}
    assert {name: len(a) for name, a in found.items()} == {"0.npz": 2, "2.npz": 2, "4.npz": 1}
    np.testing.assert_array_equal(np.concatenate([found[n] for n in sorted(found)]), images)
    identity([5, 5, 6, 3], BYTES)  # the model says how many
    assert command("run", "identity.onnx", "--input", "photos", "-o", "all.npz")[0] == 0
    np.testing.assert_array_equal(np.load("all.npz")["same"], images)


def test_folders_beside_a_single_file(command, tmp_path):
    x = RANDOM.standard_normal((3, 2, 8)).astype(np.float32)
    Path("many").mkdir()
    for n, one in enumerate(x):
        np.save(f"many/{n}.npy", one)
    model = dense(tmp_path / "dense.onnx")
    assert command("run", model, "--input", "x=many", "-o", "out")[0] == 0
    for n, one in enumerate(x):
        np.testing.assert_allclose(np.load(f"out/{n}.npz")["y"], expected(one), rtol=1e-5)


def test_rows_of_a_folder_are_stacked(command, tmp_path):
    x = RANDOM.standard_normal((4, 8)).astype(np.float32)
    Path("rows").mkdir()
    for n, row in enumerate(x):
        np.save(f"rows/{n}.npy", row)
    model = dense(tmp_path / "dense.onnx")  # two at once
    assert command("run", model, "--input", "x=rows", "-o", "out")[0] == 0
    found = [np.load(f"out/{name}.npz")["y"] for name in ("0", "2")]
    np.testing.assert_allclose(np.concatenate(found), expected(x), rtol=1e-5)


def test_files_of_one_name_do_not_overwrite_each_other(command):
    first, second = photo("photos/a.bmp"), photo("photos/a.png")
    identity([1, 5, 6, 3], BYTES)
    assert command("run", "identity.onnx", "--input", "photos", "-o", "out")[0] == 0
    found = [np.load(f"out/{name}.npz")["same"][0] for name in ("a", "a-2")]
    np.testing.assert_array_equal(found, [first, second])


def test_many_calls_are_not_all_shown(command):
    for n in range(23):
        photo(f"photos/{n:02}.png")
    identity([1, 5, 6, 3], BYTES)
    status, printed, _ = command("run", "identity.onnx", "--input", "photos")
    assert status == 0 and printed.count("outputs of") == 20 and "… and 3 calls more" in printed


def test_without_pillow(command, monkeypatch):
    photo()
    identity([1, 5, 6, 3], BYTES)
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    status, _, errors = command("run", "identity.onnx", "--input", "photo.png")
    assert status == 1 and "pip install pillow" in errors


def test_types_that_files_do_not_have(command):
    """bf16 comes and goes as f32."""
    identity([2, 3], TensorProto.BFLOAT16)
    np.save("x.npy", np.array([[1, 2.5, -3], [0, 100, 1e-3]], np.float32))
    status, _, errors = command("run", "identity.onnx", "--input", "x.npy", "-o", "out.npz")
    assert (status, errors) == (0, "")
    got = np.load("out.npz")["same"]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.load("x.npy"), rtol=1e-2)


def test_outputs_of_any_name(command):
    names = "file", "allow_pickle", "a/b"
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in names]
    infos = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x", *names)]
    graph = helper.make_graph(nodes, "names", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, "names.onnx")
    assert command("run", "names.onnx", "-o", "out.npz")[0] == 0
    assert set(np.load("out.npz").files) == {*names}


def test_names_do_not_steer_the_terminal(command):
    identity([2])
    model = onnx.load("identity.onnx")
    model.graph.input[0].name = model.graph.node[0].input[0] = "\x1b[2Jx"
    onnx.save(model, "identity.onnx")
    status, printed, _ = command("run", "identity.onnx")
    assert status == 0 and "\x1b" not in printed and "[2Jx" in printed
    status, _, errors = command("run", "identity.onnx", "--input", "y=x.npy")
    assert status == 1 and "\x1b" not in errors


def test_a_model_that_decodes_images(command):
    pixels = photo()
    node = helper.make_node("ImageDecoder", ["content"], ["image"], pixel_format="RGB")
    taken = helper.make_tensor_value_info("content", BYTES, ["bytes"])
    given = helper.make_tensor_value_info("image", BYTES, ["h", "w", "c"])
    graph = helper.make_graph([node], "decoder", [taken], [given])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    onnx.save(model, "decoder.onnx")
    status, _, errors = command("run", "decoder.onnx", "--input", "photo.png", "-o", "out.npz")
    assert (status, errors) == (0, "")
    np.testing.assert_array_equal(np.load("out.npz")["image"], pixels)
