"""PyTorch's own operator samples (OpInfo, f32) through export, import and execution, beside eager.

    python -m tests.frontend.torch.opinfo [NAME ...] [--samples N] [--native] [--verbose]

Each sample is a module of one call; the tensors among its arguments are the inputs. By default the imported
graph runs on the operators' NumPy references; `--native` compiles it. Counted as: agree, differ (our fault),
fail (our fault), unsupported (an ImportFault that says so), or not exported (PyTorch's own refusal).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import tilewright as tw
from tilewright.frontend.torch import import_torch
from tilewright.graph.evaluate import evaluate
from tilewright.support.errors import ImportFault

TOLERANCE = 2e-4  # of the output's largest value
RANDOM = frozenset(
    "bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal multinomial "
    "new_empty new_empty_strided normal rand_like randint randint_like randn randn_like uniform "
    "nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d "
    "nn.functional.feature_alpha_dropout nn.functional.rrelu nn.functional.fractional_max_pool2d "
    "nn.functional.fractional_max_pool3d pca_lowrank svd_lowrank".split()
)
VERDICTS = ("agree", "differ", "fail", "unsupported", "not exported")


class OneCall(nn.Module):
    """f(*args, **kwargs) with the tensors among the arguments as inputs."""

    def __init__(self, f: Any, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.f = f
        leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.fixed = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.places = [k for k, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.tensors = [leaves[k] for k in self.places]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.fixed)
        for k, x in zip(self.places, tensors, strict=True):
            leaves[k] = x
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.f(*args, **kwargs)


def modules(op: Any, count: int) -> Iterator[OneCall]:
    """The first samples of an operator."""
    for number, sample in enumerate(op.sample_inputs("cpu", torch.float32)):
        if number == count:
            return
        yield OneCall(op.op, (sample.input, *sample.args), sample.kwargs)


def judge(module: OneCall, native: bool) -> tuple[str, str]:
    """The verdict on one sample, and why."""
    inputs = tuple(x.detach().clone() for x in module.tensors)
    with torch.no_grad():
        expected = [y for y in pytree.tree_leaves(module(*[x.clone() for x in inputs]))
                    if isinstance(y, torch.Tensor)]  # fmt: skip
    if any(y.is_complex() for y in expected):
        return "not exported", "complex numbers"
    try:
        graph = import_torch(module.eval(), inputs)
    except ImportFault as fault:
        text = f"{fault.why}: {fault.where.splitlines()[0] if fault.where else ''}"
        return ("not exported" if "torch.export fails" in fault.why else "unsupported"), text
    except Exception as fault:
        return "fail", f"import: {type(fault).__name__}: {fault}"
    try:
        arrays = [x.numpy() for x in inputs]
        found = tw.compile(graph, cache=False)(*arrays) if native else evaluate(graph, arrays)
    except Exception as fault:
        return "fail", f"run: {type(fault).__name__}: {fault}"
    return compare(found, [y.numpy() for y in expected])


def compare(found: list[np.ndarray], expected: list[np.ndarray]) -> tuple[str, str]:
    if len(found) != len(expected):
        return "differ", f"{len(found)} outputs for {len(expected)}"
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return "differ", f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
        finite = np.isfinite(b) if b.dtype.kind == "f" else np.ones(b.shape, bool)
        most = max(1.0, float(np.abs(b[finite].astype(np.float64)).max(initial=0)))
        if not np.allclose(a, b, rtol=0, atol=TOLERANCE * most, equal_nan=True):
            worst = np.abs(a.astype(np.float64) - b.astype(np.float64))[finite].max(initial=0)
            return "differ", f"by {worst:.2e} of {most:.2e}"
    return "agree", ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frontend.torch.opinfo")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    counts: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        if torch.float32 not in op.dtypes or op.name in RANDOM or op.name.startswith("jiterator"):
            continue
        if given.names and op.name not in given.names and name not in given.names:
            continue
        verdicts: list[str] = []
        try:
            for module in modules(op, given.samples):
                verdict, why = judge(module, given.native)
                counts[verdict] += 1
                if verdict != "agree" and (verdict not in verdicts or given.verbose):
                    print(f"{name}: {verdict}: {' '.join(why.split())[:300]}", flush=True)
                verdicts.append(verdict)
        except Exception as fault:  # the sample itself does not run here
            print(f"{name}: no sample: {type(fault).__name__}", flush=True)
        ops[max(verdicts, key=VERDICTS.index, default="no sample")] += 1
    print("samples:", ", ".join(f"{counts[v]} {v}" for v in VERDICTS))
    print("operators:", ", ".join(f"{n} {v}" for v, n in sorted(ops.items())))
    return bool(counts["differ"] or counts["fail"])


if __name__ == "__main__":
    sys.exit(main())
