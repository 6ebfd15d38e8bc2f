"""Writes `frontend/onnx/arity.py`: how many inputs and outputs operators take by onnx's schemas.

python -m tests.frontend.onnx_arity
"""

from __future__ import annotations

from pathlib import Path

import onnx.defs

from tilewright.frontend.onnx import arity

Row = tuple[int, ...]
HEAD = '''"""How many inputs and outputs each operator of ONNX takes, by the version that says so.

Written by `python -m tests.frontend.onnx_arity` from onnx's schemas, whose package takes longer to
import than most models to read. Rows: version, fewest inputs, most, fewest outputs, most.
"""

from __future__ import annotations

MANY = 2**31 - 1
NEWEST = {newest}

# fmt: off
ARITY: dict[str, dict[str, tuple[tuple[int, int, int, int, int], ...]]] = {{
'''


def rows() -> dict[str, dict[str, tuple[Row, ...]]]:
    """Of each domain's operators, the versions that changed a count."""
    found: dict[str, dict[str, list[Row]]] = {}
    for s in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        known = found.setdefault(s.domain, {}).setdefault(s.name, [])
        row = (s.since_version, s.min_input, s.max_input, s.min_output, s.max_output)
        if not known or known[-1][1:] != row[1:]:
            known.append(row)
    return {
        domain: {op: tuple(found[domain][op]) for op in sorted(found[domain])}
        for domain in sorted(found)
    }


def newest() -> dict[str, int]:
    """The newest version of each domain that has a schema."""
    last = dict[str, int]()
    for s in onnx.defs.get_all_schemas_with_history():
        last[s.domain] = max(last.get(s.domain, 0), s.since_version)
    return dict(sorted(last.items()))


def text() -> str:
    """The module."""
    lines = [HEAD.format(newest=repr(newest()).replace("'", '"'))]
    for domain, ops in rows().items():
        lines.append(f'    "{domain}": {{\n')
        for op, listed in ops.items():
            inside = ", ".join(str(row).replace(str(arity.MANY), "MANY") for row in listed)
            lines.append(f'        "{op}": ({inside},),\n')
        lines.append("    },\n")
    return "".join([*lines, "}\n"])


if __name__ == "__main__":
    assert arity.__file__ is not None
    Path(arity.__file__).write_text(text())
