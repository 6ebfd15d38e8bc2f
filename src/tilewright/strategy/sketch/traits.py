"""Traits: what schedules of any nest have in common, as numbers that mean the same for all of them.

In: a nest, a machine and columns of decisions. Out: a column for each trait. The one idea: a model
that learns how far the prior is off may say it of a function it never saw only in words that are
not that function's: how full the registers are, how long the runs, how far apart the reads; never
"tile_2 is 4".

Whatever may be large is a logarithm; shares are between 0 and 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.strategy.sketch import prior
from tilewright.strategy.sketch.nest import Access, Nest
from tilewright.target.target import Target

CYCLES = ("multiply", "load", "latency", "loop", "spills", "around", *prior.LEVELS, "copies")


def traits(nest: Nest, machine: Target, columns: prior.Columns) -> dict[str, prior.Column]:
    """A column for each trait, a row for each schedule."""
    lanes = machine.lanes(max(32, nest.dtype.bits))
    loops = prior.loops_of(nest, lanes, columns)
    told = prior.terms(nest, machine, columns, loops)
    total = prior.together(told, machine)
    held = prior.accumulators(nest, loops, lanes)
    found: dict[str, Any] = {name: told[name] / total for name in CYCLES}
    least = nest.instances * nest.operations / lanes / machine.costs.multiply_adds
    found["above_least"] = np.log(total / least)
    found["latency_bound"] = (told["latency"] > np.maximum(told["multiply"], told["load"])) * 1.0
    found["held"] = np.log(held)
    found["full"] = held * len(nest.results) / machine.vector_registers
    found["body"] = np.log(held * nest.operations * columns["unroll"])
    found["unroll"] = np.log(columns["unroll"])
    found["uneven"] = (columns["unroll"] & (columns["unroll"] - 1) > 0) * 1.0
    found["vectors"] = np.log(columns["tile_n"])
    found["steps"] = np.log(prior.steps_of(nest, loops))
    found["last_step"] = np.log(loops.trips[-1])
    found["last_block"] = np.log(loops.trips[-1 - loops.reduced])
    tiles = prior.tiles_of(nest, loops, lanes, columns) * loops.tile.prod(1)
    whole = np.prod([nest.extents[d] for d in nest.spatial])
    found["in_tails"] = _in_tails(nest, loops)
    found["wasted"] = np.log(np.maximum(tiles / whole, 1.0))
    in_lanes = np.asarray(nest.is_reduced)[columns["lane"]]
    found["lanes_reduced"] = in_lanes * 1.0
    found["apart"] = (~in_lanes & ~prior.is_steady(nest)[columns["lane"]]) * 1.0
    found |= _of_reads(nest, loops, lanes, columns)
    return found


def _in_tails(nest: Nest, loops: prior.Loops) -> prior.Column:
    """What part of the results is in tiles that are not whole."""
    whole = np.ones(len(loops.tile))
    for d in nest.spatial:
        size, tile = nest.extents[d], loops.tile[:, d]
        whole *= size // tile * tile / size
    return 1 - whole


def _of_reads(
    nest: Nest, loops: prior.Loops, lanes: int, columns: prior.Columns
) -> dict[str, prior.Column]:
    """How operands are read: by vectors that lie together, by single elements, lane by lane; how
    much of them is copied before, and how far the innermost step goes."""
    rows = np.arange(len(loops.tile))
    kinds = {name: np.zeros(len(rows)) for name in ("together", "single", "gathered", "copied")}
    far = {name: np.zeros(len(rows)) for name in ("far_steps", "far_rows")}
    for number, access in enumerate(nest.reads):
        loads = prior.loads_of(access, number, nest, loops, lanes, columns)
        packed = prior.packed(nest, number, columns)
        uses = np.asarray(access.uses)[columns["lane"]]
        strides = _strides(access)
        kinds["single"] += np.where(uses, 0, loads)
        is_near = packed | (strides[columns["lane"]] <= 1)
        kinds["together"] += np.where(uses & is_near, loads, 0)
        kinds["gathered"] += np.where(uses & ~is_near, loads, 0)
        kinds["copied"] += packed
        size = nest.dtype.bits // 8
        far["far_steps"] += ~packed & (strides[loops.axes[-1]] * size >= prior.PAGE)
        for d in nest.spatial:  # rows of the tile that lie in pages of their own
            apart = (columns["lane"] != d) & ~packed & (strides[d] * size >= prior.PAGE)
            far["far_rows"] += np.where(apart, loops.tile[:, d] - 1, 0)
    total = sum(kinds[name] for name in ("together", "single", "gathered"))
    found = {f"loads_{name}": kinds[name] / total for name in ("together", "single", "gathered")}
    found["loads"] = np.log(total / prior.accumulators(nest, loops, lanes))
    found["copied"] = kinds["copied"]
    found["far_steps"] = far["far_steps"]
    found["far_rows"] = np.log1p(far["far_rows"])
    return found


def _strides(access: Access) -> Any:
    """How many elements an iteration of each axis goes on; many where that is not known."""
    strides = [access.stride(d) for d in range(len(access.uses))]
    return np.asarray([prior.PAGE if s is None else abs(s) for s in strides])
