"""Variables: one object for each name and dtype, so that dictionaries find them by identity."""

from __future__ import annotations

import copy
import pickle

from tilewright.ir.dtype import i32, i64
from tilewright.ir.expr import Var
from tilewright.te.tensor import ComputeAxis


def test_there_is_one_object_for_each_variable() -> None:
    v = Var("some_loop")
    assert v is Var("some_loop", i64) is Var(name="some_loop")
    assert v is copy.deepcopy(v) is pickle.loads(pickle.dumps(v)) is v.replace(dtype=i64)
    assert v != Var("some_loop", i32) and v != Var("other_loop")
    assert Var.__hash__ is object.__hash__


def test_axes_of_computations_are_equal_to_themselves_only() -> None:
    size, one, two = Var("n"), ComputeAxis("n", i64), ComputeAxis("n", i64)
    assert len({size, one, two}) == 3
    assert one.name == two.name == "n" and one.dtype is i64
