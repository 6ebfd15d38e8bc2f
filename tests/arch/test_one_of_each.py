"""What there is one of: services that everybody asks, read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "tilewright"
OPEN = {"schedule/primitives/prefetch.py"}  # over so many rounds requests may be spread: no cost


def trees(*rooms: str) -> Iterator[tuple[str, ast.AST]]:
    for room in rooms:
        for file in sorted((ROOT / room).rglob("*.py")):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text())


def is_guess(e: ast.expr) -> bool:
    """A number of one's own: 0 and 1 say that a size is open, or may be one."""
    return isinstance(e, ast.Constant) and e.value not in (0, 1, None)


def is_as_int(e: ast.expr) -> bool:
    return isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "as_int"


def test_what_an_open_size_counts_for_is_asked_of_arith_estimate() -> None:
    found = []
    for name, tree in trees("strategy", "graph", "schedule", "lower", "driver"):
        here = {  # constants of this file, by another word
            t.id: n.value
            for n in ast.walk(tree)
            if isinstance(n, ast.Assign)
            for t in n.targets
            if isinstance(t, ast.Name)
        }
        for n in ast.walk(tree):
            guess = None
            if isinstance(n, ast.BoolOp) and isinstance(n.op, ast.Or) and is_as_int(n.values[0]):
                guess = n.values[1]
            elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name):
                guess = n.args[2] if n.func.id == "extent" and len(n.args) > 2 else None
            if isinstance(guess, ast.Name):
                guess = here.get(guess.id)
            if guess is not None and is_guess(guess) and name not in OPEN:
                found.append(f"{name}:{n.lineno} {ast.unparse(n)}")
    assert not found, "\n".join(found)


ACTIVATIONS = {"graph/passes/unroll_recurrences.py"}  # attributes of recurrences, no operators


def test_facts_about_operators_stand_in_their_entries() -> None:
    """No set of operators' names elsewhere: a trait of `graph.operator` says what they share.
    Tables of a pass, by name, say what it does to each; two names are said where they matter."""
    from tilewright.graph.operator import OPERATORS

    def words(n: ast.AST) -> list[str]:
        if isinstance(n, ast.Set | ast.Tuple | ast.List):
            return [str(e.value) if isinstance(e, ast.Constant) else "" for e in n.elts]
        whole = isinstance(n, ast.Constant) and isinstance(n.value, str)
        return n.value.split() if whole else []  # type: ignore[attr-defined, union-attr]

    found = [
        f"{name}:{n.lineno} {words(n)}"  # type: ignore[attr-defined]
        for name, tree in trees("graph", "driver")
        if not name.startswith("graph/ops/") and name not in ACTIVATIONS
        for n in ast.walk(tree)
        if len(words(n)) > 2 and OPERATORS.keys() >= set(words(n))
    ]
    assert not found, "\n".join(found)
