"""Python's numbers and lists, and what knows how to be an array, as arrays of an input's dtype.

In: a number, a list of numbers (nested, of equal lengths) or a NumPy scalar. Out: an array in the
dtype that the model takes, where that says the same: booleans are 0 and 1, whole numbers may become
floats, floats are rounded to the nearest. A float never becomes a whole number, and a number that
the dtype cannot hold is refused. Arrays have a dtype of their own and are not converted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.runtime.tensor import numpy_dtype, to_numpy

Array = np.ndarray[Any, Any]
LITERALS = (list, tuple, int, float, complex, np.generic)
WORDS = {"i": "a whole number", "u": "a whole number", "f": "a float", "c": "a complex number"}
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}  # of the kinds of numbers; none becomes a lower


def input_array(value: Any, of: str) -> Array:
    """An input as an array, `of` the dtype (its name) if it is a literal; else as it is, without a
    copy where it is NumPy's or has DLPack. Raises TypeError, ValueError or BufferError with the
    reason."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, LITERALS):
        return literal(value, of)
    known = [
        name for name in ("__dlpack__", "__array__", "__array_interface__") if hasattr(value, name)
    ]
    if known and known[0] != "__dlpack__":  # images, tables
        return np.asarray(value)
    return to_numpy(value)


def literal(value: Any, of: str) -> Array:
    """The array of dtype `of` that a literal stands for. Raises TypeError or ValueError."""
    try:
        given = np.asarray(value)
    except ValueError:  # NumPy's words are about its own arrays
        raise ValueError("its lists differ in length") from None
    dtype, wanted = numpy_dtype(of), _kind(of)
    if given.dtype.kind == "f" and wanted in "iu":  # NumPy's choice for 0 beside 2**63, too
        given = np.asarray(value, object)
    found = _kind_of(given)
    if found not in _RANK:
        raise TypeError(f"it is neither an array nor numbers, of which {of} are expected")
    if given.size and _RANK[found] > _RANK[wanted]:
        first = next(x for x in given.ravel().tolist() if _kind_of(np.asarray(x)) == found)
        raise TypeError(f"{first}, {WORDS[found]}, does not become {of}")
    if found == "c":
        return given.astype(np.result_type(dtype, np.complex64))
    with np.errstate(over="ignore", invalid="ignore"):
        if wanted == "f":
            exact = given.astype(np.float64)
            made = exact.astype(dtype)
            lost = np.isfinite(exact) & ~np.isfinite(made.astype(np.float64))
        else:
            lost = _outside(given, of, wanted)
            made = given if lost.any() else given.astype(dtype)
    if lost.any():
        raise ValueError(f"{given[lost].flat[0]} does not fit {of}")
    return made


def _kind(of: str) -> str:
    return "b" if of == "bool" else of[0] if of[0] in "iu" else "f"


def _kind_of(given: Array) -> str:
    """NumPy's letter for the kind of numbers; small floats of other packages are floats."""
    kind = given.dtype.kind
    if kind == "V" and given.dtype.names is None:
        return "f" if "float" in given.dtype.name else "i" if "int" in given.dtype.name else kind
    if kind == "O":
        kinds = {np.asarray(x).dtype.kind if type(x) is not int else "i" for x in given.flat}
        return max(kinds, key=lambda k: _RANK.get(k, 3), default="i")
    return kind


def _outside(given: Array, of: str, wanted: str) -> Array:
    """Where a whole number is beyond those of the dtype."""
    if wanted == "b" or not given.size or given.dtype.kind == "b":
        return np.zeros(given.shape, bool)
    bits = int(of[1:])
    least, most = (0, 2**bits - 1) if wanted == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return np.asarray([not least <= x <= most for x in given.ravel().tolist()]).reshape(given.shape)
