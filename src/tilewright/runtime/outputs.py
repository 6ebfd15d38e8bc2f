"""Some of a call's results, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.support.errors import InputError


def named_outputs(
    names: Sequence[str], wanted: Sequence[str] | None, results: list[Any], model: str
) -> list[Any]:
    """Those of a call's results that are wanted, in the order of their names. Raises InputError."""
    if wanted is None:
        return results
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise InputError(
            f"cannot give outputs {wanted!r} of '{model}'",
            "they are a list of names, or None for all",
            remedy=f"its outputs are {', '.join(names)}",
        )
    found = dict(zip(names, results, strict=True))
    unknown = [name for name in wanted if name not in found]
    if unknown:
        raise InputError(
            f"cannot give output {unknown[0]!r} of '{model}'",
            "the model has no output of this name",
            remedy=f"its outputs are {', '.join(names)}",
        )
    return [found[name] for name in wanted]
