"""PyTorch's own operator samples (OpInfo) through torch.export, our importer and execution, beside eager.

    python -m tests.frontend.torch.opinfo [NAME ...] [--dtypes float32,...] [--samples N] [--others N]
                                          [--native] [--log FILE] [--page docs/torch-operators.md]

An entry is an operator (or a variant) that supports float32 on CPU. Each sample is a call; the tensors
among its arguments are the inputs of a module, several samples share one. The imported graph runs on the
operators' NumPy references, or compiled with `--native`. The verdict on an entry's samples of a dtype is
the worst: agree, differ or fail (our fault), unsupported (an ImportFault says so), not exported (PyTorch
refuses). All samples are taken (an hour), or the first `--samples` of float32 and `--others` of the rest.
`--log` appends a line of JSON for each entry and dtype and skips those that it already has; `--page`
writes it up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tilewright as tw
from tilewright.frontend.torch import import_torch
from tilewright.frontend.torch.convert import array
from tilewright.graph.evaluate import evaluate
from tilewright.support.errors import ImportFault

TOLERANCE = {"float32": 2e-4, "float16": 4e-3, "bfloat16": 3e-2}  # of the output's largest value
DTYPES = ("float32", "int64", "bool", "float16", "bfloat16")
UP_TO_SIGN = (
    "svd_lowrank",
    "linalg.eig",
    "linalg.eigh",
    "linalg.svd",
    "svd",
)  # vectors, of which OpInfo compares lengths
UP_TO_TIES = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "mode": 0}  # where `dim` stands
DRAWN = set(  # results are random: their shapes, dtypes and distributions are compared
    "bernoulli cauchy exponential geometric log_normal multinomial normal rand_like randint randint_like randn"
    " randn_like uniform nn.functional.feature_alpha_dropout nn.functional.rrelu"
    " nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d".split()
)
BY_CHANNEL = (
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout",
)
UNKNOWN = "no translator knows this operator"
LACKED = "each of its samples"  # a verdict on all samples of a module, which need not be halved
HALVES = (torch.float16, torch.bfloat16)
SEED = 17  # of random numbers
TOGETHER = 64  # samples in a module
MOST_REASONS = 8  # kept for each verdict
PAGE = Path(__file__).parents[3] / "docs" / "torch-operators.md"
VERDICTS = ("agree", "differ", "fail", "unsupported", "not exported")


@dataclass
class Entry:
    """What was found for an operator's samples of a dtype. samples: verdict → how many; reasons:
    verdict → the first few different ones; left: how many samples were not taken."""

    name: str
    dtype: str
    verdict: str = "agree"
    samples: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    left: int = 0

    def add(self, verdict: str, why: str, count: int = 1) -> None:
        self.samples[verdict] = self.samples.get(verdict, 0) + count
        reasons = self.reasons.setdefault(verdict, []) if why else []
        why = " ".join(why.split())[:400]
        if why not in reasons and len(reasons) < MOST_REASONS:
            reasons.append(why)
        self.verdict = max(self.samples, key=VERDICTS.index)


class Calls(nn.Module):
    """What is defined of f(*args, **kwargs) for each sample, with the tensors among the arguments as inputs."""

    def __init__(self, f: Any, samples: Sequence[tuple[Any, Any, Any]]) -> None:
        super().__init__()
        self.f = f
        leaves, self.spec = pytree.tree_flatten(list(samples))
        self.fixed = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.positions = [k for k, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.tensors = [leaves[k].detach() for k in self.positions]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.fixed)
        for k, x in zip(self.positions, tensors, strict=True):
            leaves[k] = x
        calls = pytree.tree_unflatten(leaves, self.spec)
        return [defined(self.f(*args, **kwargs)) for args, kwargs, defined in calls]


def entries() -> Iterator[tuple[str, Any]]:
    # seconds, for those who ask
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if torch.float32 in op.supported_dtypes("cpu"):
            yield f"{op.name}.{op.variant_test_name}".rstrip("."), op


def samples(op: Any, of: str, count: int | None) -> Iterator[tuple[Any, Any, Any]]:
    """The first samples of an operator: arguments, keyword arguments, what of its result is defined."""
    torch.manual_seed(0)
    for number, sample in enumerate(op.sample_inputs("cpu", getattr(torch, of))):
        if number == count:
            return
        defined = sample.output_process_fn_grad if op.name in UP_TO_SIGN else _all
        if op.name in UP_TO_TIES:
            defined = partial(chosen, op.name, sample.input, *sample.args, **sample.kwargs)
        yield (sample.input, *sample.args), sample.kwargs, defined


def number_of(op: Any, of: str) -> int:
    """How many samples an operator has, as far as they can be made."""
    number = 0
    with contextlib.suppress(Exception):
        for _ in samples(op, of, None):
            number += 1
    return max(number, 1)


def _all(result: Any) -> Any:
    return result


def chosen(name: str, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Instead of the positions of chosen elements, which of equal ones are anybody's: the elements, and
    of all positions whether each occurs once. The last of the arguments is the operator's result."""
    *args, result = args
    if isinstance(result, torch.Tensor) and name != "argsort":
        return result
    at = UP_TO_TIES[name]
    dim = kwargs.get("dim", args[at] if len(args) > at else -1)
    values, positions = (None, result) if name == "argsort" else result
    if x.dim() and positions.dim() < x.dim():
        values, positions = values.unsqueeze(dim), positions.unsqueeze(dim)
    found = [torch.gather(x, dim, positions)] if x.dim() else [positions]
    whole = name in ("sort", "argsort")
    return [values, *found, *([positions.sort(dim).values] if whole and x.dim() else [])]


