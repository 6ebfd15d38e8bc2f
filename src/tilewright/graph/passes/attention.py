"""attention: find the operators between two products that one kernel computes in tiles.

In: a product. Out: the nodes that make its left operand, where these are a product, element-wise
work (scales, masks, biases), a softmax over the last axis and again element-wise work, all read by
nobody else. The one idea: the matrix of scores has a number for every pair of rows, more than goes
in or comes out; in one kernel a few rows of it are made, used and forgotten at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from tilewright.graph.graph import Node, Value
from tilewright.graph.operator import BROADCAST, OPERATORS
from tilewright.ir.expr import as_int

PRODUCTS = frozenset({"dense_packed", "matmul"})


def attention(
    anchor: Node,
    made_by: Mapping[Value, Node],
    users: Mapping[Value, Sequence[Node]],
    kept: Set[Value],
) -> list[Node]:
    """The nodes from the product of the scores to the last one before product `anchor`, in no
    order; none where `anchor` is not the second product of an attention. What is in `kept` leaves
    the graph."""
    if not is_tiled(anchor):
        return []
    weights = anchor.inputs[0]
    inside = {anchor}

    def joins(node: Node) -> bool:
        """Is it read in the group alone, and as large as the scores?"""
        value = node.outputs[0]
        alone = len(node.outputs) == 1 and value not in kept and inside.issuperset(users[value])
        return alone and value.shape == weights.shape

    softmax = _above([weights], made_by, inside, joins, {"softmax"})
    if softmax is None or softmax["axis"] not in (-1, weights.rank - 1):
        return []
    inside.add(softmax)
    product = _above(softmax.inputs, made_by, inside, joins, PRODUCTS)
    if product is None or dict(product.attrs).get("transpose_a"):
        return []
    if made_by.get(anchor.inputs[1]) in (product, *inside):
        return []  # a tile would need all rows of what is made in tiles
    rows, depth = (as_int(n) for n in product.inputs[0].shape[-2:])
    if rows is not None and depth is not None and rows < depth:
        return []  # the scores are fewer numbers than the keys, which are read anyway
    return [product, *(inside - {anchor})]


def is_tiled(anchor: Node) -> bool:
    """Could a kernel go through the rows of the product's left operand in tiles? A single query has
    no tile."""
    if anchor.op not in PRODUCTS or dict(anchor.attrs).get("transpose_a"):
        return False
    weights, result = anchor.inputs[0].shape, anchor.output.shape
    if weights[:-1] != result[:-1]:
        return False  # it would make the scores again for every batch of the values
    rows, keys, width = (as_int(n) for n in (*weights[-2:], result[-1]))
    return width is not None and width > 1 and rows != 1 and keys != 1


def _above(
    values: Sequence[Value],
    made_by: Mapping[Value, Node],
    inside: set[Node],
    joins: Callable[[Node], bool],
    wanted: Set[str],
) -> Node | None:
    """The one node of the `wanted` operators above `values`, past element-wise nodes, which come
    `inside`; None if there is none or another."""
    found: list[Node] = []
    waiting = list(values)
    while waiting:
        ready = [v for v in waiting if v in made_by and joins(made_by[v])]
        if not ready:
            break  # what is left are the group's inputs
        node = made_by[ready[0]]
        waiting = [v for v in waiting if v is not node.outputs[0]]
        if node.op in wanted:
            found.append(node)
        elif OPERATORS[node.op].fusion is BROADCAST:
            inside.add(node)
            waiting.extend(v for v in node.inputs if v not in waiting)
    return found[0] if len(found) == 1 else None
