"""Calling an executable: what it takes, what it gives back, and how it refuses."""

import io
import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw
from tests.runtime.images import identity_program, program, scale_program, symbolic_program
from tilewright.runtime import abi, tensor
from tilewright.runtime.executor import load
from tilewright.runtime.tensor import PACKED_BITS, address_of, numpy_dtype
from tilewright.support.errors import ArtifactError, InputError

T = abi.TensorInfo

SUBTRACT = """
EXPORT int32_t run(tw_call *c) {
    const float *a = c->inputs[0], *b = c->inputs[1];
    float *y = c->outputs[0], *z = c->outputs[1];
    for (int i = 0; i < 6; i++) { y[i] = a[i] - b[i]; z[i] = b[i] - a[i]; }
    return 0;
}
"""


@pytest.fixture
def subtract(loaded):
    """(y, z) = (a - b, b - a) on f32[2, 3]."""
    return loaded(
        program(
            SUBTRACT,
            (T("a", "f32", (2, 3)), T("b", "f32", (2, 3))),
            (T("y", "f32", (2, 3)), T("z", "f32", (2, 3))),
            name="subtract",
        )
    )


A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones((2, 3), np.float32)


def test_inputs_by_order_and_by_name(subtract):
    by_name = {"b": B, "a": A}
    for result in (subtract(A, B), subtract(A, b=B), subtract(**by_name), subtract(by_name)):
        assert len(result) == 2
        np.testing.assert_array_equal(result[0], A - B)
        np.testing.assert_array_equal(result[1], B - A)


def test_results_of_two_calls_are_apart(subtract):
    first = subtract(A, B)[0]
    second = subtract(B, A)[0]
    np.testing.assert_array_equal(first, A - B)
    np.testing.assert_array_equal(second, B - A)


def test_what_it_is(subtract):
    assert subtract.inputs == (T("a", "f32", (2, 3)), T("b", "f32", (2, 3)))
    assert [t.name for t in subtract.outputs] == ["y", "z"]
    assert subtract.name == "subtract" and subtract.threads == 1
    assert repr(subtract) == (
        "<Executable subtract(a: f32[2, 3], b: f32[2, 3]) -> (y: f32[2, 3], z: f32[2, 3]), "
        "1 thread>"
    )


@pytest.mark.parametrize("known", [True, False])
def test_addresses_are_those_that_arrays_tell(known, monkeypatch):
    """However an array came to its memory, where interpreters keep the pointer and elsewhere."""
    if not known:
        monkeypatch.setattr(tensor, "_fields", None)
    draw = np.random.default_rng()
    whole = draw.standard_normal((9, 8, 7))
    starts, steps = draw.integers(0, 6, 3), draw.choice([-2, -1, 1, 2], 3)
    part = whole[tuple(slice(a, None, s) for a, s in zip(starts, steps, strict=True))]
    read_only = np.frombuffer(draw.bytes(64), np.uint8)
    for array in (whole, part, part.T, read_only, np.empty(0), np.empty(())):
        assert address_of(array) == array.__array_interface__["data"][0]


def test_strided_and_foreign_memory_is_densified(subtract):
    wide = np.zeros((2, 6), np.float32)
    wide[:, ::2] = A
    np.testing.assert_array_equal(subtract(wide[:, ::2], B)[0], A - B)
    np.testing.assert_array_equal(subtract(np.asfortranarray(A), B)[0], A - B)
    np.testing.assert_array_equal(subtract(A[::-1], B)[0], A[::-1] - B)
    np.testing.assert_array_equal(subtract(np.broadcast_to(A[:1], (2, 3)), B)[0], A[:1] - B)
    frozen = A.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(subtract(frozen, B)[0], A - B)
    bytes_of_a = np.frombuffer(b"." + A.tobytes(), np.uint8)[1:]
    unaligned = bytes_of_a.view(np.float32).reshape(2, 3)
    assert not unaligned.flags.aligned
    np.testing.assert_array_equal(subtract(unaligned, B)[0], A - B)


