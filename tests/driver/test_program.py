"""The host program is compiled beside Python's work; what fails there fails the compilation."""

import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright.driver import program
from tilewright.graph.builder import Builder
from tilewright.graph.graph import Graph
from tilewright.support.errors import InternalFault


def doubled() -> Graph:
    build = Builder("doubled")
    x = build.input("x", "f32", (4, 8))
    return build.finish([build.emit("add", x, x)])


def test_the_host_program_is_compiled_in_another_thread(monkeypatch) -> None:
    threads, real = [], program.compile_object

    def seen(*args, **options):
        threads.append(threading.get_ident())
        return real(*args, **options)

    monkeypatch.setattr(program, "compile_object", seen)
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    np.testing.assert_array_equal(tw.compile(doubled(), threads=1)(x)[0], 2 * x)
    assert len(threads) == 1 and threads[0] != threading.get_ident()


def test_a_fault_there_is_raised_here(monkeypatch) -> None:
    def refuse(*_, **__):
        raise InternalFault("no code today")

    monkeypatch.setattr(program, "compile_object", refuse)
    with pytest.raises(InternalFault, match="no code today"):
        tw.compile(doubled(), threads=1)
