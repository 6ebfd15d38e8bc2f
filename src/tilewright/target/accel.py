"""A small accelerator: three units around on-chip memories.

A load unit copies tiles from global memory into `accel.input` and `accel.weight`, a compute unit
multiplies 16×16 tiles of i8 into `accel.acc` (i32), a store unit copies tiles of results out. The
units run at the same time, each in the order of its own instructions; they wait for each other only
through tokens that instructions put into and take out of queues between units. The machine is here
to show that the layers carry such machines.
"""

from __future__ import annotations

from tilewright.target.intrinsics import copy, declare, fill, matrix_product

TILE = 16
INPUT, WEIGHT, RESULT = "accel.input", "accel.weight", "accel.acc"
_SQUARE = (TILE, TILE)

declare(
    "accel.gemm",
    lambda: matrix_product("accel.gemm", TILE, TILE, TILE, (INPUT, WEIGHT, RESULT), "accel.gemm"),
)
declare(
    "accel.load_input",
    lambda: copy("accel.load_input", _SQUARE, "i8", ("global", INPUT), "accel.load"),
)
declare(
    "accel.load_weight",
    lambda: copy("accel.load_weight", _SQUARE, "i8", ("global", WEIGHT), "accel.load"),
)
declare(
    "accel.store", lambda: copy("accel.store", _SQUARE, "i32", (RESULT, "global"), "accel.store")
)
declare("accel.clear", lambda: fill("accel.clear", _SQUARE, "i32", RESULT, "accel.clear"))
