"""Operators from outside: `tw.operator` puts one into the registry, with how files name it.

In: a te definition, its NumPy reference, what draws applications of it, and its names in ONNX and
PyTorch. Out: an entry of the registry like those of `graph/ops`. What comes from outside is not
trusted to be right: each call of it is held to its type rule, and what it raises is told with its
name.
"""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.operator import OPERATORS, Fusion, Mismatch, Operator, Trait, Type, add
from tilewright.graph.outside import ONNX, OWN, TAKEN_DOMAINS, TORCH, Draw, Entry, Own, forget
from tilewright.ir.dtype import dtype
from tilewright.support.errors import CompileError, TilewrightError
from tilewright.support.loaded_code import code_digest

GUIDE = "docs/own_operators.md shows one"
FUSIONS = ("broadcast", "injective", "reduction", "complex", "opaque")
TRAITS = {"cheap": Trait.CHEAP, "finite": Trait.FINITE}


def operator(
    define: Callable[..., Any] | None = None,
    *,
    fusion: str = "opaque",
    reference: Callable[..., Any] | None = None,
    draw: Draw | None = None,
    infer: Callable[..., Any] | None = None,
    traits: Iterable[str] = (),
    onnx: str | Mapping[str, Entry] | None = None,
    torch: str | Mapping[str, Entry] | None = None,
) -> Any:
    """Register the decorated function, a te definition, as an operator of one's own.

    Its name is the operator's, its positional parameters are tensors, its keyword-only parameters
    are attributes with their defaults, its docstring says what it does; it returns a te tensor, or
    a tuple of several.

    Args:
        define: the definition, where this is not called with arguments first.
        fusion: how its loops relate to its neighbours': "broadcast" (element by element, in
            whatever shape), "injective" (an element of the result follows from a few elements),
            "reduction", "complex" (a product or convolution) or "opaque" (never fused).
        reference: the same on NumPy arrays; required.
        draw: from a `numpy.random.Generator`, the arrays and the attributes of one application;
            required. `tw.check_operator` draws many.
        infer: the type rule, from inputs with `dtype`, `shape` and `rank` and the attributes to
            (dtype, shape) or a list of those; a ValueError says why there is no result. None: the
            definition's own types.
        traits: "cheap" (to compute again takes no longer than to store and read), "finite" (of
            finite numbers it makes finite ones, so that it may run on padding).
        onnx: "domain::Operator", or a mapping from such names to functions of a node that give its
            value, None for attributes of the same names.
        torch: likewise "namespace::operator" or "namespace::operator.overload".

    Returns:
        The registry's entry.

    Raises:
        CompileError: a name is taken, something is missing, or no such thing can be registered.
    """

    def register(define: Callable[..., Any]) -> Operator:
        told = getattr(define, "__name__", repr(define))
        _check_definition(define, told)
        if not callable(reference):
            raise _refusal(
                told, "it has no reference",
                f"give reference=…, the same computation on NumPy arrays; {GUIDE}",
            )  # fmt: skip
        if not callable(draw):
            raise _refusal(
                told, "it has no draw",
                f"give draw=…, what draws arrays and attributes to check it with; {GUIDE}",
            )  # fmt: skip
        if fusion not in FUSIONS:
            raise _refusal(told, f"fusion={fusion!r} is none", f"expected {_listed(FUSIONS)}")
        asked = [traits] if isinstance(traits, str) else list(traits)
        for trait in asked:
            if trait not in TRAITS:
                raise _refusal(told, f"there is no trait {trait!r}", f"expected {_listed(TRAITS)}")
        kinds = functools.reduce(Trait.__or__, [TRAITS[t] for t in asked], Trait(0))
        rule = infer or _type_rule(define)
        entry = Operator(define, Fusion(fusion), rule, reference, False, kinds)
        entry.package = define.__module__ or "__main__"
        guarded = _Guarded(entry, define, reference, infer)
        entry.infer = guarded.infer
        entry.define = functools.wraps(define)(lambda *t, **attrs: guarded.define(*t, **attrs))
        entry.reference = guarded.reference
        entries = _onnx_entries(told, onnx), _torch_entries(told, torch)
        given = [define, reference, draw, infer, *entries[0].values(), *entries[1].values()]
        written = [f for f in given if f is not None]
        own = Own(entry, draw, *entries, lambda: code_digest(written) or "")
        _add(own)
        return entry

    return register if define is None else register(define)


