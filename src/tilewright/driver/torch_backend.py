"""`torch.compile(model, backend="tilewright")`: PyTorch's tracer in front of our compiler.

In: the graphs that TorchDynamo cuts out of a Python program, made functional by AOTAutograd. Out:
functions that run them. PyTorch runs what it cannot trace; a graph that we cannot import runs as
PyTorch would run it, with a warning that says why. Without gradients, parameters and buffers are
constants of the compiled model; when one is changed later, the model is compiled again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext

from tilewright.driver.entry import compile
from tilewright.frontend.torch.importer import decompositions
from tilewright.frontend.torch.traced import Output, Traced, import_traced
from tilewright.graph import sizes
from tilewright.support.errors import CompileError, UserFault

OPTIONS = ("threads", "opt_level")
MOST_FROZEN = 2  # times that parameters are constants; those that change more often are inputs


class EagerWarning(UserWarning):
    """A part of a torch.compile'd program that PyTorch runs, and why."""


def tilewright(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend: a function that computes what `module` does.

    options: `threads` and `opt_level`, as `tilewright.compile` takes them. Raises CompileError for
    other options.
    """
    options = dict(options or {})
    unknown = [k for k in options if k not in OPTIONS]
    if unknown or mode not in (None, "default"):
        asked = f"options={{{unknown[0]!r}: …}}" if unknown else f"mode={mode!r}"
        raise CompileError(
            f"torch.compile cannot pass {asked} to the backend 'tilewright'",
            f"the backend takes no {'option of this name' if unknown else 'mode'}",
            remedy=f"options that it takes: {', '.join(OPTIONS)}",
        )
    backend = aot_autograd(
        fw_compiler=lambda traced, _: boxed(Compiled(traced, (), options)),
        inference_compiler=lambda traced, _: boxed(Compiled(traced, unchanging(), options)),
        decompositions=decompositions(),
    )
    return backend(module, example_inputs)


def unchanging() -> list[int]:
    """Which inputs of the graph that is being compiled are parameters or buffers that it only
    reads."""
    context = TracingContext.try_get()
    facts = context.fw_metadata if context else None
    if facts is None:
        return []
    mutated = [k for k, i in enumerate(facts.input_info) if i.mutates_data or i.mutates_metadata]
    return [k for k in facts.static_input_indices if k not in mutated]


def boxed(compiled: Compiled) -> Callable[..., Any]:
    """`compiled` in AOTAutograd's calling convention: a list of arguments, which it may empty."""
    return make_boxed_func(compiled)


class Compiled:
    """A traced graph as a function. Compiles on the first call, when all inputs have contents.

    `held` are the numbers of the inputs that become constants. A change of one (another tensor, or
    one written since) is seen by its address and version.
    """

    def __init__(
        self, module: torch.fx.GraphModule, held: Sequence[int], options: dict[str, Any]
    ) -> None:
        self.module, self.held, self.options = module, held, options
        self.seen: list[tuple[int, int]] | None = None
        self.times = 0
        self.run: Callable[[Sequence[Any]], list[Any]] = self.eager

    def __call__(self, *inputs: Any) -> list[Any]:
        seen = [(inputs[k].data_ptr(), inputs[k]._version) for k in self.held]
        if seen != self.seen:
            self.times += 1
            if self.times > MOST_FROZEN:
                self.held, seen = (), []
            self.seen, self.run = seen, self.build(inputs)
        return self.run(inputs)

    def eager(self, inputs: Sequence[Any]) -> list[Any]:
        return list(self.module(*inputs))

    def build(self, inputs: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
        """The function for these inputs: compiled, or PyTorch's own after a warning."""
        try:
            for x in inputs:
                if isinstance(x, torch.Tensor) and x.device.type != "cpu":
                    raise CompileError(
                        "cannot compile the graph",
                        f"an input lies on the device '{x.device}'",
                        remedy="the backend runs on the CPU: call model.cpu()",
                    )
            traced = import_traced(self.module, {k: inputs[k] for k in self.held})
            executable = compile(traced.graph, cache=False, **self.options)
        except UserFault as fault:
            warnings.warn(f"PyTorch runs this graph: {fault}", EagerWarning, stacklevel=2)
            return self.eager
        except Exception as fault:  # ours; the program goes on all the same
            said = f"{type(fault).__name__}: {fault}"
            warnings.warn(
                f"PyTorch runs this graph; that it could not be compiled is a fault of Tilewright,"
                f" please report it: {said}",
                EagerWarning,
                stacklevel=2,
            )
            return self.eager
        return Runner(traced, executable)


class Runner:
    """The compiled graph: arguments of the traced module in, its results out."""

    def __init__(self, traced: Traced, executable: Callable[..., list[Any]]) -> None:
        self.traced, self.executable = traced, executable
        self.plain = traced.results == [Output(k) for k in range(len(traced.results))]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        traced = self.traced
        given = [carried(inputs[k]) for k in traced.inputs]
        if traced.seeded:  # from PyTorch's generator, so that torch.manual_seed repeats a run
            given.append(torch.empty((), dtype=torch.int64).random_())
        found = self.executable(*given)
        if found and not isinstance(found[0], torch.Tensor):  # a graph without tensor inputs
            found = [torch.from_numpy(y) for y in found]
        if self.plain:
            return found
        symbols = {s: given[k].shape[axis] for s, k, axis in traced.symbols}
        return [self.result(r, found, symbols) for r in traced.results]

    @staticmethod
    def result(result: Any, found: list[Any], symbols: dict[Any, int]) -> Any:
        if isinstance(result, Output):
            y = found[result.number]
            return torch.view_as_complex(y) if result.is_complex else y
        if result is None or isinstance(result, int | float):
            return result
        return sizes.at(result, symbols)


def carried(given: Any) -> torch.Tensor:
    """A tensor, or a size as the length of an empty one."""
    return given if isinstance(given, torch.Tensor) else torch.empty((given, 0), dtype=torch.uint8)
