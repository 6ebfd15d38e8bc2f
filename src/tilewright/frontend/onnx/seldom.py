"""The families of operators that few models use; importing this module registers them.

The package does so when an operator is not among the others: most models are read without
these, whose import takes as long as reading a small one. None of them replaces what another file
registers.
"""

from tilewright.frontend.onnx import (
    contrib,
    contrib_attention,
    contrib_attention_lstm,
    contrib_blocks,
    contrib_experts,
    contrib_few_bits,
    contrib_fused,
    contrib_packed,
    contrib_quantised,
    contrib_sequences,
    contrib_states,
    contrib_words,
    control,
    experimental,
    gradient,
    labels,
    linear_models,
    machine_learning,
    ngrams,
    regions,
    sequences,
    signal,
    training,
    trees,
)

__all__ = [
    "contrib",
    "contrib_attention",
    "contrib_attention_lstm",
    "contrib_blocks",
    "contrib_experts",
    "contrib_few_bits",
    "contrib_fused",
    "contrib_packed",
    "contrib_quantised",
    "contrib_sequences",
    "contrib_states",
    "contrib_words",
    "control",
    "experimental",
    "gradient",
    "labels",
    "linear_models",
    "machine_learning",
    "ngrams",
    "regions",
    "sequences",
    "signal",
    "training",
    "trees",
]
