"""The host program is compiled beside Python's work; what fails there fails the compilation."""

import threading

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import native
from tilewright.codegen.llvm_compile import compile_object
from tilewright.driver import program
from tilewright.graph.builder import Builder
from tilewright.graph.graph import Graph
from tilewright.ir.expr import Var, as_int
from tilewright.support.errors import InternalFault


def doubled() -> Graph:
    build = Builder("doubled")
    x = build.input("x", "f32", (4, 8))
    return build.finish([build.emit("add", x, x)])


def test_the_host_program_is_compiled_in_another_thread(monkeypatch) -> None:
    threads, real = [], compile_object

    def seen(*args, **options):
        threads.append(threading.get_ident())
        return real(*args, **options)

    native(monkeypatch, program, compile_object=seen)
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    np.testing.assert_array_equal(tw.compile(doubled(), threads=1)(x)[0], 2 * x)
    assert len(threads) == 1 and threads[0] != threading.get_ident()


def test_a_fault_there_is_raised_here(monkeypatch) -> None:
    def refuse(*_, **__):
        raise InternalFault("no code today")

    native(monkeypatch, program, compile_object=refuse)
    with pytest.raises(InternalFault, match="no code today"):
        tw.compile(doubled(), threads=1)


@pytest.mark.parametrize(("rows", "asked"), [(Var("rows"), True), (48, False)])
def test_the_run_is_asked_however_many_chunks_there_are(monkeypatch, rows, asked) -> None:
    """64 channels are 64 iterations, of open images of any size: those of small ones are not worth
    threads. Of known sizes the strategy has decided."""
    steps, real = [], program.host_program

    def seen(given, *args, **options):
        steps.extend(given)
        return real(given, *args, **options)

    monkeypatch.setattr(program, "host_program", seen)
    build = Builder("channels")
    x = build.input("x", "f32", (1, 64, rows, 64))
    tw.compile(build.finish([build.emit("softmax", x, axis=3)]), threads=2, cache=False)
    (launch,) = steps
    assert as_int(launch.extent) == 64
    assert (as_int(launch.spare) is None) == asked