def test_subclass_and_numpy_scalar(loaded):
    exe = loaded(
        program(
            "EXPORT int32_t run(tw_call *c)"
            "{ *(float *)c->outputs[0] = *(float *)c->inputs[0] + 1; return 0; }",
            (T("x", "f32", ()),),
            (T("y", "f32", ()),),
        )
    )
    assert exe(np.float32(2))[0] == 3
    assert exe(np.array(4, np.float32))[0].shape == ()


def refused(call):
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


TAKES = "\n  the model takes a: f32[2, 3], b: f32[2, 3]"


def test_wrong_inputs_name_what_was_expected(subtract):
    say = "cannot run 'subtract': "
    assert refused(lambda: subtract(A)) == f"{say}1 inputs were given, expected 2{TAKES}"
    assert refused(lambda: subtract(A, B, A)) == f"{say}3 inputs were given, expected 2{TAKES}"
    assert refused(lambda: subtract()) == f"{say}0 inputs were given, expected 2{TAKES}"
    assert refused(lambda: subtract(A, a=A)) == f"{say}input 'a' was given twice{TAKES}"
    assert refused(lambda: subtract(A, c=B)) == f"{say}input 'c' is no input of the model{TAKES}"
    assert refused(lambda: subtract(a=A)) == f"{say}input 'b' is missing{TAKES}"
    assert (
        refused(lambda: subtract(A, B.astype(np.float64)))
        == f"{say}input 1 'b': dtype is float64, expected float32{TAKES}"
    )
    assert (
        refused(lambda: subtract(A, B.astype(">f4")))
        == f"{say}input 1 'b': dtype is >f4, expected float32{TAKES}"
    )
    assert (
        refused(lambda: subtract(A[0], B))
        == f"{say}input 0 'a': shape is [3], expected [2, 3]{TAKES}"
    )
    assert (
        refused(lambda: subtract(A, B.reshape(3, 2)))
        == f"{say}input 1 'b': dimension 0 is 3, expected 2{TAKES}"
    )
    assert (
        refused(lambda: subtract(A, "1.0"))
        == f"{say}input 1 'b': str is neither a NumPy array nor has DLPack{TAKES}"
    )
    np.testing.assert_array_equal(subtract(A, B)[0], A - B)  # and it still runs


def test_symbolic_dimension_out_of_range(loaded):
    exe = loaded(symbolic_program())
    text = refused(lambda: exe(np.zeros(0, np.float32)))
    assert "input 0 'x': dimension 0 is 0, expected n from 1 to 1048576" in text
    assert "the model takes x: f32[n]" in text


def test_run_into(subtract):
    y, z = np.empty((2, 3), np.float32), np.empty((2, 3), np.float32)
    subtract.run_into([y, z], [A, B])
    np.testing.assert_array_equal(y, A - B)
    np.testing.assert_array_equal(z, B - A)


def test_run_into_by_name(subtract):
    y, z = np.empty((2, 3), np.float32), np.empty((2, 3), np.float32)
    subtract.run_into({"z": z, "y": y}, {"b": B, "a": A})
    np.testing.assert_array_equal(y, A - B)
    np.testing.assert_array_equal(z, B - A)
    said = refused(lambda: subtract.run_into({"y": y}, [A, B]))
    assert "arrays for the outputs y were given, expected y, z" in said
    assert "input 'b' is missing" in refused(lambda: subtract.run_into([y, z], {"a": A}))


def test_the_outputs_that_are_named(subtract):
    """As onnxruntime's `session.run`."""
    feeds = {"a": A, "b": B}
    (z,) = subtract.run(["z"], feeds)
    np.testing.assert_array_equal(z, B - A)
    assert [len(subtract.run(names, feeds)) for names in (None, ["z", "y", "z"], [])] == [2, 3, 0]
    assert subtract.input_names == ["a", "b"] and subtract.output_names == ["y", "z"]
    assert refused(lambda: subtract.run(["x"], feeds)) == (
        "cannot give output 'x' of 'subtract': the model has no output of this name\n"
        "  its outputs are y, z"
    )