def _check_definition(define: Any, told: str) -> None:
    if not isinstance(define, FunctionType):
        raise _refusal(told, "its definition is no function", GUIDE)
    is_name = told.isidentifier() and told.isascii() and not keyword.iskeyword(told)
    if not is_name or told[0] == "_" or told[-1] == "_":
        raise _refusal(told, "that is no name for an operator", "as in def soft_cap(x): …")
    if not (inspect.getdoc(define) or "").strip():
        raise _refusal(told, "it has no docstring", "say in a sentence what it computes")


def _refusal(name: str, why: str, remedy: str) -> CompileError:
    return CompileError(f"cannot register the operator '{name}'", why, remedy=remedy)


def _listed(words: Iterable[str]) -> str:
    *some, last = [f'"{word}"' for word in words]
    return f"{', '.join(some)} or {last}"


def _onnx_entries(name: str, given: Any) -> dict[tuple[str, str], Entry]:
    found: dict[tuple[str, str], Entry] = {}
    for key, entry in _entries(name, "onnx", given).items():
        domain, _, op = key.partition("::")
        if not op.isidentifier() or domain.strip() != domain:
            raise _refusal(name, f"onnx={key!r} is no name", 'as in onnx="com.example::SoftCap"')
        if domain in TAKEN_DOMAINS:
            raise _refusal(
                name,
                f"onnx={key!r} is of the domain ai.onnx, which Tilewright reads itself",
                'give it a domain of your own, as in onnx="com.example::SoftCap"',
            )
        found[domain, op] = entry
    return found


def _torch_entries(name: str, given: Any) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for key, entry in _entries(name, "torch", given).items():
        space, _, op = key.partition("::")
        op, _, overload = op.partition(".")
        if not space.isidentifier() or not op.isidentifier():
            raise _refusal(name, f"torch={key!r} is no name", 'as in torch="example::soft_cap"')
        if space in ("aten", "prims", "prim"):
            raise _refusal(
                name,
                f"torch={key!r} is PyTorch's own, which Tilewright reads itself",
                "give it a namespace of your own: torch.library.custom_op makes operators",
            )
        found[f"{space}.{op}.{overload or 'default'}"] = entry
    return found


def _entries(name: str, word: str, given: Any) -> dict[str, Entry]:
    if given is None:
        return {}
    entries = {given: None} if isinstance(given, str) else given
    if not isinstance(entries, Mapping) or not all(
        isinstance(key, str) and (entry is None or callable(entry))
        for key, entry in entries.items()
    ):
        raise _refusal(
            name,
            f"{word}={given!r:.100} names nothing",
            f'give {word}="name", or a mapping from names to functions of a node',
        )
    return dict(entries)


def _add(own: Own) -> None:
    """Put it into all tables. One that the same function of the same module made before (a cell
    that runs again, a module that is reloaded) makes room."""
    name, known = own.name, OPERATORS.get(own.name)
    before = OWN.get(name)
    if known is not None and (before is None or known.package != own.entry.package):
        whose = f"the package '{known.package}'" if known.package else "Tilewright"
        raise _refusal(
            name, f"{whose} has one of that name", "name it after what tells it from that one"
        )
    others = {"::".join(key): ONNX.get(key) for key in own.onnx}
    others |= {key: TORCH.get(key) for key in own.torch}
    for key, other in others.items():
        if other is not None and other is not before:
            whose = f"the operator '{other.name}' of the package '{other.entry.package}'"
            raise _refusal(name, f"'{key}' is read as {whose}", "leave one of the two out")
    if before is not None:
        forget(name)
    OWN[name] = own
    ONNX.update(dict.fromkeys(own.onnx, own))
    TORCH.update(dict.fromkeys(own.torch, own))
    add(own.entry)


@contextmanager
def all_or_nothing() -> Generator[None]:
    """What is registered in here is taken back if it ends in an exception."""
    before = dict(OWN)
    try:
        yield
    except BaseException:
        for name in [n for n, own in OWN.items() if before.get(n) is not own]:
            forget(name)
        for own in before.values():
            if own.name not in OWN:
                _add(own)
        raise


