"""Arrays from files: .npy, .npz, images, and folders of them.

In: an input of a model, a path, what to do with pixels. Out: the arrays that the path holds, each
by a name. An image becomes what the input's shape and dtype say: channels first or last, u8 as it
is stored, floats from 0 to 1, less `mean` and over `std`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.formats import IMAGES as DECODED
from tilewright.runtime.formats import encode
from tilewright.runtime.tensor import numpy_dtype
from tilewright.support.errors import InputError
from tilewright.support.files import remedy_of
from tilewright.support.record import record

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
KINDS = (".npy", ".npz", *IMAGES)
FLOATS = ("f64", "f32", "f16", "bf16")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # of images by their channels, as Pillow calls them
FITS = ("stretch", "crop", "pad")


@record
class Pixels:
    """How images become arrays. layout: "nchw" or "nhwc" where the shape does not tell; mean, std:
    one number, or one for each channel; fit: what to do with an image of another size than the
    model's: stretch it, crop it around its centre, pad it with black; None: refuse it."""

    layout: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    fit: str | None = None


@record
class Found:
    """A file that holds an array: what to call it, and what reads it. is_part: of a batch, perhaps:
    an image, or one of a folder's files."""

    name: str
    read: Callable[[], Any]
    is_part: bool


def find(info: abi.TensorInfo, path: str, pixels: Pixels) -> list[Found]:
    """The file, or each file of a folder, that an input is read from; its open sizes are texts.
    Reading and this raise InputError that names the file."""
    found = Path(path)
    if not found.exists():
        raise _unreadable(info, path, "there is no such file", "check the path")
    if not found.is_dir():
        return [Found(found.stem, cache(partial(_array, info, found, pixels)), is_image(path))]
    files = sorted(p for p in found.iterdir() if p.suffix.lower() in KINDS and p.is_file())
    if not files:
        raise _unreadable(
            info, path, "the folder has no such file", f"it may hold {', '.join(KINDS)}"
        )
    return [Found(p.stem, partial(_array, info, p, pixels), True) for p in files]


def names_in(path: str) -> list[str]:
    """The names of the arrays in an .npz file. Raises InputError."""
    if not Path(path).is_file():
        raise InputError(f"cannot read '{path}'", "there is no such file", remedy="check the path")
    return _loaded(path, lambda held: list(held.files))


def is_image(path: str | Path) -> bool:
    """Does the file's name say that it is an image?"""
    return Path(path).suffix.lower() in IMAGES


def _array(info: abi.TensorInfo, path: Path, pixels: Pixels) -> Any:
    if is_image(path):
        return _image(info, path, pixels) if info.format not in DECODED else _decoded(info, path)
    array, wanted = _stored(info, path), numpy_dtype(info.dtype)
    if wanted.kind == "V" and array.dtype.kind in "fiu":  # bf16, f8, i4: files hold no such
        return array.astype(wanted)
    return array


def _stored(info: abi.TensorInfo, path: Path) -> Any:
    """What an .npy or .npz file holds for an input."""
    if path.suffix.lower() != ".npz":
        try:
            return np.load(path, allow_pickle=False)
        except OSError as fault:
            raise _unreadable(info, path, fault.strerror or str(fault), remedy_of(fault)) from None
        except (ValueError, EOFError) as fault:
            raise _unreadable(info, path, str(fault), f"files are {', '.join(KINDS)}") from None
    names = names_in(str(path))
    name = info.name if info.name in names else names[0] if len(names) == 1 else None
    if name is None:
        why = f"none of its arrays is called '{info.name}'"
        raise _unreadable(info, path, why, f"it holds {', '.join(names) or 'none'}")
    return _loaded(str(path), lambda held: held[name])