def test_one_input_in_a_dict(loaded):
    exe = loaded(scale_program())
    x = np.ones(1000, np.float32)
    np.testing.assert_array_equal(exe({"x": x})[0], exe(x)[0])
    assert "input 'y' is no input of the model" in refused(lambda: exe({"y": x}))


def test_loading_an_open_file(loaded, tmp_path):
    path = loaded(scale_program()).save(tmp_path / "m.tw")
    x = np.ones(1000, np.float32)
    with open(path, "rb") as file:
        exe = load(file, 1)
    np.testing.assert_array_equal(exe(x)[0], np.full(1000, 5, np.float32))
    assert load(io.BytesIO(path.read_bytes()), 2).threads == 2
    with open(path, errors="replace") as file, pytest.raises(ArtifactError) as caught:
        load(file)
    assert str(caught.value) == (
        "cannot load the artifact: the file is open as text\n  open it for bytes: open(path, 'rb')"
    )


def test_what_is_no_source_and_no_list(subtract):
    for source, kind in ((None, "NoneType"), (3, "int"), ([1], "list"), (A.T, "ndarray")):
        with pytest.raises(ArtifactError) as caught:
            load(source)
        assert f"a {kind} is neither a path nor bytes" in str(caught.value)
    assert "inputs are a list or a dict, not a int" in refused(lambda: subtract.run_into([A], 3))
    assert "outputs are a list or a dict" in refused(lambda: subtract.run_into(None, [A, B]))
    assert "inputs by name are a dict, not a list" in refused(lambda: subtract.run(None, [A, B]))
    assert "they are a list of names" in refused(lambda: subtract.run("y", {"a": A, "b": B}))
    with pytest.raises(InputError, match="a NoneType is no executable"):
        tw.Pool(None)


def test_run_into_refuses_what_it_cannot_fill(subtract):
    y = np.empty((2, 3), np.float32)
    frozen = y.copy()
    frozen.flags.writeable = False
    for outputs, why in (
        ([y], "1 outputs were given, expected 2"),
        ([y, y.astype(np.int32)], "output 1 'z': dtype is int32, expected float32"),
        ([y, np.empty((3, 2), np.float32)], "output 1 'z': shape is [3, 2], expected [2, 3]"),
        ([y, np.empty((2, 6), np.float32)[:, ::2]], "output 1 'z' is not dense and writable"),
        ([frozen, y], "output 0 'y' is not dense and writable"),
    ):
        assert why in refused(lambda o=outputs: subtract.run_into(o, [A, B]))


@pytest.mark.parametrize("threads", [0, -1, 1.5, "two", True, 1025, 2**31, 2**32 + 2, 2**64 + 1])
def test_bad_thread_counts(threads, loaded, monkeypatch):
    said = f"cannot load the model: threads is {threads!r}, expected 1 to 1024"
    assert said in refused(lambda: loaded(identity_program(), threads))
    if type(threads) is int and threads > 0:
        monkeypatch.setenv("TILEWRIGHT_THREADS", str(threads))
        assert said in refused(lambda: loaded(identity_program(), None))


