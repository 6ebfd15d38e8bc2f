"""`torch.compile(model, backend="tilewright")`: PyTorch's tracer in front of our compiler.

In: the graphs that TorchDynamo cuts out of a Python program, made functional by AOTAutograd. Out:
functions that run them. PyTorch runs what it cannot trace; a graph that we cannot import runs as
PyTorch would run it, with a warning that says why. Without gradients, parameters and buffers are
constants of the compiled model; when one is changed later, the model is compiled again.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext

from tilewright.driver.entry import compile
from tilewright.frontend.torch.program import decompositions
from tilewright.frontend.torch.traced import Output, Traced, import_traced
from tilewright.graph import sizes
from tilewright.graph.graph import Graph
from tilewright.graph.specialise import specialise
from tilewright.support.errors import CompileError, UserFault
from tilewright.support.logs import INFO, log

OPTIONS = ("threads", "opt_level", "winograd", "database")
MOST_SPECIAL = 4  # sizes that have code of their own
OFTEN = 4  # calls with the same sizes from which code for them pays
MOST_REMEMBERED = 1000  # sizes whose calls are counted
MOST_FROZEN = 2  # times that parameters are constants; those that change more often are inputs

Run = Callable[[Sequence[Any]], list[Any]]  # a graph's inputs → its results


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

    options: `threads`, `opt_level`, `winograd` and `database`, as `tilewright.compile` takes them.
    Raises CompileError for other options.
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
    one written since) is seen by its address and version. Threads may call it at once: one of them
    compiles, and what was made and for which constants changes together.
    """

    def __init__(
        self, module: torch.fx.GraphModule, held: Sequence[int], options: dict[str, Any]
    ) -> None:
        self.module, self.held, self.options = module, held, options
        self.times = 0
        self.made: tuple[list[tuple[int, int]] | None, Run] = None, self.eager
        self.lock = threading.Lock()

    def __call__(self, *inputs: Any) -> list[Any]:
        seen, run = self.made
        if seen != self.constants(inputs):
            run = self.rebuilt(inputs)
        return run(inputs)

    def constants(self, inputs: Sequence[Any]) -> list[tuple[int, int]]:
        """What tells one content of the inputs that are constants from another."""
        return [(inputs[k].data_ptr(), inputs[k]._version) for k in self.held]

    def rebuilt(self, inputs: Sequence[Any]) -> Run:
        """The function for these constants, made now unless another thread has just made it."""
        with self.lock:
            if self.made[0] != self.constants(inputs):
                self.times += 1
                if self.times > 1:
                    log(INFO, "torch", "parameters were changed: the graph is compiled again")
                if self.times > MOST_FROZEN:
                    self.held = ()
                self.made = self.constants(inputs), self.build(inputs)
            return self.made[1]

    def eager(self, inputs: Sequence[Any]) -> list[Any]:
        return list(self.module(*inputs))

    def build(self, inputs: Sequence[Any]) -> Run:
        """The function for these inputs: compiled, or PyTorch's own after a warning."""

        def made() -> Run:
            for x in inputs:
                if isinstance(x, torch.Tensor) and x.device.type != "cpu":
                    raise CompileError(
                        "cannot compile the graph",
                        f"an input lies on the device '{x.device}'",
                        remedy="the backend runs on the CPU: call model.cpu()",
                    )
            traced = import_traced(self.module, {k: inputs[k] for k in self.held})
            if traced.graph.symbols:
                return BySizes(traced, self.options, self.eager)
            return Runner(traced, compile(traced.graph, cache=False, **self.options))

        return unless_refused(made, self.eager)


def unless_refused(make: Callable[[], Run], eager: Run) -> Run:
    """What `make` makes; `eager` after a warning if it cannot."""
    try:
        return make()
    except UserFault as fault:
        warnings.warn(f"PyTorch runs this graph: {fault}", EagerWarning, stacklevel=3)
        return eager
    except Exception as fault:  # ours; the program goes on all the same
        said = f"{type(fault).__name__}: {fault}"
        warnings.warn(
            f"PyTorch runs this graph; that it could not be compiled is a fault of Tilewright,"
            f" please report it: {said}",
            EagerWarning,
            stacklevel=3,
        )
        return eager


class BySizes:
    """A traced graph with open sizes: code for the first sizes alone, for all sizes once there are
    others, and for further ones alone if they keep coming.

    PyTorch traces with open sizes when it sees a second one, and that is often the last; text that
    grows by a word brings a new one with each call.
    """

    def __init__(
        self,
        traced: Traced,
        options: dict[str, Any],
        eager: Run,
    ) -> None:
        self.traced, self.options, self.eager = traced, options, eager
        self.positions = [(traced.inputs[k], axis) for _, k, axis in traced.symbols]
        self.special: dict[tuple[int, ...], Run] = {}
        self.calls: dict[tuple[int, ...], int] = {}  # with sizes that have no code of their own
        self.general: Run | None = None
        self.lock = threading.Lock()  # of who counts calls and compiles

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        given = [(inputs[k], axis) for k, axis in self.positions]
        now = tuple([x.shape[axis] if isinstance(x, torch.Tensor) else x for x, axis in given])
        run = self.special.get(now)
        if run is None:
            with self.lock:
                run = self.special.get(now) or self.runner(now)
        return run(inputs)

    def runner(self, now: tuple[int, ...]) -> Run:
        """What runs inputs of these sizes, compiled if that is due."""
        if len(self.calls) >= MOST_REMEMBERED:
            self.calls.clear()
        self.calls[now] = count = self.calls.get(now, 0) + 1
        is_first = not self.special and self.general is None
        if is_first or (count >= OFTEN and len(self.special) < MOST_SPECIAL):
            found = {s.name: n for (s, _, _), n in zip(self.traced.symbols, now, strict=True)}
            if found.keys() >= {s.name for s in self.traced.graph.symbols}:
                self.special[now] = self.compiled(lambda: specialise(self.traced.graph, found))
                return self.special[now]
        if self.general is None:
            self.general = self.compiled(lambda: self.traced.graph)
        return self.general

    def compiled(self, graph: Callable[[], Graph]) -> Run:
        def made() -> Runner:
            return Runner(self.traced, compile(graph(), cache=False, **self.options))

        return unless_refused(made, self.eager)


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
    """A tensor, a complex one as pairs, or a size as the length of an empty one."""
    if not isinstance(given, torch.Tensor):
        return torch.empty((given, 0), dtype=torch.uint8)
    return torch.view_as_real(given.resolve_conj()) if given.is_complex() else given
