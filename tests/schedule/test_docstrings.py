"""The rewrite in a primitive's docstring is a golden: parsed, applied, compared, and run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.schedule import PRIMITIVES

SHOWN = {
    name: function.__doc__ or ""
    for name, function in PRIMITIVES.items()
    if re.search(r"rewrite: \w+\(", function.__doc__ or "")
}


def program(body: str) -> str:
    """A function around statements; its parameters are the buffers that are not allocated there."""
    extents = {m[1]: m[2] for m in re.finditer(r"(\w+) = (?:spatial|reduce)\((\d+),", body)}
    allocated = set(re.findall(r"(\w+) = alloc\(", body)) | set(re.findall(r"\) as (\w+):", body))
    shapes: dict[str, str] = {}
    for name, indices in re.findall(r"\b([A-Z]\w*)\[([^\]]*)\]", body):
        dims = [extents.get(i.strip(), "16") for i in indices.split(",")]
        if name not in allocated and "f32" not in name:
            shapes.setdefault(name, ", ".join(dims))
    parameters = ", ".join(f"{n}: f32[{s}]" for n, s in shapes.items())
    return f"def f({parameters}):\n{textwrap.indent(body, '    ')}"


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_docstring_shows_the_rewrite(name, same_result, replays):
    call, rest = re.split(r"\n", SHOWN[name].split("rewrite: ", 1)[1], maxsplit=1)
    before, after = rest.split("needs:")[0].split("→\n")
    start = parse_func(program(textwrap.dedent(before)))
    schedule = Schedule(start)
    eval(f"s.{call}", {"s": schedule})
    header = print_func(start).split("\n", 1)[0]
    expected = header + "\n" + textwrap.indent(textwrap.dedent(after), "    ")
    assert print_func(schedule.func) == expected.rstrip() + "\n"
    same_result(start, schedule.func)
    replays(start, schedule)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_docstring_numbers_the_preconditions(name):
    numbers = [int(n) for n in re.findall(r"^ +P(\d+)  ", SHOWN[name], re.M)]
    assert numbers == list(range(1, len(numbers) + 1)) and numbers


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_precondition_is_violated_by_a_test(name):
    """tests/schedule/test_<primitive>.py has a test_Pk_… for each number in the docstring."""
    numbers = re.findall(r"^ +(P\d+)  ", PRIMITIVES[name].__doc__ or "", re.M)
    source = (Path(__file__).parent / f"test_{name}.py").read_text()
    missing = [n for n in numbers if f"def test_{n}_" not in source]
    assert numbers and not missing