def _loaded(path: str, take: Callable[[Any], Any]) -> Any:
    """What is taken of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as held:
            return take(held)
    except (OSError, ValueError, EOFError, AttributeError, TypeError) as fault:
        why = getattr(fault, "strerror", None) or str(fault)
    except Exception as fault:  # zipfile and zlib have their own
        why = f"{type(fault).__name__}: {fault}"
    raise InputError(
        f"cannot read '{path}'", why, remedy="numpy.savez(path, name=array) writes such files"
    )


def _unreadable(info: abi.TensorInfo, path: str | Path, why: str, remedy: str = "") -> InputError:
    return InputError(f"cannot read input '{info.name}' from '{path}'", why, remedy=remedy)


# ---- Images -----------------------------------------------------------------------------------


def _image(info: abi.TensorInfo, path: Path, pixels: Pixels) -> Any:
    """An image as the input asks for it, without an axis for the batch."""
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError:
        raise _unreadable(
            info, path, "Pillow, which reads images, is not installed", "pip install pillow"
        ) from None
    channels, height, width, is_last = _sides(info, path, pixels)
    if info.dtype not in ("u8", *FLOATS):
        why = f"the input takes {info.dtype}, pixels are u8 or floats"
        raise _unreadable(info, path, why, "make the array yourself, as an .npy file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                if opened.mode.startswith(("I", "F")):
                    why = f"its pixels have more than 8 bits (mode {opened.mode})"
                    raise _unreadable(info, path, why, "save it with 8 bits, or as an .npy file")
                image = ImageOps.exif_transpose(opened).convert(MODES[channels])
    except InputError:
        raise
    except Exception as fault:  # of whichever format's decoder
        why = getattr(fault, "strerror", None) or str(fault)
        raise _unreadable(info, path, why, "is it a whole image?") from None
    image = _fitted(info, path, image, (width or image.width, height or image.height), pixels.fit)
    array = np.asarray(image).reshape(image.height, image.width, channels)
    if info.dtype != "u8":
        array = array.astype(np.float32) / np.float32(255)
        for numbers, apply in ((pixels.mean, np.subtract), (pixels.std, np.divide)):
            if numbers:
                array = apply(array, np.array(_for_each(numbers, channels), np.float32))
    elif pixels.mean or pixels.std:
        why = "the input takes bytes: --mean and --std are for floats"
        raise _unreadable(info, path, why, "leave them out")
    array = array if is_last else array.transpose(2, 0, 1)
    if len(info.shape) == 2:
        array = array.reshape(image.height, image.width)
    return np.ascontiguousarray(array.astype(numpy_dtype(info.dtype)))


def _decoded(info: abi.TensorInfo, path: Path) -> Any:
    """The pixels of an image where the model says itself how it takes them."""
    try:
        return encode(np.fromfile(path, np.uint8), info.format)
    except ValueError as fault:
        raise _unreadable(info, path, str(fault), "is it a whole image?") from None


def _sides(
    info: abi.TensorInfo, path: Path, pixels: Pixels
) -> tuple[int, int | None, int | None, bool]:
    """Channels, height, width (None: open) of an input's images; are channels the last axis?"""
    rank = len(info.shape)
    if rank == 2:
        height, width = map(_number, info.shape)
        return 1, height, width, True
    if rank not in (3, 4):
        why = f"the input has {rank} axes, images have 2, 3 or 4"
        raise _unreadable(info, path, why, f"the model takes {info}")
    first, middle, last = map(_number, info.shape[-3:])
    channels = {"nchw": first, "nhwc": last}
    told = [layout for layout, count in channels.items() if count in MODES]
    layout = pixels.layout or (told[0] if len(told) == 1 else "")
    if channels.get(layout, 0) not in (None, *MODES):
        why = f"its axis of channels cannot be told from {info}"
        if pixels.layout:
            why = f"{info} has no 1, 3 or 4 channels where {layout} has them"
        raise _unreadable(info, path, why, "say --layout nchw or --layout nhwc")
    if layout == "nhwc":
        return last or 3, first, middle, True
    return first or 3, middle, last, False


def _number(dim: abi.Dim) -> int | None:
    return dim if isinstance(dim, int) else None


def _fitted(
    info: abi.TensorInfo, path: Path, image: Any, size: tuple[int, int], fit: str | None
) -> Any:
    """An image of this width and height."""
    from PIL import Image, ImageOps

    if image.size == size:
        return image
    if fit is None:
        has, wanted = ("x".join(map(str, s)) for s in (image.size, size))
        raise _unreadable(
            info,
            path,
            f"it is {has} pixels, the model takes {wanted}",
            f"say what to do with it: --fit {' or --fit '.join(FITS)}",
        )
    if fit == "stretch":
        return image.resize(size, Image.Resampling.BILINEAR)
    made = ImageOps.fit if fit == "crop" else ImageOps.pad
    return made(image, size, Image.Resampling.BILINEAR)


def _for_each(numbers: Sequence[float], channels: int) -> Sequence[float]:
    """A number for each channel."""
    if len(numbers) not in (1, channels):
        raise InputError(
            f"cannot use {len(numbers)} numbers of --mean or --std",
            f"the image has {channels} channels",
            remedy="give one number, or one for each channel, as in 0.485,0.456,0.406",
        )
    return numbers
