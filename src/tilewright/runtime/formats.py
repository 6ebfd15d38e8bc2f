"""Elements that the runtime has no dtype for, held in whole numbers.

A tensor of the caller may have a format: its elements then cross the border as codes. Strings
become their characters' code points along one more axis, with zeros at their ends: NumPy's own
layout, so that nothing is copied. An encoded image (JPEG, PNG, …) comes in as its pixels. Maps come
out as the rows of a matrix of their values; the format names their keys. A tensor whose rank the
run chooses comes out as its elements, and behind them its shape, with -1 for axes that it lacks.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime.tensor import more_dtypes, numpy_dtype

IMAGES = {"image/RGB": "RGB", "image/BGR": "RGB", "image/Grayscale": "L"}  # Pillow's modes
FORMATS = {  # the dtype that holds each
    "string": "u32",
    "f4e2m1": "u4",
    "f8e8m0": "u8",
    **dict.fromkeys(IMAGES, "u8"),
}
_FLOATS = {"f4e2m1": "float4_e2m1fn", "f8e8m0": "float8_e8m0fnu"}


_MAP = "map"  # and the keys, as JSON: map["cat", "dog"]


def map_format(keys: Sequence[str] | Sequence[int]) -> str:
    """The format of a matrix whose rows are the values of maps with these keys."""
    return _MAP + json.dumps(list(keys))


@functools.lru_cache(64)
def keys_of(of: str) -> tuple[str | int, ...] | None:
    """The keys of a format of maps, strings or numbers; None if it is none."""
    if not of.startswith(_MAP):
        return None
    try:
        keys = json.loads(of[len(_MAP) :])
    except (ValueError, RecursionError):
        return None
    types = {type(k) for k in keys} if isinstance(keys, list) else set()
    return tuple(keys) if types in ({str}, {int}) else None


ELEMENTS, SHAPE = "elements", "shape"


def is_format(of: str) -> bool:
    """Is it one that decode knows?"""
    return of in FORMATS or of in (ELEMENTS, SHAPE) or keys_of(of) is not None


def decode_all(results: Sequence[Any], formats: Sequence[str]) -> list[Any]:
    """The outputs that a program's results stand for."""
    made: list[Any] = []
    for k, (result, of) in enumerate(zip(results, formats, strict=True)):
        if of == ELEMENTS:
            made.append(result.reshape([n for n in results[k + 1].tolist() if n >= 0]))
        elif of != SHAPE:
            made.append(decode(result, of) if of else result)
    return made


def values_of(result: Any) -> np.ndarray[Any, Any]:
    """A result as an array: maps as rows of their values, in the order of their keys."""
    if isinstance(result, list):
        result = [[entry[key] for key in sorted(entry)] for entry in result]
    return np.asarray(result)


def encode(value: Any, of: str) -> Any:
    """The codes of an array of strings or floats, the pixels of an encoded image; what is none of
    these comes back as it is. Raises ValueError for bytes that are no image."""
    if of in IMAGES:
        array = np.asarray(value)
        return pixels(array, of) if array.ndim == 1 and array.dtype == np.uint8 else value
    if of == "string":
        array = np.asarray(value)
        if array.dtype.kind not in "OUS":
            return value
        array = np.require(array.astype(str), requirements="C").reshape(array.shape)
        width = array.dtype.itemsize // 4
        if not width:
            array, width = np.zeros(array.shape, "U1"), 1
        return array.reshape(*array.shape, 1).view(np.uint32).reshape(*array.shape, width)
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "name", "") != _FLOATS[of]:
        return value
    codes = np.require(value, requirements="C").reshape(value.shape).view(np.uint8)
    return codes if of == "f8e8m0" else _small(codes & 15)


def decode(codes: np.ndarray[Any, Any], of: str) -> Any:
    """The array of strings or floats, or the list of maps, that codes stand for."""
    keys = keys_of(of)
    if keys is not None:
        rows = codes.reshape(-1, len(keys)).tolist()
        return [dict(zip(keys, row, strict=True)) for row in rows]
    if of == "string":
        width, shape = codes.shape[-1], codes.shape[:-1]
        if not width or not codes.size:
            return np.zeros(shape, "U1")
        return np.ascontiguousarray(codes).view(f"U{width}").reshape(shape)
    return codes.view(np.uint8).view(getattr(more_dtypes(of), _FLOATS[of]))


def _small(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return codes.astype(numpy_dtype("u4"))


def pixels(content: np.ndarray[Any, Any], of: str) -> np.ndarray[Any, Any]:
    """The pixels [height, width, channels] of an encoded image."""
    try:
        import PIL.Image
    except ImportError:
        raise ValueError("decoding images needs Pillow (pip install pillow)") from None
    try:
        with PIL.Image.open(io.BytesIO(content.tobytes())) as image:
            made = np.array(image.convert(IMAGES[of]))
    except Exception as fault:  # Pillow's readers raise what they like
        raise ValueError(f"its bytes are no image that Pillow reads ({fault})") from fault
    made = made.reshape(*made.shape[:2], -1)
    return made[:, :, ::-1] if of == "image/BGR" else made
