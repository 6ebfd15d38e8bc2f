"""one_row: products with a matrix that the run computes have code of their own for a single row.

In: a graph of plain operators, before layouts are chosen. Out: the same model with two products
in place of one whose rows are an open number, and a choice between them. To pack a matrix takes
longer than to multiply one row by it, as a decoder does for each token with all keys that it keeps.
What follows a product element by element, and would be one kernel with it, is made on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.graph.builder import Edit
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import BROADCAST, OPERATORS
from tilewright.graph.ops.linear import is_of_one_type
from tilewright.ir.dtype import f32
from tilewright.ir.expr import Expr, Var, as_int


def one_row(graph: Graph) -> Graph:
    """Choose by the number of rows where that is open and decides whether packing pays."""
    users = graph.users()
    found = {n: _followed(n, users) for n in graph.nodes if _is_open(graph, n)}
    product_of = {chain[-1]: node for node, chain in found.items() if chain}
    if not product_of:
        return graph
    edit = Edit(graph)
    single: dict[Expr, Value] = {}
    for node in graph.nodes:
        if found.get(node):  # a condition stands in front of its branches
            rows = node.output.shape[-2]
            if rows not in single:
                count = edit.emit("size_values", values=(rows,), shape=(), of="i64")
                single[rows] = edit.emit("equal", count, edit.constant(np.int64(1), "one"))
        edit.append(edit.current(node))
        product = product_of.get(node)
        if product is not None:
            alone = _of_one_row(edit, found[product])
            chosen = edit.emit("where", single[product.output.shape[-2]], alone, node.output)
            edit.substitute(node.outputs, chosen)
    return edit.finish_edit()


def _is_open(graph: Graph, node: Node) -> bool:
    """Is it a product of an open number of rows and a matrix of open width that the run makes?

    Where both are one size, one row is multiplied by one column, and packing that is no work.
    """
    if node.op != "matmul" or node["transpose_a"] or not is_of_one_type(node):
        return False
    if node.inputs[0].dtype is not f32:
        return False
    x, w = node.inputs
    rows, columns = node.output.shape[-2:]
    same_batch = x.rank == w.rank and x.shape[:-2] == w.shape[:-2]
    is_found = w not in graph.constants and as_int(x.shape[-1]) is not None
    are_open = isinstance(rows, Var) and as_int(columns) is None and rows != columns
    return same_batch and is_found and are_open


def _followed(product: Node, users: Mapping[Value, Sequence[Node]]) -> list[Node]:
    """The product and what follows it element by element; nothing if it is a choice's already."""
    chain = [product]
    while len(users[chain[-1].output]) == 1:
        (user,) = users[chain[-1].output]
        if user.op == "where" and as_int(user.inputs[0].elements) == 1:
            return []
        has_shape = user.output.shape == product.output.shape
        if OPERATORS[user.op].fusion is not BROADCAST or not has_shape:
            break
        chain.append(user)
    return chain


def _of_one_row(edit: Edit, chain: Sequence[Node]) -> Value:
    """What the chain makes where its product has one row."""
    product, *others = chain
    x, w = (edit.replaced.get(v, v) for v in product.inputs)
    *batch, _, depth = x.shape
    row = edit.emit("view_as", x, shape=(*batch, 1, depth))
    made = edit.emit("matmul", row, w, **dict(product.attrs))
    made = edit.emit("view_as", made, shape=product.output.shape)
    before = product.output
    for node in others:
        inputs = [made if v is before else edit.replaced.get(v, v) for v in node.inputs]
        made, before = edit.emit(node.op, *inputs, **dict(node.attrs)), node.output
    return made
