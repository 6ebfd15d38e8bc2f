"""The operators of the bench: 24 that the compiler has no strategy for.

Out: `OPERATORS`, makers by name. A maker takes sizes by keyword, those of the bench being its
defaults, at which a good schedule takes about 0.1 to 2 ms on one core; it gives an `Operator`.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.tuning import contractions, lookups, semirings, stencils
from benchmarks.tuning.operator import Operator

OPERATORS: dict[str, Callable[..., Operator]] = {
    maker.__name__: maker
    for maker in (
        stencils.five_point,
        stencils.stencil_27,
        stencils.bilateral,
        stencils.separable_filter,
        stencils.windowed_variance,
        stencils.cost_volume,
        contractions.matmul,
        contractions.matmul_transposed,
        contractions.contraction_4,
        contractions.contraction_5,
        contractions.outer_products,
        contractions.bilinear_form,
        contractions.complex_product,
        contractions.masked_scores,
        contractions.grouped_gelu,
        contractions.grouped_conv_i8,
        semirings.max_plus,
        semirings.argmax_product,
        semirings.l1_distances,
        semirings.nearest_point,
        semirings.logsumexp,
        lookups.linear_recurrence,
        lookups.bilinear_gather,
        lookups.sparse_rows,
    )
}
