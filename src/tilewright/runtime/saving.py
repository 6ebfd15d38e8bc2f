"""Writing a model to disk: an artifact, or what C programs link or compile.

In: an artifact's bytes. Out: a file, or a folder (`export`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.runtime import abi
from tilewright.runtime.signing import sign as add_signature
from tilewright.support.cache import replace_file
from tilewright.support.files import writing


def save(
    artifact: memoryview,
    manifest: abi.Manifest,
    target: Path,
    kind: str,
    name: str | None,
    sign: Any,
) -> Path:
    """Write it (see `Executable.save`); returns the path written."""
    if kind != "artifact":
        from tilewright.runtime import export

        if kind not in export.KINDS:
            known = ", ".join(map(repr, export.KINDS))
            raise ValueError(f"kind is 'artifact' or one of {known}, not {kind!r}")
        if sign is not None:
            raise ValueError("only an artifact can be signed, not a library")
        return export.Library(target, kind, name).write(artifact, manifest)
    if name is not None:
        raise ValueError("an artifact is named by its path; name is for libraries")
    with writing(target), replace_file(target) as file:
        file.write(artifact)
        if sign is not None:
            add_signature(file, sign)
    return target