def _type_rule(define: Callable[..., Any]) -> Callable[..., Any]:
    """The types that a definition gives of itself."""

    def infer(*inputs: Any, **attrs: Any) -> list[Type]:
        tensors = [te.placeholder(v.shape, v.dtype, f"x{n}") for n, v in enumerate(inputs)]
        return [(t.dtype, sizes.shape(t.shape)) for t in _tensors(define(*tensors, **attrs))]

    return infer


def _tensors(made: Any) -> tuple[Any, ...]:
    found = tuple(made) if isinstance(made, tuple | list) else (made,)
    if not found or not all(isinstance(t, te.Tensor) for t in found):
        raise NoTensors(f"it gives {made!r:.100}, not a te tensor or a tuple of them")
    return found


class NoTensors(Exception):
    """A definition returns something else."""


class _Guarded:
    """An operator's functions, held to its type rule; what they raise is told with its name."""

    def __init__(
        self,
        entry: Operator,
        define: Callable[..., Any],
        reference: Callable[..., Any],
        infer: Callable[..., Any] | None,
    ) -> None:
        self.entry, self.own_define, self.own_reference = entry, define, reference
        self.rule = infer or _type_rule(define)
        self.is_stated = infer is not None

    def fault(self, what: str, why: str) -> CompileError:
        remedy = f"that is a fault of '{self.entry.package}', which registered it"
        told = f"the {what} of the operator '{self.entry.name}' is wrong"
        return CompileError(told, why, remedy=remedy)

    def infer(self, *inputs: Any, **attrs: Any) -> list[Type]:
        try:
            made = self.rule(*inputs, **attrs)
            listed = made if isinstance(made, list) else [made]
            return [(dtype(of), sizes.shape(shape)) for of, shape in listed]
        except (Mismatch, TilewrightError):
            raise
        except (IndexError, TypeError, ValueError) as fault:
            if isinstance(fault, TypeError) and self.is_stated:
                raise self.fault("type rule", f"TypeError: {fault}") from fault
            raise Mismatch(str(fault) or type(fault).__name__) from fault
        except Exception as fault:  # whatever code of others raises
            what = "type rule" if self.is_stated else "definition"
            raise self.fault(what, f"{type(fault).__name__}: {fault}") from fault

    def define(self, *tensors: Any, **attrs: Any) -> Any:
        try:
            made = self.own_define(*tensors, **attrs)
            found = [(t.dtype, sizes.shape(t.shape)) for t in _tensors(made)]
        except TilewrightError:
            raise
        except Exception as fault:
            raise self.fault("definition", f"{type(fault).__name__}: {fault}") from fault
        if self.is_stated:
            wanted = self.infer(*_values(tensors), **attrs)
            if found != wanted:
                why = f"it gives {_shown(found)} where the type rule says {_shown(wanted)}"
                raise self.fault("definition", why)
        return tuple(made) if isinstance(made, list) else made

    def reference(self, *arrays: Any, **attrs: Any) -> Any:
        try:
            made = self.own_reference(*arrays, **attrs)
        except Exception as fault:
            raise self.fault("reference", f"{type(fault).__name__}: {fault}") from fault
        results = made if isinstance(made, tuple | list) else (made,)
        given = [Value("x", dtype(a.dtype), sizes.shape(a.shape)) for a in map(np.asarray, arrays)]
        try:
            wanted = [shape for _, shape in self.entry.types(given, attrs)]
        except Mismatch:  # as in f64, to see how much f32 rounds
            wanted = None
        found = [sizes.shape(np.shape(a)) for a in results]
        if wanted is not None and found != wanted:
            shown = [[list(map(sizes.text, shape)) for shape in s] for s in (found, wanted)]
            why = f"it gives the shapes {shown[0]} where the type rule says {shown[1]}"
            raise self.fault("reference", why.replace("'", ""))
        return tuple(results) if isinstance(made, tuple | list) else made


def _values(tensors: Iterable[Any]) -> list[Value]:
    """te tensors as a type rule sees inputs."""
    return [Value("x", t.dtype, sizes.shape(t.shape)) for t in tensors]


def _shown(types: Iterable[Type]) -> str:
    return ", ".join(Value("", of, shape).type_text for of, shape in types)
