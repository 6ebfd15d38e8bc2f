"""Numbers and lists as inputs: what they become, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.images import program
from tilewright.runtime import abi
from tilewright.runtime.literals import input_array, literal
from tilewright.runtime.tensor import numpy_dtype
from tilewright.support.errors import InputError

T = abi.TensorInfo
RANDOM = np.random.default_rng()
FLOATS = ("f64", "f32", "f16", "bf16", "f8e5m2", "f8e4m3")
WHOLE = tuple(f"{kind}{bits}" for kind in "iu" for bits in (64, 32, 16, 8))


def copier(loaded, of: str, shape: tuple[int, ...]):
    """y = x."""
    nbytes = int(np.prod(shape)) * numpy_dtype(of).itemsize
    code = (
        "EXPORT int32_t run(tw_call *c) { const char *x = c->inputs[0]; char *y = c->outputs[0];"
        f"for (int i = 0; i < {nbytes}; i++) y[i] = x[i]; return 0; }}"
    )
    return loaded(program(code, (T("x", of, shape),), (T("y", of, shape),)))


@pytest.mark.parametrize("of", (*FLOATS, *WHOLE, "bool"))
def test_lists_become_the_dtype_of_the_input(of, loaded):
    exe = copier(loaded, of, (2, 3))
    numbers = RANDOM.integers(0, 2, (2, 3))
    given = {"bool": numbers.astype(bool)}.get(of, numbers)
    for x in (given.tolist(), tuple(map(tuple, given.tolist())), list(given)):
        (y,) = exe(x)
        assert y.dtype == numpy_dtype(of) and (y.astype(np.int64) == numbers).all()
    if of in FLOATS:
        fractions = RANDOM.standard_normal((2, 3))
        (y,) = exe(fractions.tolist())
        np.testing.assert_array_equal(y, fractions.astype(numpy_dtype(of)))


def test_scalars(loaded):
    for of, x in (("f32", 0.1), ("f32", 3), ("i64", 7), ("bool", True), ("i8", True)):
        exe = copier(loaded, of, ())
        for value in (x, np.asarray(x)[()]):
            (y,) = exe(value)
            assert y.dtype == numpy_dtype(of) and y.shape == () and y == numpy_dtype(of).type(x)


@pytest.mark.parametrize(
    ("of", "given", "why"),
    [
        ("i64", 1.0, "1.0, a float, does not become i64"),
        ("i32", [1, 2.5], "2.5, a float, does not become i32"),
        ("u8", [3, 300], "300 does not fit u8"),
        ("u8", [-1], "-1 does not fit u8"),
        ("i64", 2**63, f"{2**63} does not fit i64"),
        ("u64", 2**64, f"{2**64} does not fit u64"),
        ("i4", [-8, 8], "8 does not fit i4"),
        ("f32", [1.0, -1e39], "-1e+39 does not fit f32"),
        ("f16", 70000, "70000 does not fit f16"),
        ("bf16", 3.4e38, "3.4e+38 does not fit bf16"),
        ("bool", [0, 1], "0, a whole number, does not become bool"),
        ("f32", [[1], [2, 3]], "its lists differ in length"),
        ("f32", ["a"], "it is neither an array nor numbers, of which f32 are expected"),
        ("f32", [None], "it is neither an array nor numbers, of which f32 are expected"),
        ("i64", [1j], "1j, a complex number, does not become i64"),
    ],
)
def test_what_would_not_say_the_same(of, given, why):
    with pytest.raises((TypeError, ValueError)) as caught:
        literal(given, of)
    assert str(caught.value) == why


def test_what_fits_just():
    for of in ("i64", "u64", "i32", "u32", "i8", "u8"):
        limits = np.iinfo(numpy_dtype(of))
        assert literal([limits.min, limits.max], of).tolist() == [limits.min, limits.max]
    assert literal([np.inf, -np.inf], "f16").tolist() == [np.inf, -np.inf]
    assert np.isnan(literal(np.nan, "bf16").astype(np.float32))
    assert literal(10**30, "f32") == np.float32(1e30)
    assert literal([], "i64").shape == (0,) and literal([], "i64").dtype == np.int64


def test_the_refusal_names_the_input(loaded):
    exe = copier(loaded, "i64", (2,))
    with pytest.raises(InputError) as caught:
        exe([0.5, 1])
    assert str(caught.value) == (
        "cannot run 'test': input 0 'x': 0.5, a float, does not become i64\n"
        "  the model takes x: i64[2]"
    )
    with pytest.raises(InputError, match=r"shape is \[3\], expected \[2\]|is 3, expected 2"):
        exe([1, 2, 3])


def test_arrays_keep_their_dtype(loaded):
    """Only literals are converted: an array of another dtype is a mistake."""
    exe = copier(loaded, "f32", (2,))
    with pytest.raises(InputError, match="dtype is float64, expected float32"):
        exe(np.zeros(2))


def test_lists_are_no_outputs(loaded):
    exe = copier(loaded, "f32", (2,))
    with pytest.raises(InputError, match="list is neither a NumPy array nor has DLPack"):
        exe.run_into([[0.0, 0.0]], [[1.0, 2.0]])


def test_complex_numbers_as_pairs(loaded):
    exe = copier(loaded, "f32", (2, 2))
    assert exe([1 + 2j, 3])[0].tolist() == [[1, 2], [3, 0]]


def test_what_knows_how_to_be_an_array():
    class Table:
        def __array__(self, dtype=None, copy=None):
            return np.array([1, 2], np.float32)

    assert input_array(Table(), "f32").tolist() == [1, 2]
    image = pytest.importorskip("PIL.Image").new("RGB", (3, 2))
    assert input_array(image, "u8").shape == (2, 3, 3)
