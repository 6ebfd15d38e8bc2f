"""Translators of ONNX's optimisers: one step for each group of tensors."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph.graph import Value

TRAINING = "ai.onnx.preview.training"


def groups(n: NodeContext, each: int) -> tuple[Value, Value, list[list[Value]]]:
    """Rate, count of steps, and the tensors [x, gradient, states …] of each part of the model."""
    rate, steps = (n.build.emit("reshape", n[k], shape=()) for k in (0, 1))
    rest = [n[k] for k in range(2, len(n.inputs))]
    if not rest or len(rest) % each:
        raise Refusal(f"its inputs do not come in groups of {each}")
    count = len(rest) // each
    return rate, steps, [rest[k::count] for k in range(count)]


def flat(columns: list[tuple[Value, ...]]) -> tuple[Value, ...]:
    """All new tensors, then all first states, then all second ones."""
    return tuple(value for part in zip(*columns, strict=True) for value in part)


@translates("Adagrad", domain=TRAINING)
def adagrad(n: NodeContext) -> Any:
    rate, steps, parts = groups(n, 3)
    decay, eps = n.float("decay_factor", 0.0), n.float("epsilon", 0.0)
    norm = n.float("norm_coefficient", 0.0)
    made: list[tuple[Value, ...]] = []
    for x, g, h in parts:
        f = Floats(n, x.dtype.name)
        r = f("div", f.of(rate), f("add", f("mul", f.of(steps), decay), 1.0))
        slope = f("add", f("mul", x, norm), g)
        power = f("add", h, f("mul", slope, slope))
        step = f("div", f("mul", slope, r), f("add", f("sqrt", power), eps))
        made.append((f("sub", x, step), power))
    return flat(made)


@translates("Adam", domain=TRAINING)
def adam(n: NodeContext) -> Any:
    rate, steps, parts = groups(n, 4)
    alpha, beta, eps = n.float("alpha", 0.9), n.float("beta", 0.999), n.float("epsilon", 0.0)
    norm, after = n.float("norm_coefficient", 0.0), n.float("norm_coefficient_post", 0.0)
    made: list[tuple[Value, ...]] = []
    for x, g, v, h in parts:
        f = Floats(n, x.dtype.name)
        slope = f("add", f("mul", x, norm), g)
        mean = f("add", f("mul", v, alpha), f("mul", slope, 1 - alpha))
        power = f("add", f("mul", h, beta), f("mul", f("mul", slope, slope), 1 - beta))
        t = f.of(steps)
        unbiased = f("sqrt", f("sub", 1.0, f("pow", beta, t)))
        r = f("div", f("mul", f.of(rate), unbiased), f("sub", 1.0, f("pow", alpha, t)))
        r = f("where", f("greater", t, 0.0), r, f.of(rate))
        y = f("sub", x, f("div", f("mul", mean, r), f("add", f("sqrt", power), eps)))
        made.append((f("mul", y, 1 - after) if after else y, mean, power))
    return flat(made)


@translates("Momentum", domain=TRAINING)
def momentum(n: NodeContext) -> Any:
    rate, steps, parts = groups(n, 3)
    alpha, beta, norm = (
        n.float("alpha", 0.0),
        n.float("beta", 0.0),
        n.float("norm_coefficient", 0.0),
    )
    nesterov = n.text("mode", "standard") == "nesterov"
    made: list[tuple[Value, ...]] = []
    for x, g, v in parts:
        f = Floats(n, x.dtype.name)
        slope = f("add", f("mul", x, norm), g)
        fresh = f("where", f("greater", f.of(steps), 0.0), f.number(beta), 1.0)
        mean = f("add", f("mul", v, alpha), f("mul", slope, fresh))
        step = f("add", slope, f("mul", mean, alpha)) if nesterov else mean
        made.append((f("sub", x, f("mul", step, f.of(rate))), mean))
    return flat(made)
