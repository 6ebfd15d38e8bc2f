"""The engines under comparison: each turns a model of the zoo into a call, arrays in, arrays out.

An engine is a function `load(model, threads) -> call`; it imports its package inside, because every
engine lives in a worker process of its own (and may live in a virtual environment of its own). To
add one: write the function, name it in ENGINES with the package whose presence decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from benchmarks.subject import Arrays, Call, Subject


def tilewright(subject: Subject, threads: int) -> Call:
    import tilewright as tw

    run = tw.compile(str(subject.path), threads=threads, cache=False)
    return lambda arrays: run(*arrays)


def tuned(subject: Subject, threads: int) -> Call:
    """By the schedules that `python -m benchmarks --tuning` recorded before."""
    import tilewright as tw

    run = tw.compile(str(subject.path), threads=threads, cache=False, database=True)
    return lambda arrays: run(*arrays)


def onnxruntime(subject: Subject, threads: int) -> Call:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(subject.path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def openvino(subject: Subject, threads: int) -> Call:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # the CPU's default may be bf16
    }
    compiled = openvino.Core().compile_model(subject.path, "CPU", settings)
    request = compiled.create_infer_request()
    outputs = list(range(len(compiled.outputs)))

    def call(arrays: Arrays) -> Arrays:
        found = request.infer(arrays, share_inputs=True, share_outputs=True)
        return [found[k] for k in outputs]

    return call


def torch(subject: Subject, threads: int, compiled: bool = False) -> Call:
    import torch

    from tests import zoo

    torch.set_num_threads(threads)
    module = zoo.model(subject.name, subject.batch).module
    if module is None:
        raise LookupError("the model is a file: there is no torch module of it")
    if compiled:
        module = torch.compile(module)

    def call(arrays: Arrays) -> Arrays:
        with torch.inference_mode():
            return [x.numpy() for x in module(*map(torch.from_numpy, arrays))]

    return call


def inductor(subject: Subject, threads: int) -> Call:
    return torch(subject, threads, compiled=True)


def compiler(name: str) -> Callable[[Subject, int], Call]:
    """One of `benchmarks.compilers`, imported when it loads a model: others' processes need not."""
    return lambda subject, threads: getattr(import_module("benchmarks.compilers"), name)(
        subject, threads
    )


@dataclass(frozen=True)
class Engine:
    """An engine's loader, the package it needs and the distribution that has it."""

    load: Callable[[Subject, int], Call]
    package: str
    distribution: str = ""

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package) is not None

    @property
    def version(self) -> str:
        from importlib import metadata  # a tenth of what Python and NumPy take to start

        return metadata.version(self.distribution or self.package)


OURS, TUNED = "tilewright", "tuned"
REFERENCE = "onnxruntime"
ENGINES = {
    OURS: Engine(tilewright, "tilewright"),
    TUNED: Engine(tuned, "tilewright"),
    REFERENCE: Engine(onnxruntime, "onnxruntime"),
    "openvino": Engine(openvino, "openvino"),
    "torch": Engine(torch, "torch"),
    "inductor": Engine(inductor, "torch"),
    "ncnn": Engine(compiler("ncnn"), "ncnn"),
    "mnn": Engine(compiler("mnn"), "MNN"),
    "iree": Engine(compiler("iree"), "iree", "iree-base-compiler"),
    "tvm": Engine(compiler("tvm"), "tvm", "apache-tvm"),
    "xla": Engine(compiler("xla"), "torchax", "jaxlib"),
}
