"""What PyTorch is asked for: a program of its operators, exported and decomposed.

In: an `nn.Module` or a function, and example inputs, or an `ExportedProgram`. Out: an
`ExportedProgram` in operators that have translators, as far as PyTorch can express it so.
"""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.utils import _pytree as pytree

from tilewright.frontend.torch.branches import is_check, is_cond
from tilewright.frontend.torch.complex import COMPLEX
from tilewright.frontend.torch.inplace import functional, is_private
from tilewright.frontend.torch.own import register
from tilewright.frontend.torch.registry import TRANSLATORS
from tilewright.support.errors import ImportFault

PROGRAM = torch.export.ExportedProgram
UPDATING = (  # in training: running statistics, which the schema may hide
    "aten.batch_norm.default",
    "aten._native_batch_norm_legit.default",
)
DEEPEST = 3  # decompositions whose results are decomposed again


@cache
def tracing_lock() -> Any:
    """What a thread holds while it traces: PyTorch's own lock, so that a `torch.compile` in another
    thread waits too."""
    from torch._dynamo import convert_frame

    return getattr(convert_frame, "compile_lock", None) or threading.RLock()


def export(
    module: Any, example_inputs: Any, example_kwargs: Any = None, dynamic_shapes: Any = None
) -> PROGRAM:
    """The module as PyTorch's own graph. Raises ImportFault."""
    what = f"cannot import {type(module).__name__}"
    if not isinstance(module, torch.nn.Module):
        if not callable(module):
            raise ImportFault(
                what,
                f"a {type(module).__module__}.{type(module).__qualname__} is no torch.nn.Module",
                remedy="give a module, a function, or a program of torch.export.export",
            )
        function, module = module, torch.nn.Module()
        module.forward = function
    args, kwargs = examples(what, example_inputs, example_kwargs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about PyTorch's own layers; nothing a user can act on
            return _exported(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as fault:  # whatever the module's own code raises
        raise ImportFault(
            what,
            f"torch.export fails on it with {type(fault).__name__}",
            str(fault).strip(),
            "its forward must accept the example inputs and must not branch on their content",
        ) from fault


def _exported(*arguments: Any, **options: Any) -> PROGRAM:
    """What torch.export makes of a module that Python runs. Before 2.7 that refuses modules which
    assign tensors, as recurrent layers do; reading their code does not."""
    try:
        return torch.export.export(*arguments, **options, strict=False)
    except ValueError:
        if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7):
            raise
        return torch.export.export(*arguments, **options, strict=True)


def examples(what: str, given: Any, named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a forward, by position and by name; arrays as tensors. Raises
    ImportFault."""
    if given is None and named is None:
        raise ImportFault(
            what,
            "its input shapes are not known",
            remedy="pass example_inputs=(tensor, ...), the arguments of its forward",
        )
    if isinstance(given, Mapping) and named is None:
        given, named = (), given
    given, named = () if given is None else given, {} if named is None else named
    if not isinstance(given, tuple | list):
        raise ImportFault(
            what,
            f"example_inputs is a {type(given).__qualname__}, not a tuple",
            remedy="pass the arguments of its forward as a tuple: example_inputs=(x,)",
        )
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise ImportFault(
            what,
            f"{named!r:.200} is no mapping of arguments by their names",
            remedy='pass what its forward takes by name as in example_kwargs={"mask": mask}',
        )

    def tensors(tree: Any) -> Any:
        return pytree.tree_map_only(np.ndarray, torch.from_numpy, tree)

    return tuple(map(tensors, given)), {name: tensors(x) for name, x in named.items()}


def decomposed(program: PROGRAM) -> PROGRAM:
    """The program in operators that have translators, as far as PyTorch can express it so. What is
    exported under autocast does not show its conversions: decomposed there, it does."""
    register(program.graph.nodes)
    is_cast = torch.is_autocast_enabled("cpu")
    if not is_cast and all(is_known(node) for node in program.graph.nodes):
        return program
    table = torch.export.default_decompositions()
    for op in list(table):
        if str(op) in TRANSLATORS:
            del table[op]
    further = decompositions(of_complex=True)  # where a node lacks one of its kind of numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = program.run_decompositions(table)
        for _ in range(DEEPEST):  # what PyTorch can express in simpler operators, but does not
            unknown = {node.target for node in made.graph.nodes if not is_known(node)}
            wanted = {op: further[op] for op in unknown if op in further}
            if not wanted:
                return made
            made = made.run_decompositions(wanted)
    return made


def decompositions(of_complex: bool = False) -> dict[Any, Any]:
    """PyTorch's own decompositions of all operators that have no translator (of_complex: none of
    complex numbers)."""
    table = {**decomposition_table, **core_aten_decompositions()}
    known = COMPLEX if of_complex else TRANSLATORS | COMPLEX
    return {op: f for op, f in table.items() if str(op) not in known}


def is_known(node: torch.fx.Node) -> bool:
    """Can the node be translated? Numbers are read off, not computed."""
    if str(node.target) in UPDATING and node.args[5]:
        return False
    return (
        node.op != "call_function"
        or str(node.target) in (COMPLEX if _is_complex(node) else TRANSLATORS)
        or (functional(node.target) is not None and is_private(node))
        or node.target is operator.getitem
        or is_size(node)
        or is_check(node)
        or is_cond(node)
    )


def _is_complex(node: torch.fx.Node) -> bool:
    """Is the node's value, or one that it reads, a complex tensor?"""
    leaves = pytree.tree_leaves([n.meta.get("val") for n in (node, *node.all_input_nodes)])
    return any(isinstance(x, torch.Tensor) and x.is_complex() for x in leaves)


def is_size(node: torch.fx.Node) -> bool:
    """Is the node's value a number and not a tensor?"""
    value = node.meta.get("val")
    return isinstance(value, int | float | torch.SymInt | torch.SymFloat | torch.SymBool)
