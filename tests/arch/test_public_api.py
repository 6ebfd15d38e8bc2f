"""What users may rely on: the public names and how they are called. A change breaks users."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import tilewright as tw

CALLS = {
    "compile": "(source, target='cpu', *, example_inputs=None, example_kwargs=None,"
    " dynamic_shapes=None, shapes=None, specialise=0, threads=None, opt_level=3,"
    " winograd=None, cache=True, database=None)",
    "build": "(func, target='cpu', *, threads=None)",
    "export": "(source, path, kind='artifact', *, target='cpu', name=None, sign=None,"
    " example_inputs=None, example_kwargs=None, dynamic_shapes=None, shapes=None, threads=None,"
    " opt_level=3, winograd=None, database=None)",
    "tune": "(source, target='cpu', *, devices=None, seconds=60.0, trials=None, database=None,"
    " threads=None, shapes=None, example_inputs=None, example_kwargs=None, dynamic_shapes=None,"
    " opt_level=3, winograd=None, seed=0, progress=None)",
    "load": "(source, threads=None, *, verify=None)",
    "Schedule": "(func, choose=None)",
    "operator": "(define=None, *, fusion='opaque', reference=None, draw=None, infer=None,"
    " traits=(), onnx=None, torch=None)",
    "check_operator": "(operator, times=5, seed=None)",
    "Executable.__call__": "(self, *arrays, **named)",
    "Executable.clone": "(self, threads=None)",
    "Executable.run": "(self, outputs, inputs)",
    "Executable.run_into": "(self, outputs, inputs)",
    "Executable.save": "(self, path, kind='artifact', *, name=None, sign=None)",
    "Executable.profile": "(self, *arrays, seconds=0.5, machine=None, **named)",
    "Pool": "(executable, size=None, threads=1)",
    "Pool.__call__": "(self, *arrays, **named)",
    "Pool.submit": "(self, *arrays, **named)",
    "Pool.map": "(self, *inputs)",
    "Pool.shutdown": "(self, wait=True, *, cancel_futures=False)",
}
PROPERTIES = {"inputs", "outputs", "input_names", "output_names", "name", "threads"}
ERRORS = {"TilewrightError", "CompileError", "ScheduleError", "InputError", "ArtifactError"}
NAMES = {
    "compile",
    "build",
    "tune",
    "load",
    "Schedule",
    "Graph",
    "Executable",
    "Pool",
    "te",
    "ScheduleWarning",
    "SizeWarning",
    "PluginWarning",
    "export",
    "operator",
    "check_operator",
} | ERRORS
TE = """
Tensor abs acos acosh all any argmax argmin asin asinh atan atan2 atanh cast ceil choose compute
const cos cosh eq erf exp exp2 expm1 extern floor fmod func gelu if_then_else isinf isnan log log1p
log2 max maximum min minimum ne placeholder popcount power prod reduce_axis reducer round rsqrt scan
select sigmoid sign sin sinh sqrt sum tan tanh trunc var
""".split()


def bare(call: Any) -> str:
    """A signature without types."""
    signature = inspect.signature(call)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def test_names() -> None:
    assert set(tw.__all__) == NAMES | {"__version__"}
    assert all(getattr(tw, name) is not None for name in tw.__all__)
    assert set(dir(tw)) == set(tw.__all__)
    assert sorted(tw.te.__all__) == sorted(TE)


def test_signatures() -> None:
    for name, signature in CALLS.items():
        thing: Any = tw
        for part in name.split("."):
            thing = getattr(thing, part)
        assert f"{name}{bare(thing)}" == f"{name}{signature}"


def test_properties_and_documentation() -> None:
    for name in PROPERTIES:
        assert name in dir(tw.Executable) or name in tw.Executable.__annotations__
    for name in NAMES:
        assert inspect.getdoc(getattr(tw, name)), name


def test_every_error_is_a_tilewright_error() -> None:
    assert all(issubclass(getattr(tw, name), tw.TilewrightError) for name in ERRORS)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(tw.__file__).read_text())
    (block,) = (s for s in tree.body if isinstance(s, ast.If))
    seen = {n.asname for s in block.body if isinstance(s, ast.ImportFrom) for n in s.names}
    assert seen == NAMES | {"__version__"}


def test_unknown_names_are_refused() -> None:
    try:
        tw.complie  # noqa: B018
    except AttributeError as error:
        assert str(error) == "module 'tilewright' has no attribute 'complie'"
    else:
        raise AssertionError("a misspelt name was found")


def test_importing_the_room_tune_leaves_the_function() -> None:
    from tilewright.tune import database

    assert database.Database is not None
    assert inspect.isfunction(tw.tune)
