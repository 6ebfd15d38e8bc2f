"""What sizes count for that only the run knows.

In: a size, and what it is the size of. Out: a number, at least 1. A choice that depends on a size
is made before the size is known (docs/decisions/027): whoever weighs costs for it asks here, so
that all of them weigh the same model. What must hold for every size does not ask.
"""

from __future__ import annotations

from tilewright.ir.expr import Expr, as_int, const
from tilewright.ir.walk import free_vars, substitute

BATCH = 1  # images or sequences at once: code for one has to be good, more gain by themselves
IMAGE = 64  # rows or columns of an image in the middle of a net
NARROW = 40  # rows or columns of an image that threads are to share evenly, too
SEQUENCE = 256  # tokens, rows of a product, and sizes of a model's inputs
# where one number would tilt a choice, costs are weighed for several
VECTORS = 2, 4, 16  # of a row of an open number of columns
TILES = 4, 16, 25, 49, 100, 196  # Winograd's, of an image of 7, 14, 20, 28, 40 and 56 pixels a side
TILES_ALONG = 14  # one side of such an image, if it has no more along the other


def estimate(size: Expr | int, of: int = SEQUENCE) -> int:
    """The number that `size` is; what it counts for (BATCH, IMAGE, SEQUENCE) if it is open."""
    number = as_int(size)
    return max(1, of if number is None else number)


def estimate_by_symbols(size: Expr | int, of: int = SEQUENCE) -> int:
    """The number that `size` is where each of its symbols is `of`."""
    number = as_int(size)
    if number is None:
        assert isinstance(size, Expr)
        number = as_int(substitute(size, dict.fromkeys(free_vars(size), const(of))))
        assert number is not None, size
    return max(1, number)
