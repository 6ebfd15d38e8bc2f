"""The order of graph passes, and why each stands where it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tilewright.graph.graph import Graph
from tilewright.graph.passes.canonicalise import canonicalise
from tilewright.graph.passes.col2im import col2im
from tilewright.graph.passes.compute_indices import compute_indices
from tilewright.graph.passes.cut_taps import cut_taps
from tilewright.graph.passes.eliminate import eliminate_common, eliminate_dead
from tilewright.graph.passes.fold_batch_norm import fold_batch_norm
from tilewright.graph.passes.fold_constants import fold_constants
from tilewright.graph.passes.fuse_gemms import fuse_gemms
from tilewright.graph.passes.hoist_products import hoist_products
from tilewright.graph.passes.lower_to_2d import lower_to_2d
from tilewright.graph.passes.match_patterns import match_patterns
from tilewright.graph.passes.part_loops import part_loops
from tilewright.graph.passes.separate_outputs import separate_outputs
from tilewright.graph.passes.separate_windows import separate_windows
from tilewright.graph.passes.simplify_loops import simplify_loops
from tilewright.graph.passes.sub_pixel import sub_pixel
from tilewright.graph.passes.trust_indices import trust_indices
from tilewright.graph.passes.unroll_recurrences import unroll_recurrences

Pass = tuple[str, Callable[[Graph], Graph]]
Observer = Callable[[str, Graph, Graph, float], None]  # name, before, after, seconds

PIPELINE: tuple[Pass, ...] = (
    ("eliminate_dead", eliminate_dead),  # frontends leave shape arithmetic behind
    ("eliminate_common", eliminate_common),  # patterns see one value where a model repeats it
    ("simplify_loops", simplify_loops),  # all the rules below see what is left
    ("part_loops", part_loops),  # rounds have no more to do than they will have
    ("match_patterns", match_patterns),  # while the model's own operators stand: later forms differ
    ("unroll_recurrences", unroll_recurrences),  # the rules below see their products
    ("canonicalise", canonicalise),  # views move aside, pads and transposes go into their users
    ("fold_batch_norm", fold_batch_norm),  # convolutions and what scales them are now neighbours
    ("hoist_products", hoist_products),  # and have their weights and bias
    ("col2im", col2im),  # their weights and bias are what they will be
    ("sub_pixel", sub_pixel),  # their weights and bias are what they will be
    ("cut_taps", cut_taps),  # convolutions have taken in pads; less is left to the next ones
    ("lower_to_2d", lower_to_2d),  # convolutions have taken in what is along channels
    ("separate_windows", separate_windows),  # pools are in their last form
    ("fold_constants", fold_constants),  # what the rewrites left to compute on weights
    ("eliminate_common again", eliminate_common),  # rewrites emit equal moves for equal operands
    ("fuse_gemms", fuse_gemms),  # products are in their last form, matrices are shared
    ("separate_outputs", separate_outputs),  # last: canonicalise would drop the copies
)
NEEDED = PIPELINE[-1:]  # what is run even where nothing is optimised
LAST: tuple[Pass, ...] = (
    ("compute_indices", compute_indices),  # rules know resizes by their gathers; layouts are chosen
    ("trust_indices", trust_indices),  # no rule sees what it marks, and layouts are chosen
)


def optimise(
    graph: Graph, *, pipeline: Sequence[Pass] = PIPELINE, observers: Sequence[Observer] = ()
) -> Graph:
    """Run the passes in order; `observers` see each step."""
    for name, run in pipeline:
        start = time.perf_counter()
        after = run(graph)
        seconds = time.perf_counter() - start
        for see in observers:
            see(name, graph, after, seconds)
        graph = after
    return graph