def judge(
    op: Any, calls: Sequence[tuple[Any, Any, Any]], tolerance: float | None, native: bool
) -> tuple[str, str]:
    """The verdict on some samples, and why."""
    module = Calls(op.op, calls)
    inputs = tuple(x.clone() for x in module.tensors)
    after = [x.clone() for x in inputs]
    with torch.no_grad():
        results = pytree.tree_leaves(module(*after))
    try:
        graph = import_torch(module.eval(), inputs, seeded=True)
    except ImportFault as fault:
        text = f"{fault.why}: {' '.join(fault.where.splitlines()[:1])}"
        if lacks_each(fault, len(calls)):
            return "unsupported", f"{LACKED}: {text}"
        return ("not exported" if "torch.export fails" in fault.why else "unsupported"), text
    except Exception as fault:
        return "fail", f"import: {type(fault).__name__}: {fault}"
    try:
        arrays = [array(x.contiguous()) for x in inputs]
        if graph.input_names[-1:] == ("seed",):
            arrays.append(np.asarray(SEED, np.int64))
        with np.errstate(all="ignore"):
            found = tw.compile(graph, cache=False)(*arrays) if native else evaluate(graph, arrays)
    except Exception as fault:
        return "fail", f"run: {type(fault).__name__}: {fault}"
    changed = [n for n in graph.output_names if n.startswith("tensors_")]
    wanted = [as_output(y) for y in results if isinstance(y, torch.Tensor)]
    if len(wanted) + len(changed) != len(found):  # numbers that are not known when exporting
        kinds = [y.dtype for y in found[: len(results)]]
        wanted = [as_output(y, of) for y, of in zip(results, kinds, strict=True)]
    wanted += [as_output(after[int(n.removeprefix("tensors_"))]) for n in changed]
    if any(x.dtype in HALVES for x in inputs):
        wanted = in_range(module, inputs, wanted)
    verdict = compare(found, wanted, tolerance, "empty" in op.name)
    if verdict[0] != "agree" and (op.name in DRAWN or "seed" in graph.input_names):
        return compare_drawn(found, wanted, op.name in BY_CHANNEL)
    return verdict


def as_output(y: Any, of: Any = None) -> np.ndarray:
    """A result of a module as our graphs give it: the parts of complex numbers are a last axis;
    a number is a tensor without axes, of a dtype that it does not say."""
    if not isinstance(y, torch.Tensor):
        return np.asarray(y, of)
    return array(torch.view_as_real(y.resolve_conj()) if y.is_complex() else y)


def in_range(module: Calls, inputs: Any, results: list[np.ndarray]) -> list[np.ndarray]:
    """Results of halves; where eager left their range on the way, what it gives from singles."""
    if all(np.isfinite(y.astype(np.float64)).all() for y in results):
        return results
    with torch.no_grad():
        wide = module(*[x.float() if x.dtype in HALVES else x.clone() for x in inputs])
    wide = [as_output(y) for y in pytree.tree_leaves(wide) if isinstance(y, torch.Tensor)]
    if [y.shape for y in wide] != [y.shape for y in results]:
        return results
    halves = [b.dtype.itemsize == 2 and b.dtype.kind not in "iu" for b in results]
    return [
        np.where(np.isfinite(b.astype(np.float64)), b, a.astype(b.dtype)) if half else b
        for a, b, half in zip(wide, results, halves, strict=True)
    ]


