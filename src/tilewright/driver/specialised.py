"""Code for the sizes that calls bring, beside the code for all sizes.

In: a model with open sizes, and for how many shapes there may be code of their own. Out: a
`Specialised`, called like an `Executable`. Fixed sizes make the faster code (Winograd's tiles,
loops without tails, values computed at compile time); each set of them costs a compilation and a
copy of the packed weights, hence the bound. `code_alone` does the same for the few sizes that code
for all of them refuses (docs/decisions/020).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.driver.options import Options
from tilewright.runtime.executor import Executable, Shapes
from tilewright.runtime.named_outputs import named_outputs
from tilewright.support.errors import CompileError
from tilewright.support.record import record

MOST_ALONE = 8  # shapes
Compile = Callable[..., Any]  # `tilewright.compile`


class Specialised:
    """A compiled model with code for the first shapes that it is called with; made by
    `compile(specialise=...)`, and used like an `Executable`.

    What it says of itself (inputs, outputs, profile, save …) is that of `general`, the executable
    for all sizes. `special` has the others by the shapes of the inputs, in order. A clone asks the
    one that it was cloned from for code, so that each shape is compiled once for all clones. A
    pickle holds the artifacts and the model (or its path), to compile for further shapes.
    """

    def __init__(
        self,
        general: Executable,
        remake: Callable[[Shapes], Executable],
        most: int,
        root: Specialised | None = None,
    ) -> None:
        """root: of a clone, whoever compiles for it."""
        self.general, self.most, self._root = general, most, root
        self.special: dict[Shapes, Executable] = {}
        self._remake = remake
        self._lock = threading.Lock()
        self._refused: set[Shapes] = set()  # shapes that have no code of their own

    def __call__(self, *arrays: Any, **named: Any) -> list[Any]:
        """As `Executable.__call__`. The first call with shapes that are new compiles for them."""
        if named or (len(arrays) == 1 and isinstance(arrays[0], Mapping)):
            arrays = self.general.in_order(arrays, named)
        return self.code_for(arrays)(*arrays)

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        """As `Executable.run`."""
        return named_outputs(self.general.output_names, outputs, self(dict(inputs)), self.name)

    def run_into(
        self, outputs: Sequence[Any] | Mapping[str, Any], inputs: Sequence[Any] | Mapping[str, Any]
    ) -> None:
        """As `Executable.run_into`."""
        given = (inputs,) if isinstance(inputs, Mapping) else tuple(inputs)
        arrays = self.general.in_order(given, {})
        self.code_for(arrays).run_into(outputs, arrays)

    def profile(self, *arrays: Any, **options: Any) -> Any:
        """As `Executable.profile`, of the code that runs on these inputs."""
        return self.code_for(arrays).profile(*arrays, **options)

    def code_for(self, arrays: Sequence[Any]) -> Executable:
        """The executable that inputs of these shapes run on; made now if there is room for it."""
        try:
            shapes = tuple([tuple(np.shape(x)) for x in arrays])
        except ValueError:  # a list of unequal ones, which `general` refuses in its own words
            return self.general
        return self._of_shapes(shapes) or self.general

    def _of_shapes(self, shapes: Shapes) -> Executable | None:
        found = self.special.get(shapes)
        if found is None and len(self.special) < self.most and self._fits(shapes):
            with self._lock:
                found = self.special.get(shapes)
                if found is None and len(self.special) < self.most:
                    found = self._make(shapes)
        return found

    def _fits(self, shapes: Shapes) -> bool:
        """May the model take these shapes? What it refuses, `general` refuses in its own words."""
        declared = [t.shape for t in self.general.inputs]
        return (
            shapes not in self._refused
            and list(map(len, shapes)) == list(map(len, declared))
            and all(
                isinstance(wanted, str) or size == wanted
                for shape, sizes in zip(shapes, declared, strict=True)
                for size, wanted in zip(shape, sizes, strict=True)
            )
        )

    def _make(self, shapes: Shapes) -> Executable | None:
        if self._root is not None:
            found = self._root._of_shapes(shapes)
            if found is not None:
                self.special[shapes] = found.clone(self.general.threads)
            return self.special.get(shapes)
        try:
            self.special[shapes] = self._remake(shapes)
        except CompileError:  # the sizes do not fit each other, or only the run can tell them
            self._refused.add(shapes)
        return self.special.get(shapes)

    def clone(self, threads: int | None = None) -> Specialised:
        """As `Executable.clone`."""
        root = self._root or self
        return Specialised(self.general.clone(threads), self._remake, self.most, root)

    def __copy__(self) -> Specialised:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Specialised:
        return self.clone()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**vars(self), "special": dict(self.special), "_root": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __getattr__(self, name: str) -> Any:
        if name == "general":  # not made yet
            raise AttributeError(name)
        return getattr(self.general, name)

    def __repr__(self) -> str:
        return f"<Specialised {self.general!r}, {len(self.special)} of {self.most} shapes>"


def compile_specialised(
    source: Any, most: int, options: Options, compile: Compile
) -> Executable | Specialised:
    """As `compile`, with code for up to `most` shapes that calls bring. A model without open sizes
    is compiled as ever. compile: `tilewright.compile`, which asks for this. Raises CompileError."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise CompileError(
            f"cannot compile with specialise={most!r}", "it is a number of shapes, 0 or more"
        )
    from tilewright.driver.source import is_onnx, open_source

    if not is_onnx(source):  # read it once
        asked = None, options.shapes, options.dynamic_shapes, options.example_kwargs
        source = open_source(source, options.example_inputs, *asked).graph()
        examples = dict.fromkeys(["example_inputs", "example_kwargs", "dynamic_shapes", "shapes"])
        options = replace(options, **examples)
    general: Any = compile(source, **vars(options))
    if all(symbol.data_dependent for symbol in general.manifest.symbols):
        return general
    names = general.input_names
    return Specialised(general, Remake(source, options, names, compile), most)


def code_alone(
    source: Any, options: Options, names: Sequence[str], compile: Compile
) -> Callable[[Shapes], Executable | None]:
    """What compiles a model for shapes that its code for all sizes does not take, and keeps that
    code for the last few of them; None where they do not fit either. names: of its inputs."""
    remake = Remake(source, options, names, compile)

    @lru_cache(MOST_ALONE)
    def code_for(shapes: Shapes) -> Executable | None:
        with contextlib.suppress(CompileError):
            return remake(shapes)
        return None

    return code_for


@record
class Remake:
    """What compiles a model for the shapes of its inputs; compile: `tilewright.compile`."""

    source: Any
    options: Options
    names: Sequence[str]  # of the inputs
    compile: Compile

    def __call__(self, shapes: Shapes) -> Any:
        fixed = {**(self.options.shapes or {}), **dict(zip(self.names, shapes, strict=True))}
        return self.compile(self.source, **vars(replace(self.options, shapes=fixed)))
