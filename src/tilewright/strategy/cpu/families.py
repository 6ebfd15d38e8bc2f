"""The families of processors, by the role that each schedules.

In: nothing. Out: `CPU`, what `strategy/select.py` asks for functions on processors: LLVM's and
those that C is compiled for.
"""

from __future__ import annotations

from tilewright.strategy.cpu.attention import attention
from tilewright.strategy.cpu.convolution import convolution, transposed
from tilewright.strategy.cpu.depthwise import depthwise, depthwise_transposed
from tilewright.strategy.cpu.generic import generic
from tilewright.strategy.cpu.lrn import local_response_norm
from tilewright.strategy.cpu.narrow_rows import narrow_rows
from tilewright.strategy.cpu.pointwise import pointwise
from tilewright.strategy.cpu.product import dense, matmul, pointwise_product
from tilewright.strategy.cpu.reduction import reduction
from tilewright.strategy.cpu.winograd import winograd
from tilewright.strategy.select import Strategies

CPU = Strategies(
    families={
        "attention": attention,
        "conv_packed": convolution,
        "conv_transpose_packed": transposed,
        "dense_packed": dense,
        "depthwise_packed": depthwise,
        "depthwise_transpose_packed": depthwise_transposed,
        "matmul": matmul,
        "pointwise": pointwise,
        "pointwise_packed": pointwise_product,
        "reduction": reduction,
        "lrn": local_response_norm,
        "winograd_product": winograd,
    },
    generic=generic,
    short_rows=narrow_rows,
    sketch="tilewright.strategy.sketch.tiles:tiles",
)