def lacks_each(fault: ImportFault, calls: int) -> bool:
    """Does each of several calls end in the same operator, of which nothing is known?"""
    nodes = [line for line in fault.where.splitlines() if line.endswith(UNKNOWN)]
    operators = {line.split(" = ")[1] for line in nodes}
    return fault.why.startswith(f"{calls} of its nodes") and len(operators) == 1 and calls > 1


def compare_drawn(found: Any, expected: Any, by_channel: bool = False) -> tuple[str, str]:
    """Are two samples of one distribution? Kolmogorov's and Smirnov's test, at one in ten thousand.
    by_channel: all elements of a channel (of the first two axes) share what was drawn."""
    verdict = compare(found, expected, 0, True)
    for a, b in zip(found, expected, strict=True) if verdict[0] == "agree" else ():
        drawn = int(np.prod(a.shape[:2])) if by_channel else a.size
        most = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
        a, b = (np.sort((x / most).astype(np.float64).round(4), axis=None) for x in (a, b))
        at = np.concatenate([a, b])
        gap = np.abs(np.searchsorted(a, at, "right") - np.searchsorted(b, at, "right")).max(
            initial=0
        )
        if gap * drawn > 2.23 * a.size * (2 * drawn) ** 0.5:
            return "differ", f"another distribution: by {gap} of {a.size} numbers"
    return verdict


def compare(
    found: Any, expected: Any, tolerance: float | None, types_only: bool
) -> tuple[str, str]:
    """tolerance: None for that of each output's dtype."""
    if len(found) != len(expected):
        return "differ", f"{len(found)} outputs for {len(expected)}"
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return "differ", f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
        if types_only:  # memory that nothing wrote
            continue
        if b.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return "differ", f"{np.sum(a != b)} of {a.size} elements"
            continue
        near = TOLERANCE.get(b.dtype.name, TOLERANCE["float32"]) if tolerance is None else tolerance
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(b)
        most = max(1.0, float(np.abs(b[finite]).max(initial=0)))
        if not np.allclose(a, b, rtol=near, atol=near * most, equal_nan=True):
            with np.errstate(all="ignore"):
                worst = np.abs(a - b)[finite].max(initial=0)
            return "differ", f"by {worst:.2e} of {most:.2e}"
    return "agree", ""


def has(op: Any, of: str) -> bool:
    """Does the entry support the dtype?"""
    return getattr(torch, of) in op.supported_dtypes("cpu")


def examine(
    name: str, op: Any, dtypes: Sequence[str], count: int | None, native: bool = False
) -> list[Entry]:
    """An entry's first samples of some dtypes: together while that goes well, else by dtypes and halves."""
    start, found = time.perf_counter(), {of: Entry(name, of) for of in dtypes}
    calls: list[tuple[str, Any]] = []
    for of, entry in found.items():
        try:
            calls += [(of, call) for call in list(samples(op, of, count))]
        except Exception as fault:  # the sample itself cannot be made on this machine
            entry.add("not exported", f"no sample: {type(fault).__name__}: {fault}")
    waiting = [calls[k : k + TOGETHER] for k in range(0, len(calls), TOGETHER)]
    while waiting:
        some = waiting.pop(0)
        kinds = {of: [c for c in some if c[0] == of] for of, _ in some}
        # Several dtypes are each held to their outputs' own, one to that of its inputs.
        near = None if len(kinds) > 1 else TOLERANCE.get(some[0][0], TOLERANCE["float32"])
        verdict, why = judged(op, [call for _, call in some], near, native)
        if verdict != "agree" and len(kinds) > 1:
            waiting[:0] = kinds.values()
        elif verdict != "agree" and len(some) > 1 and not why.startswith(LACKED):
            half = len(some) // 2
            waiting[:0] = [some[:half], some[half:]]
        else:
            for of, those in kinds.items():
                found[of].add(verdict, why, len(those))
    seconds = round((time.perf_counter() - start) / len(found), 2)
    for entry in found.values():
        entry.seconds = seconds
    return list(found.values())


def judged(op: Any, calls: Any, tolerance: float | None, native: bool) -> tuple[str, str]:
    try:
        return judge(op, calls, tolerance, native)
    except Exception as fault:  # eager PyTorch refuses the sample too
        return "not exported", f"eager: {type(fault).__name__}: {fault}"


