"""What a run gives, kept in files: one .npz for a call, or a folder with one for each.

In: the path that the user names. Out: files whose arrays have the outputs' names.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.formats import values_of
from tilewright.support.errors import InputError

MOST = 20  # calls that are shown


def keeper(out: Path, calls: int) -> Keeper:
    """What keeps the outputs of so many calls; a folder is made. Raises InputError, before the
    run."""
    is_file = out.suffix == ".npz"
    if is_file and calls > 1:
        raise InputError(
            f"cannot keep the outputs in '{out}'",
            f"there are {calls} calls, each with outputs of its own",
            remedy=f"name a folder, as in -o {out.with_suffix('')}",
        )
    folder = out.parent if is_file else out
    try:
        if not is_file:
            folder.mkdir(exist_ok=True)
        if is_file and out.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        if not folder.is_dir():
            raise FileNotFoundError(0, f"there is no folder '{folder}'")
        if not os.access(folder, os.W_OK):
            raise PermissionError(0, f"the folder '{folder}' takes no files of yours")
    except OSError as fault:
        raise InputError(
            f"cannot keep the outputs in '{out}'",
            fault.strerror or str(fault),
            remedy="name an .npz file, or a folder, in one that exists",
        ) from None
    return Keeper(out)


def plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of a type that files have: text for strings, f32 for bf16, f8, i4 and such."""
    if array.dtype.hasobject:
        return array.astype(str)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


class Keeper:
    """Writes the outputs of calls to one path."""

    def __init__(self, out: Path) -> None:
        self.out, self.used = out, dict[str, int]()

    def keep(self, call: str, infos: Sequence[abi.TensorInfo], results: Sequence[Any]) -> Path:
        """Write a call's outputs; returns the file."""
        path = self.out if self.out.suffix == ".npz" else self.out / self._name(call or "outputs")
        with zipfile.ZipFile(path, "w") as archive:  # as savez, whatever the outputs' names
            for info, result in zip(infos, results, strict=True):
                with archive.open(f"{info.name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, plain(values_of(result)), allow_pickle=False)
        return path

    def _name(self, call: str) -> str:
        """After the call; numbered where two have one name (a.png and a.jpg)."""
        self.used[call] = number = self.used.get(call, 0) + 1
        return f"{call}.npz" if number == 1 else f"{call}-{number}.npz"
