"""Wrong uses of the command line and of the API: each ends in one message that says what to do.

A line of `COMMANDS` is a command, its exit status (1: the user's error, 2: wrong usage) and words
of the message; a line of `CALLS` is Python and the same. All work on the files of `folder`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.driver.conftest import dense
from tilewright.support.errors import UserFault

# ---- The files ----------------------------------------------------------------------------------

FLOAT, BYTES, WHOLE = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT64


def unary(path, shape, dtype=FLOAT, op="Identity", opset=17, name="x", **attributes):
    """A model of one operator."""
    node = helper.make_node(op, [name], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "unary",
        [helper.make_tensor_value_info(name, dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    onnx.save(model, path)
    return path


def two_inputs(path):
    """y = a + b."""
    infos = [helper.make_tensor_value_info(n, FLOAT, [2, 3]) for n in "aby"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])], "two", infos[:2], infos[2:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, arrays, images and broken files of every kind."""
    made = tmp_path_factory.mktemp("wrong")
    patch = pytest.MonkeyPatch()
    patch.setenv("TILEWRIGHT_CACHE_DIR", str(made / "cache"))
    dense(made / "dense.onnx")
    dense(made / "open.onnx", rows="n")
    unary(made / "inner.onnx", [1, "height"], op="Relu")
    unary(made / "photo.onnx", [1, 3, 8, 8], op="Relu")
    unary(made / "batch.onnx", [4, 3, 8, 8], op="Relu")
    unary(made / "bytes.onnx", [1, 8, 8, 3], BYTES)
    unary(made / "whole.onnx", [1, 3, 8, 8], WHOLE)
    unary(made / "either.onnx", [1, 3, 8, 3], op="Relu")
    unary(made / "twelve.onnx", [1, 12, 8, 8], op="Relu")
    unary(made / "five.onnx", [1, 1, 3, 8, 8], op="Relu")
    unary(made / "unknown.onnx", [2], op="Wobble")
    unary(made / "old.onnx", [2], op="Relu", opset=999)
    two_inputs(made / "two.onnx")
    tw.compile(made / "dense.onnx", threads=1).save(made / "dense.tw")
    data = (made / "dense.tw").read_bytes()
    (made / "cut.tw").write_bytes(data[: len(data) // 2])
    (made / "damaged.tw").write_bytes(data[:-1000] + bytes(b ^ 255 for b in data[-1000:]))
    (made / "empty.tw").write_bytes(b"")
    (made / "text.tw").write_text("hello")
    (made / "text.onnx").write_text("hello, this is no model")
    (made / "empty.onnx").write_bytes(b"")
    (made / "cut.onnx").write_bytes((made / "dense.onnx").read_bytes()[:100])
    np.save(made / "x.npy", np.zeros((2, 8), np.float32))
    np.save(made / "wide.npy", np.zeros((2, 9), np.float32))
    np.save(made / "flat.npy", np.zeros(8, np.float32))
    np.save(made / "double.npy", np.zeros((2, 8)))
    np.save(made / "objects.npy", np.array([{}, None]), allow_pickle=True)
    np.savez(made / "both.npz", p=np.zeros(2), q=np.zeros(2))
    (made / "text.npy").write_text("no array")
    (made / "text.npz").write_text("no archive")
    (made / "text.png").write_text("no image")
    (made / "scale.txt").write_text(
        "def f(A: f32[4]):\n    for i in serial(0, 4):\n        A[i] = 1.0\n"
    )
    (made / "none.txt").write_text("hello")
    (made / "key.pem").write_text("no key")
    (made / "hollow").mkdir()
    (made / "mixed").mkdir()
    np.save(made / "mixed/1.npy", np.zeros(8, np.float32))
    np.save(made / "mixed/2.npy", np.zeros(9, np.float32))
    (made / "photos").mkdir()
    (made / "locked").mkdir(mode=0o500)
    image = pytest.importorskip("PIL.Image")
    for n in range(3):
        image.new("RGB", (8, 8)).save(made / f"photos/{n}.png")
    image.new("RGB", (9, 8)).save(made / "large.png")
    image.new("RGB", (8, 8)).save(made / "small.png")
    image.new("I;16", (8, 8)).save(made / "deep.png")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    image.fromarray(noise).save(made / "noise.png")
    (made / "short.png").write_bytes((made / "noise.png").read_bytes()[:2000])
    yield made
    patch.undo()


@pytest.fixture(autouse=True)
def here(folder, alone, monkeypatch):
    """In that folder, with a cache for all."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setenv("TILEWRIGHT_THREADS", "1")


# ---- The command line ---------------------------------------------------------------------------

COMMANDS = """
compile nowhere.onnx | 1 | there is no such file
compile photos | 1 | it is a folder
compile dense.tw | 1 | it is compiled already
compile text.onnx | 1 | text.onnx
compile empty.onnx | 1 | empty.onnx
compile cut.onnx | 1 | cut.onnx
compile x.npy | 1 | x.npy
compile small.png | 1 | small.png
compile unknown.onnx | 1 | Wobble
compile old.onnx | 1 | 999
compile dense.onnx -o no/folder.tw | 1 | there is no folder 'no'
compile dense.onnx -o photos | 1 | it is a folder
compile dense.onnx -o x.npy/out.tw | 1 | there is no folder 'x.npy'
compile dense.onnx -o /proc/out.tw | 1 | /proc
compile dense.onnx -o '' | 1 | cannot write
compile dense.onnx --target riscv9 | 1 | riscv9
compile dense.onnx --target cuda | 1 | cannot compile a model for 'cuda'
compile dense.onnx --target 'cpu -mcpu=pentium99' | 1 | pentium99
compile dense.onnx --target 'cpu -colour=red' | 1 | colour
compile dense.onnx --target 'cpu -cores=many' | 1 | many
compile dense.onnx --target 'cpu -mcpu=haswell -mattr=+avx512' | 1 | near it: avx512
compile dense.onnx --target 'cpu -mcpu=haswell -mattr=+avx2,+neon' | 1 | no feature 'neon' of x86_64
compile dense.onnx --target 'cpu -mtriple=aarch64-linux-gnu -mattr=+dotprot' | 1 | near it: dotprod
compile dense.onnx --target 'cpu -mtriple=pdp11-dec-unix' | 1 | pdp11
compile dense.onnx --target '' | 1 | target
compile dense.onnx --target cpu --target cpu | 1 | the second would never run
compile dense.onnx --target 'cpu -mtriple=aarch64-linux-gnu' --target cpu | 1 | architectures
compile dense.onnx --size n=4 | 1 | 'n'
compile dense.onnx --size n | 1 | not of the form name=value
compile open.onnx --size n=many | 1 | it is no whole number
compile open.onnx --size n=-4 | 1 | it is no whole number
compile open.onnx --size =4 | 1 | not of the form name=value
compile open.onnx --size m=4 | 1 | 'm'
compile dense.onnx --sign nokey.pem | 1 | nokey.pem
compile dense.onnx --sign key.pem | 1 | key
compile dense.onnx --threads 0 | 2 | '--threads'
compile dense.onnx --threads 5000 | 1 | 5000
compile dense.onnx --threads two | 2 | '--threads'
compile dense.onnx --opt-level 9 | 2 | '--opt-level'
compile dense.onnx --colour red | 2 | --colour
compile dense.onnx open.onnx | 2 | open.onnx
compile | 2 | MODEL
paint | 2 | paint
run | 2 | MODEL
run nowhere.tw | 1 | nowhere.tw
run photos | 1 | it is a folder
run cut.tw | 1 | cut.tw
run damaged.tw | 1 | damaged.tw
run empty.tw | 1 | empty.tw
run text.tw | 1 | text.tw
run dense.onnx --verify key.pem | 1 | only artifacts (.tw) are signed
run dense.tw --verify key.pem | 1 | key
run dense.tw --verify nokey.pem | 1 | nokey.pem
run dense.tw --input z=x.npy | 1 | the model has no 'z'
run dense.tw --input x=nothing.npy | 1 | there is no such file
run dense.tw --input nothing.npy | 1 | there is no such file
run dense.tw --input nothing.npz | 1 | there is no such file
run dense.tw --input x= | 1 | cannot read input 'x'
run dense.tw --input x=text.npy | 1 | text.npy
run dense.tw --input x=text.npz | 1 | text.npz
run dense.tw --input x=both.npz | 1 | it holds p, q
run dense.tw --input both.npz | 1 | the model has no 'p'
run dense.tw --input x=objects.npy | 1 | objects.npy
run dense.tw --input x=dense.onnx | 1 | dense.onnx
run dense.tw --input x=wide.npy | 1 | dimension 1 is 9, expected 8
run dense.tw --input x=flat.npy | 1 | shape is [8], expected [2, 8]
run dense.tw --input x=double.npy | 1 | dtype is float64, expected float32
run dense.tw --input x=hollow | 1 | the folder has no such file
run open.onnx --input x=mixed --batch 2 | 1 | their shapes differ
run two.onnx --input x.npy | 1 | the model's inputs are a, b
run two.onnx --input a=photos --input b=mixed | 1 | cannot read input 'a'
run dense.tw --size n=4 | 1 | the model has no 'n'
run dense.tw -o no/out.npz | 1 | there is no folder 'no'
run dense.tw -o no/out/folder | 1 | cannot keep the outputs
run dense.tw -o dense.onnx | 1 | cannot keep the outputs
run dense.tw -o /proc/out.npz | 1 | /proc
run dense.tw --threads 5000 | 1 | 5000
run dense.tw --seed -1 | 2 | '--seed'
run dense.tw --batch 0 | 2 | '--batch'
run dense.tw --fit squeeze | 2 | squeeze
run dense.tw --layout hwc | 2 | hwc
run dense.tw --mean red | 2 | 'red' is no list
run dense.tw --std 0 | 2 | '0' is no list
run photo.onnx --input text.png | 1 | text.png
run photo.onnx --input short.png | 1 | short.png
run photo.onnx --input large.png | 1 | it is 9x8 pixels, the model takes 8x8
run photo.onnx --input deep.png | 1 | more than 8 bits
run photo.onnx --input small.png --mean 1,2 | 1 | the image has 3 channels
run photo.onnx --input small.png --layout nhwc | 1 | no 1, 3 or 4 channels
run photo.onnx --input photos -o out.npz | 1 | there are 3 calls
run batch.onnx --input photos | 1 | the model takes 4 at once
run bytes.onnx --input small.png --mean 0.5 | 1 | --mean and --std are for floats
run whole.onnx --input small.png | 1 | pixels are u8 or floats
run either.onnx --input small.png | 1 | say --layout nchw or --layout nhwc
run twelve.onnx --input small.png | 1 | its axis of channels cannot be told
run five.onnx --input small.png | 1 | the input has 5 axes
run dense.onnx --input x=small.png | 1 | pixels
bench nowhere.onnx | 1 | there is no such file
bench dense.tw | 1 | other engines read the ONNX file
bench inner.onnx | 1 | say which to measure: --size height=…
bench inner.onnx --size width=4 | 1 | the model has no 'width'
bench dense.onnx --threads 1,x | 2 | 1,x
bench dense.onnx --threads 0 | 2 | --threads
bench dense.onnx --against nobody | 2 | nobody
bench dense.onnx --html page.html | 2 | --roofline
bench dense.onnx --trace trace.json | 2 | --roofline
bench dense.onnx --roofline --trace no/trace.json | 1 | there is no folder 'no'
bench dense.onnx --roofline --html no/page.html | 1 | there is no folder 'no'
bench dense.onnx --seconds 0 | 2 | '--seconds'
bench photo.onnx --input photos | 1 | cannot measure a folder
bench unknown.onnx --against none | 1 | Wobble
inspect nowhere.onnx | 1 | there is no such file
inspect text.tw | 1 | text.tw
inspect dense.onnx --kernel k99 | 1 | kernels: k0_
inspect dense.onnx --stage asm | 2 | --kernel
inspect dense.onnx --kernel k0 --stage soup | 2 | soup
inspect dense.onnx --kernel k0 --graph | 2 | --graph
inspect dense.onnx --target cuda | 1 | cuda
inspect dense.onnx --onnx no/graph.onnx | 1 | there is no folder 'no'
inspect dense.tw --graph | 1 | inspect the model file
inspect dense.tw --kernel k0 --stage llvm | 1 | inspect the model file
inspect dense.tw --kernel k99 | 1 | kernels: k0_
inspect dense.tw --onnx graph.onnx | 1 | it is compiled
inspect dense.tw --target cuda | 1 | it is compiled
opt nowhere.txt | 1 | nowhere.txt
opt photos | 1 | photos
opt small.png | 1 | small.png
opt none.txt | 1 | a function is wanted
opt scale.txt -p paint | 1 | there is no such step
opt scale.txt -p 'split(q, 2)' | 1 | there is no loop 'q'
opt scale.txt -p 'split(i, 0)' | 1 | cannot split loop 'i' by 0
opt scale.txt -p 'split(i,' | 1 | cannot read the step
opt scale.txt -p 'split()' | 1 | cannot apply 'split'
opt scale.txt -p 'emit, simplify' | 1 | code is the end
opt scale.txt --target nowhere | 1 | nowhere
demo --threads 0 | 2 | '--threads'
machine --calibrate --forget | 2 | --calibrate
targets cpu | 2 | cpu
knobs --colour | 2 | --colour
"""


def lines(table):
    rows = [line for line in table.strip().split("\n") if line and not line.startswith("#")]
    return [tuple(part.strip() for part in line.split(" | ")) for line in rows]


@pytest.mark.parametrize(("words", "status", "message"), lines(COMMANDS))
def test_a_command(words, status, message, command):
    got, printed, errors = command(*shlex.split(words))
    assert got == int(status), errors
    assert message in errors and "Traceback" not in errors
    assert not printed
    if got == 1:
        assert errors.startswith("error: ") and errors.count("error: ") == 1
        assert "\n  " in errors, "it does not say what to do"
    else:
        assert "Usage: tilewright" in errors and "--help" in errors


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("TILEWRIGHT_THREADS", "none"),
        ("TILEWRIGHT_THREADS", "0"),
        ("TILEWRIGHT_VERIFY", "perhaps"),
        ("TILEWRIGHT_CACHE_MB", "-4"),
        ("TILEWRIGHT_PRINT", "flatten"),
        ("TILEWRIGHT_PRINT", "after:flaten"),
        ("TILEWRIGHT_DUMP", "dense.onnx"),
        ("TILEWRIGHT_WINOGRAD", "often"),
    ],
)
def test_a_knob(knob, value, command, monkeypatch):
    monkeypatch.setenv(knob, value)
    status, printed, errors = command("run", "photo.onnx")
    assert (status, printed) == (1, "") and value.rpartition(":")[2] in errors
    assert "\n  " in errors
    assert errors.startswith("error: ") and "Traceback" not in errors


# ---- Python -------------------------------------------------------------------------------------

CALLS = """
tw.compile('nowhere.onnx') | there is no such file
tw.compile('photos') | it is a folder
tw.compile('dense.tw') | it is compiled already
tw.compile('text.onnx') | text.onnx
tw.compile(None) | NoneType
tw.compile(3) | int
tw.compile('dense.onnx', 'riscv9') | riscv9
tw.compile('dense.onnx', []) | the list names no machine
tw.compile('dense.onnx', 3) | int
tw.compile('dense.onnx', threads=0) | threads=0
tw.compile('dense.onnx', threads='two') | threads='two'
tw.compile('dense.onnx', threads=1.5) | threads=1.5
tw.compile('dense.onnx', threads=True) | threads=True
tw.compile('dense.onnx', opt_level=7) | opt_level=7
tw.compile('dense.onnx', opt_level='high') | opt_level='high'
tw.compile('dense.onnx', shapes=3) | shapes=3
tw.compile('dense.onnx', shapes={'n': 'many'}) | 'n'
tw.compile('dense.onnx', shapes={'m': 4}) | 'm'
tw.compile('dense.onnx', shapes={'x': (2, 8, 1)}) | the input has 2 axes
tw.compile('dense.onnx', shapes={'x': (2, 9)}) | 9
tw.compile('open.onnx', shapes={'n': -1}) | -1
tw.compile('open.onnx', shapes={'n': 1.5}) | 1.5
tw.compile('dense.onnx', dynamic_shapes={}) | dynamic_shapes
tw.compile('dense.onnx', None) | NoneType
tw.compile('dense.onnx', ['cpu', 3]) | int
tw.compile('dense.onnx', 'cpu -mcpu') | -key=value
tw.compile('open.onnx', shapes={'n': 2**70}) | cannot be 1180591620717411303424
tw.build(3) | neither a function nor a Schedule
tw.Schedule(3) | te.func(
tw.Schedule('matmul') | it is no function of the loop IR
tw.Schedule(None) | cannot schedule a NoneType
tw.build('dense.onnx') | tw.compile takes models
tw.load(None) | NoneType
tw.load(3) | int
tw.load('nowhere.tw') | nowhere.tw
tw.load('photos') | photos
tw.load('text.tw') | text.tw
tw.load('cut.tw') | cut.tw
tw.load(b'') | cannot load
tw.load(b'hello') | cannot load
tw.load(np.zeros(9)) | cannot load
tw.load('dense.tw', threads=0) | threads is 0
tw.load('dense.tw', verify='key.pem') | key
tw.load('dense.tw')() | expected 1
tw.load('dense.tw')(1, 2) | expected 1
tw.load('dense.tw')(z=1) | 'z'
tw.load('dense.tw')(np.zeros((2, 9), np.float32)) | expected 8
tw.load('dense.tw')(np.zeros((2, 8))) | float64
tw.load('dense.tw')(np.zeros(8, np.float32)) | expected [2, 8]
tw.load('dense.tw')('text') | 'x'
tw.load('dense.tw')(None) | 'x'
tw.load('dense.tw')(object()) | 'x'
tw.load('dense.tw').run_into([], [X]) | expected 1
tw.load('dense.tw').run_into([np.zeros((2, 4), np.float32)], [X]) | expected [2, 5]
tw.load('dense.tw').save('no/folder.tw') | no/folder.tw
tw.load('dense.tw').save('photos') | photos
tw.load('dense.tw').save('') | Is a directory
tw.load('dense.tw').save('/proc/out.tw') | /proc/out.tw
tw.load('dense.tw').save('dense.tw/out.tw') | dense.tw/out.tw
tw.load('dense.tw').save('long' * 100) | longlong
tw.load('dense.tw').save('out.tw', kind='soup') | soup
tw.export('dense.onnx', 'no/folder.tw') | there is no folder 'no'
tw.export('dense.onnx', 'photos') | it is a folder
tw.export('dense.onnx', 'out', 'soup') | soup
tw.export('dense.onnx', 'out', name='digits') | name is for libraries
tw.export('dense.onnx', 'out', 'static', sign='key.pem') | only artifacts are signed
tw.export('dense.onnx', 'dense.tw/out', 'c-array') | dense.tw
tw.export('dense.onnx', 'out.tw', target='cuda') | cuda
tw.load('dense.tw').profile(np.zeros((2, 9), np.float32)) | expected 8
tw.load('dense.tw').profile(X, seconds=0.01).save_trace('no/trace.json') | no/trace.json
"""


@pytest.mark.parametrize(("code", "message"), lines(CALLS))
def test_a_call(code, message):
    with pytest.raises((UserFault, TypeError, ValueError)) as caught:
        eval(code, {"tw": tw, "np": np, "X": np.zeros((2, 8), np.float32)})
    fault, told = caught.value, str(caught.value)
    assert message in told and "Traceback" not in told
    if isinstance(fault, UserFault):
        assert fault.remedy, "it does not say what to do"


# ---- Ctrl-C -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("tilewright.driver.compile.compile_file", "compile dense.onnx -o out.tw"),
        ("tilewright.driver.compile.compile_observed", "run dense.onnx"),
        ("tilewright.runtime.executor.Executable.__call__", "run dense.tw -o out"),
        ("tilewright.driver.bench.measure", "bench dense.tw --against none"),
        ("tilewright.driver.inspection.look", "inspect dense.onnx"),
        ("tilewright.driver.report.tables.knobs_table", "knobs"),
    ],
)
def test_an_interrupt(where, words, command, monkeypatch):
    def interrupted(*args, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    status, printed, errors = command(*shlex.split(words))
    assert (status, printed) == (130, "")
    assert errors == "interrupted: what was not finished is not kept\n"
    assert not Path("out.tw").exists()


def test_an_interrupt_of_the_whole_group(folder):
    """As a terminal sends it, while workers measure."""
    words = "bench dense.onnx --against none --seconds 60"
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", *shlex.split(words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell ignores it for what runs in the background, as these tests may
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "TILEWRIGHT_TIME": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stderr
    for line in process.stderr:  # until it is compiled
        if line.startswith("total"):
            break
    time.sleep(0.1)
    for _ in range(10):  # Python loses one that comes while it collects, which nobody waits out
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
            break
    told = process.stderr.read()
    assert process.wait(30) in (130, -signal.SIGINT)
    assert told.strip() == "interrupted: what was not finished is not kept"
    assert process.stdout and not process.stdout.read()


def test_there_are_many():
    assert len(lines(COMMANDS)) + len(lines(CALLS)) >= 120