def test_threads_follow_the_knob(loaded, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_THREADS", "3")
    assert loaded(identity_program(), None).threads == 3
    assert loaded(identity_program(), 2).threads == 2


# ---- dtypes -----------------------------------------------------------------------------------


def copier(nbytes):
    return (
        "EXPORT int32_t run(tw_call *c) { const char *x = c->inputs[0]; char *y = c->outputs[0];"
        f"for (int i = 0; i < {nbytes}; i++) y[i] = x[i]; return 0; }}"
    )


@pytest.mark.parametrize("name", abi.DTYPE_CODES)
def test_every_dtype_passes_through(name, loaded):
    bits = PACKED_BITS.get(name) or 8 * numpy_dtype(name).itemsize
    tensor = T("x", name, (3, 7))
    exe = loaded(program(copier((21 * bits + 7) // 8), (tensor,), (T("y", name, (3, 7)),)))
    low, high = 0, 1 << min(bits, 6)
    if name.startswith("i"):
        low, high = -(high >> 1), high >> 1
    values = np.random.default_rng(0).integers(low, high, (3, 7)).astype(numpy_dtype(name))
    (result,) = exe(values)
    assert result.dtype == values.dtype and result.shape == (3, 7)
    np.testing.assert_array_equal(result, values)


def test_packed_elements_lie_lowest_bits_first(loaded):
    exe = loaded(program(copier(2), (T("x", "i4", (4,)),), (T("y", "u8", (2,)),)))
    (result,) = exe(np.array([1, -1, 7, -8]).astype(numpy_dtype("i4")))
    assert result.tolist() == [0xF1, 0x87]


# ---- other libraries ---------------------------------------------------------------------------


def test_torch_tensors_in_and_out_without_a_copy(subtract):
    torch = pytest.importorskip("torch")
    a, b = torch.from_numpy(A.copy()), torch.ones(2, 3, requires_grad=True)
    y, z = subtract(a, b)
    assert isinstance(y, torch.Tensor) and torch.equal(y, a - b) and torch.equal(z, b - a)
    strided = torch.arange(6.0).reshape(3, 2).T
    assert torch.equal(subtract(strided, b)[0], strided - b)
    out = torch.empty(2, 3), torch.empty(2, 3)
    subtract.run_into(out, [a, b])
    assert torch.equal(out[0], a - b)
    assert "dtype is float64, expected float32" in refused(lambda: subtract(a.double(), b))
    assert "input 0 'a':" in refused(lambda: subtract(a.to("meta"), b))


@pytest.mark.parametrize("name", ["bf16", "f8e4m3", "f8e5m2", "bool", "f16", "i64", "u8"])
def test_torch_dtypes_pass_through(name, loaded):
    torch = pytest.importorskip("torch")
    names = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
    dtype = getattr(torch, names.get(name) or str(numpy_dtype(name)))
    exe = loaded(
        program(
            copier(4 * numpy_dtype(name).itemsize), (T("x", name, (4,)),), (T("y", name, (4,)),)
        )
    )
    x = torch.tensor([0.0, 1.0, 1.5, 2.0]).to(dtype)
    (y,) = exe(x)
    assert y.dtype == dtype and torch.equal(y.float(), x.float())


def test_dlpack_memory_is_read_in_place(loaded):
    torch = pytest.importorskip("torch")
    exe = loaded(
        program(
            "EXPORT int32_t run(tw_call *c)"
            "{ *(uint64_t *)c->outputs[0] = (uint64_t)c->inputs[0]; return 0; }",
            (T("x", "f32", (5,)),),
            (T("address", "u64", ()),),
        )
    )
    x = torch.zeros(9)[4:]
    assert int(exe(x)[0]) == x.data_ptr()
    array = np.zeros(5, np.float32)
    assert int(exe(array)[0]) == array.ctypes.data


# ---- standing alone ----------------------------------------------------------------------------


def test_running_an_artifact_loads_no_compiler(loaded, tmp_path):
    path = loaded(scale_program()).save(tmp_path / "m.tw")
    script = f"""
import sys, numpy
import tilewright
exe = tilewright.load({str(path)!r}, threads=2)
assert exe(numpy.ones(1000, "f4"))[0][0] == 5
rooms = {{name.split(".")[1] for name in sys.modules if name.startswith("tilewright.")}}
print(sorted(rooms), "llvmlite" in sys.modules, "ml_dtypes" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "['runtime', 'support'] False False", done.stderr
