"""Weights larger than memory should be: mapped from their file, written part by part, mapped
again. The figures of a model of 2.5 GB are in docs/big_models.md."""

from __future__ import annotations

import mmap
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.driver.conftest import expected
from tilewright.driver.compile import compile_file
from tilewright.driver.identity import file_identity
from tilewright.runtime.artifact import CODE, HEADER, SECTION, WEIGHTS, encode_header
from tilewright.runtime.bindings import hash_bytes
from tilewright.runtime.executor import load

X = np.random.default_rng(1).standard_normal((2, 8), np.float32)
HOLE = 1 << 32


def external(name: str, of: int, *dims: int, offset: int, file: str) -> onnx.TensorProto:
    """A tensor whose content is in a file beside the model."""
    made = TensorProto(name=name, data_type=of, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", file), ("offset", str(offset))):
        made.external_data.add(key=key, value=value)
    return made


def save(path: Path, nodes, given, weights) -> None:
    of, shape = given
    entries = [helper.make_tensor_value_info("x", of, shape)]
    results = [onnx.ValueInfoProto(name=nodes[-1].output[0])]
    graph = helper.make_graph(nodes, "big", entries, results, weights)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def private_bytes() -> int:
    """What this process holds in memory that is no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


@contextmanager
def private_growth() -> Iterator[list[int]]:
    """By how many bytes private memory grew at most within."""
    start, found, done = private_bytes(), [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            found[0] = max(found[0], private_bytes() - start)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


@pytest.mark.slow
def test_weights_beyond_four_gigabytes_of_an_artifact(model, tmp_path):
    """The code section of a small artifact made larger, by a hole in the file behind it."""
    compile_file(model, tmp_path / "near.tw", threads=1)
    near, far = (tmp_path / "near.tw").read_bytes(), tmp_path / "far.tw"
    count, table, moved = HEADER.unpack_from(near)[5], b"", 0
    with far.open("w+b") as file:
        for n in range(count):
            kind, index, at, size, sum_, rest = SECTION.unpack_from(
                near, HEADER.size + SECTION.size * n
            )
            file.seek(at + moved)
            file.write(near[at : at + size])
            position = at + moved
            if kind == CODE:
                file.truncate(position + size + HOLE)
                size, moved = size + HOLE, HOLE
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                    sum_ = hash_bytes(memoryview(view)[position : position + size])
            table += SECTION.pack(kind, index, position, size, sum_, rest)
        assert kind == WEIGHTS
        file.seek(0)
        file.write(encode_header(table, position + size) + table)
    np.testing.assert_allclose(load(far)(X)[0], expected(X), rtol=1e-5, atol=1e-5)


def test_external_data_of_any_name_belongs_to_a_model(tmp_path):
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    weights.tofile(tmp_path / "other.bin")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    stored = [external("w", TensorProto.FLOAT, 3, 4, offset=0, file="other.bin")]
    save(tmp_path / "m.onnx", nodes, (TensorProto.FLOAT, [2, 3]), stored)
    first = file_identity(tmp_path / "m.onnx")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(tw.compile(tmp_path / "m.onnx")(x)[0], x @ weights)
    weights[:] = 1
    weights.tofile(tmp_path / "other.bin")
    assert file_identity(tmp_path / "m.onnx") != first
    np.testing.assert_allclose(tw.compile(tmp_path / "m.onnx")(x)[0], x @ weights)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_table_of_more_than_two_gigabytes(tmp_path):
    """Rows behind 2^31 elements, from a file with holes, are read where they lie."""
    rows, width = (1 << 31) // 256 + 4000, 256
    positions = np.array([0, 17, rows - 3001, rows - 1, 5], np.int64)
    content = np.random.default_rng(2).integers(0, 256, (len(positions), width), np.uint8)
    with (tmp_path / "table.bin").open("wb") as file:
        for position, row in zip(positions, content, strict=True):
            file.seek(int(position) * width)
            file.write(row.tobytes())
    table = external("t", TensorProto.UINT8, rows, width, offset=0, file="table.bin")
    nodes = [helper.make_node("Gather", ["t", "x"], ["y"])]
    save(tmp_path / "m.onnx", nodes, (TensorProto.INT64, [5]), [table])
    with private_growth() as most:
        run = tw.compile(tmp_path / "m.onnx", cache=False, threads=1)
        np.testing.assert_array_equal(run(positions)[0], content)
    assert most[0] < 100 << 20


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_packed_weights_are_never_all_in_memory(tmp_path):
    layers, n = 16, 2048
    rng = np.random.default_rng(3)
    base, x = rng.standard_normal((n, n), np.float32) / 64, rng.standard_normal((2, n), np.float32)
    nodes, stored, y, wanted = [], [], "x", x.astype(np.float64)
    with (tmp_path / "w.bin").open("wb") as file:
        for k in range(layers):
            w, across = np.roll(base, k * 7), k % 2
            file.write(w.tobytes())
            stored.append(
                external(f"w{k}", TensorProto.FLOAT, n, n, offset=k * w.nbytes, file="w.bin")
            )
            nodes.append(helper.make_node("Gemm", [y, f"w{k}"], [f"y{k}"], transB=across))
            y, wanted = f"y{k}", wanted @ (w.T if across else w).astype(np.float64)
    save(tmp_path / "m.onnx", nodes, (TensorProto.FLOAT, [2, n]), stored)
    tw.compile(tmp_path / "m.onnx", cache=False, threads=1)  # the compiler itself is in memory
    with private_growth() as most:
        run = tw.compile(tmp_path / "m.onnx", cache=False, threads=1)
        (got,) = run(x)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    assert most[0] < base.nbytes * layers // 3
