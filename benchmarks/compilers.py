"""Engines that first turn the model into a format or a program of their own: MNN, ncnn, IREE, TVM,
XLA.

Each converts the ONNX file in a folder that lives as long as the process; XLA, which reads none,
takes the torch module through JAX. They live best in a virtual environment of their own, whose
interpreter `--python mnn=PATH` gives:

    pip install numpy ncnn MNN "iree-base-compiler[onnx]" iree-base-runtime apache-tvm
    pip install jax torch transformers onnx onnxscript
    pip install --no-deps pnnx torchax
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.subject import Arrays, Call, Subject

_kept: list[tempfile.TemporaryDirectory[str]] = []


def folder() -> Path:
    """A new folder that is removed with the process."""
    _kept.append(tempfile.TemporaryDirectory())
    return Path(_kept[-1].name)


def mnn(subject: Subject, threads: int) -> Call:
    package, converter = import_module("MNN"), import_module("_tools")  # which the package brings
    file = str(folder() / "model.mnn")
    files = ["--modelFile", str(subject.path), "--MNNModel", file]
    converter.mnnconvert(["", "-f", "ONNX", *files, "--bizCode", "-"])
    net = package.Interpreter(file)
    session = net.createSession({"backend": "CPU", "numThread": threads, "precision": "high"})
    inputs, layout = net.getSessionInputAll(session), package.Tensor_DimensionType_Caffe
    kinds = {"float32": package.Halide_Type_Float, "int32": package.Halide_Type_Int}
    names = input_names(subject.path)

    def call(arrays: Arrays) -> Arrays:
        for name, array in zip(names, arrays, strict=True):
            array = array.astype(np.int32) if array.dtype == np.int64 else array
            given = package.Tensor(array.shape, kinds[array.dtype.name], array, layout)
            inputs[name].copyFromHostTensor(given)
        net.runSession(session)
        found = []
        for tensor in net.getSessionOutputAll(session).values():
            zeros = np.zeros(tensor.getShape(), np.float32)
            copy = package.Tensor(zeros.shape, kinds["float32"], zeros, layout)
            tensor.copyToHostTensor(copy)
            found.append(np.array(copy.getNumpyData()).reshape(zeros.shape))
        return found

    return call


def ncnn(subject: Subject, threads: int) -> Call:
    package, directory = import_module("ncnn"), folder()
    model = directory / "model.onnx"
    model.symlink_to(subject.path.resolve())
    spec = find_spec("pnnx")
    assert spec is not None and spec.origin is not None, "it needs the package pnnx"
    converter = Path(spec.origin).parent / "pnnx"
    command = [str(converter), str(model), "fp16=0", "optlevel=2"]
    subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL)
    net = package.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    net.load_param(str(directory / "model.ncnn.param"))
    net.load_model(str(directory / "model.ncnn.bin"))
    inputs, outputs = net.input_names(), net.output_names()

    def call(arrays: Arrays) -> Arrays:
        run = net.create_extractor()
        for name, array in zip(inputs, arrays, strict=True):
            run.input(name, package.Mat(array[0]))  # it knows no batches
        return [np.array(run.extract(name)[1])[None] for name in outputs]

    return call


def iree(subject: Subject, threads: int) -> Call:
    compiler, runtime = import_module("iree.compiler"), import_module("iree.runtime")
    directory = folder()
    imported = str(directory / "model.mlir")
    importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(subject.path)]
    subprocess.run([*importer, "--opset-version", "17", "-o", imported], check=True)
    options = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling"]
    program = compiler.compile_file(imported, target_backends=["llvm-cpu"], extra_args=options)
    if threads > 1:
        runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = runtime.Config("local-sync" if threads == 1 else "local-task")
    module = runtime.load_vm_module(
        runtime.VmModule.copy_buffer(config.vm_instance, program), config
    )
    names = module.vm_module.function_names
    (name,) = [n for n in names if not n.startswith("__") and "$" not in n]

    def call(arrays: Arrays) -> Arrays:
        found = module[name](*arrays)
        return [np.asarray(x) for x in (found if isinstance(found, list | tuple) else [found])]

    return call


def tvm(subject: Subject, threads: int) -> Call:
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import onnx

    package, relax = import_module("tvm"), import_module("tvm.relax")
    from_onnx = import_module("tvm.relax.frontend.onnx").from_onnx
    module = from_onnx(onnx.load(subject.path), keep_params_in_input=False)
    cpu = package.target.codegen.llvm_get_system_cpu()
    target = package.target.Target({"kind": "llvm", "mcpu": cpu})
    machine = relax.VirtualMachine(package.compile(module, target=target), package.cpu())

    def call(arrays: Arrays) -> Arrays:
        found = machine["main"](*[package.runtime.tensor(x) for x in arrays])
        found = [found] if hasattr(found, "numpy") else list(found)
        return [x.numpy() for x in found]

    return call


def xla(subject: Subject, threads: int) -> Call:
    from tests import zoo

    os.environ |= {"NPROC": str(threads), "JAX_PLATFORMS": "cpu"}
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # its pools look there
    module = zoo.model(subject.name, subject.batch).module
    if module is None:
        raise LookupError("the model is a file: there is no torch module of it")
    with overloads_of_named_tensors():
        weights, function = import_module("torchax").extract_jax(module.eval())
    run = import_module("jax").jit(function)

    def call(arrays: Arrays) -> Arrays:
        return [np.asarray(x) for x in run(weights, tuple(arrays))]

    return call


@contextmanager
def overloads_of_named_tensors() -> Iterator[None]:
    """torchax 0.0.13 asks for overloads that torch 2.13 no longer has; it gets others meanwhile."""
    packet: Any = import_module("torch._ops").OpOverloadPacket
    original = packet.__getattr__

    def lenient(operator: Any, name: str) -> Any:
        named = "dimname" in name.lower() or "names" in name
        return original(operator, operator.overloads()[0] if named else name)

    packet.__getattr__ = lenient
    try:
        yield
    finally:
        packet.__getattr__ = original


def input_names(path: Path) -> list[str]:
    """The model's inputs in order, without its weights."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    fixed = {x.name for x in graph.initializer}
    return [x.name for x in graph.input if x.name not in fixed]
