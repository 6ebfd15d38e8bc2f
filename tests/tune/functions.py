"""Functions to tune, and the same under other names."""

from __future__ import annotations

import re
from random import Random

from tilewright import te
from tilewright.ir.expr import Var
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func
from tilewright.ir.text import print_func
from tilewright.ir.walk import blocks, names


def product(
    m: int | Var = 48, n: int = 64, k: int = 96, dtype: str = "f32", role: str = "matmul"
) -> Func:
    """A matrix product and what follows it."""
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis(k, "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], r), "C", attrs={"role": role})
    d = te.compute((m, n), lambda i, j: te.maximum(c[i, j] + 1.5, 0.0), "D")
    return te.func("product", [a, b], [d])


def norm(rows: int | Var = 12, columns: int = 256) -> Func:
    """Rows less their means, and a copy that nobody needs."""
    x = te.placeholder((rows, columns), "f32", "x")
    r = te.reduce_axis(columns, "r")
    total = te.compute((rows,), lambda i: te.sum(x[i, r], r), "total")
    mean = te.compute((rows,), lambda i: total[i] / float(columns), "mean")
    y = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - mean[i]), "y")
    return te.func("norm", [x], [y])


def scaled(size: int = 1000, by: float = 2.0) -> Func:
    """A vector times a number."""
    x = te.placeholder((size,), "f32", "x")
    return te.func("scaled", [x], [te.compute((size,), lambda i: x[i] * by, "y")])


def written() -> list[Func]:
    """Some by hand."""
    return [product(), product(Var("n")), norm(), norm(Var("rows")), scaled()]


def renamed(func: Func, seed: int) -> Func:
    """The same with other names everywhere, drawn apart for blocks and for all else."""
    random, text = Random(seed), print_func(func)
    of_blocks = {b.name for b in blocks(func.body)}
    others = names(func) - of_blocks | {
        v for v in names(func) if re.search(rf"\b{v}\b[\[=: ]", text)
    }

    def drawn_names(old: set[str], prefix: str) -> dict[str, str]:
        numbers = random.sample(range(10 * len(old)), len(old))
        return {name: f"{prefix}{n}" for name, n in zip(sorted(old), numbers, strict=True)}

    in_quotes, plain = drawn_names(of_blocks, "stage"), drawn_names(others, "name")

    def change(found: re.Match[str]) -> str:
        word = found[0]
        if word.startswith('"'):
            is_block = text[: found.start()].endswith("block(")
            return f'"{in_quotes[word[1:-1]]}"' if is_block else word
        behind = text[found.end() : found.end() + 1]
        return word if behind in ("=", "(") else plain.get(word, word)  # annotations, operations

    text = print_func(func.replace(name="other"))
    return parse_func(re.sub(r'"[^"]*"|[A-Za-z_]\w*', change, text))