def page(found: Sequence[Entry], total: int) -> str:
    """The markdown page: how many entries agree, and the others with their reasons."""
    whole = len({e.name for e in found} - {e.name for e in found if e.verdict != "agree"})
    single = [e for e in found if e.dtype == "float32"]
    short = [e for e in single if e.left and e.verdict == "agree"]
    cut = ", ".join(f"the last {e.left:,} of `{e.name}`" for e in short)
    rows = []
    for of in sorted({e.dtype for e in found}, key=DTYPES.index):
        these = [e for e in found if e.dtype == of]
        count = sum((Counter(e.samples) for e in these), Counter())
        agree = sum(e.verdict == "agree" for e in these)
        left = sum(e.left for e in these)
        rows.append(
            f"| {of} | {len(these)} | {agree} | {count.total() + left:,} "
            f"| {count.total():,} | {count['agree']:,} |"
        )
    lines = [
        "# PyTorch operators",
        "",
        "Generated by `python -m tests.frontend.torch.opinfo --log FILE --page docs/torch-operators.md`.",
        "",
        f"PyTorch describes its operators with samples (OpInfo): {total} entries support float32 on CPU.",
        f"Of {len(single)} entries every float32 sample was run through `torch.export` and compared with"
        f" eager PyTorch{f', but for {cut}' if cut else ''}:"
        f" {sum(e.verdict == 'agree' for e in single)} entries agree on all.",
        "Of other dtypes as many samples of each entry are taken as the table says:"
        f" {whole} entries agree on everything that was examined of them, in all dtypes.",
        "",
        "The imported graphs run on the operators' NumPy references; `--native` compiles them instead.",
        "Random results are compared in distribution, positions of equal elements by the elements, singular",
        "and eigenvectors by what OpInfo compares of them. Where eager PyTorch leaves the range of a half",
        "on the way, its result from singles counts.",
        "",
        "| dtype | entries | that agree | their samples | examined | that agree |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "What does not agree, and why:",
        "",
        "| entry | dtype | verdict | samples that agree | reason |",
        "|---|---|---|---|---|",
    ]
    for e in sorted(found, key=lambda e: (e.name, DTYPES.index(e.dtype))):
        if e.verdict == "agree":
            continue
        why = e.reasons.get(e.verdict, [""])[0].split("Unable to find")[0][:200]
        why = why.replace("|", "\\|").replace("<", "&lt;").replace("](", "] (")
        share = f"{e.samples.get('agree', 0)} of {sum(e.samples.values())}"
        lines.append(f"| {e.name} | {e.dtype} | {e.verdict} | {share} | {why} |")
    return "\n".join([*lines, ""])


def listed() -> set[str]:
    """The entries that the page lists because not all of their samples agree."""
    text = PAGE.read_text().partition("| reason |")[2]
    rows = [r for r in text.splitlines() if r.startswith("| ")]
    return {row.split(" | ")[0].removeprefix("| ") for row in rows}


def report(entry: Entry, log: Path | None) -> None:
    for verdict, reasons in entry.reasons.items():
        for why in reasons:
            print(f"{entry.name} {entry.dtype}: {verdict}: {why}", flush=True)
    if log:
        with log.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frontend.torch.opinfo")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int)
    parser.add_argument("--others", type=int)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[tuple[str, str], Entry] = {}
    if given.log and given.log.exists():
        kept = [Entry(**json.loads(line)) for line in given.log.read_text().splitlines()]
        found = {(e.name, e.dtype): e for e in kept}
    dtypes = given.dtypes.split(",")
    groups = [["float32"]] * ("float32" in dtypes) + [[d for d in dtypes if d != "float32"]]
    for group in groups:
        for name, op in entries():
            chosen = not given.names or op.name in given.names or name in given.names
            wanted = [of for of in group if has(op, of) and (name, of) not in found]
            if not chosen or not wanted:
                continue
            count = given.samples if group == ["float32"] else given.others
            for entry in examine(name, op, wanted, count, given.native):
                entry.left = number_of(op, entry.dtype) - sum(entry.samples.values())
                found[name, entry.dtype] = entry
                report(entry, given.log)
    counts = Counter(e.verdict for e in found.values())
    print("entries × dtypes:", ", ".join(f"{counts[v]} {v}" for v in VERDICTS))
    total = sum((Counter(e.samples) for e in found.values()), Counter())
    print("samples:", ", ".join(f"{total[v]} {v}" for v in VERDICTS))
    if given.page:
        given.page.write_text(page(list(found.values()), len(list(entries()))))
    return bool(counts["differ"] or counts["fail"])


if __name__ == "__main__":
    sys.exit(main())
