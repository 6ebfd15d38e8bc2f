"""What a caller may ask of a compilation, as one value that is handed on.

The words stand in `tilewright.compile`; here they only travel together: `vars` of it are its
keyword arguments again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.support.record import record

if TYPE_CHECKING:
    from tilewright.target.target import Target


@record
class Options:
    """How to compile a model; what each means is said at `tilewright.compile`."""

    target: str | Target | Sequence[str | Target] = "cpu"
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None
    example_kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    shapes: Mapping[str, int | Sequence[int | str | None]] | None = None
    threads: int | None = None
    opt_level: int = 3
    winograd: bool | None = None
    cache: bool = True
    database: Any = None
