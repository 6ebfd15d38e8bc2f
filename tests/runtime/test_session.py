"""Sessions: threads, symbolic dimensions, arenas, and what happens when several run at once."""

import ctypes
import os
import threading

import numpy as np
import pytest

from tests.runtime.images import program, scale_program, symbolic_program
from tilewright.runtime import abi
from tilewright.runtime.bindings import lib
from tilewright.support.errors import TilewrightError

T = abi.TensorInfo


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_any_number_of_threads_gives_the_same(threads, loaded):
    x = np.random.default_rng(0).random(100_000, np.float32)
    exe = loaded(symbolic_program(), threads)
    assert exe.threads == threads
    for n in (1, 63, 64, 65, 1000, 100_000):
        for _ in range(20):
            np.testing.assert_array_equal(exe(x[:n])[0], 2 * x[:n] + 3)


# Each iteration adds one to its own cell: what runs twice or never shows.
COUNT = """
static void touch(void *const *frame, void *scratch, int64_t begin, int64_t end) {
    int32_t *cells = frame[0];
    for (int64_t i = begin; i < end; i++) cells[i]++;
}
EXPORT int32_t run(tw_call *c) {
    int64_t n = *(const int64_t *)c->inputs[0], rounds = *(const int64_t *)c->inputs[1];
    int32_t *cells = c->outputs[0];
    for (int64_t i = 0; i < 4096; i++) cells[i] = 0;
    void *frame[] = {cells};
    for (int64_t i = 0; i < rounds; i++) c->launch(c, 0, touch, frame, n, 0);
    return 0;
}
"""


def counter():
    return program(
        COUNT, (T("n", "i64", ()), T("rounds", "i64", ())), (T("cells", "i32", (4096,)),)
    )


@pytest.mark.parametrize("threads", [2, 4])
def test_every_iteration_of_every_region_runs_once(threads, loaded):
    exe = loaded(counter(), threads)
    for n in (0, 1, 2, 3, 16, 17, 100, 4096):
        rounds = 3000 if n < 200 else 200
        (cells,) = exe(np.int64(n), np.int64(rounds))
        np.testing.assert_array_equal(cells[:n], np.full(n, rounds))
        assert not cells[n:].any()


# Two iterations meet, so each is on a thread of its own; the worker's then takes its time.
SLOW_WORKER = """
static void whose(void *const *frame, void *scratch, int64_t begin, int64_t end) {
    *(void **)frame[0] = scratch;
}
static void meet(void *const *frame, void *scratch, int64_t begin, int64_t end) {
    volatile int32_t *flags = frame[0];
    for (int64_t i = begin; i < end; i++) {
        flags[i] = 1;
        while (!flags[!i]) {}
        if (scratch == *(void **)frame[1]) continue;
        for (volatile int32_t turn = 0; turn < 2000000; turn++) {}
        flags[2] = 1;
    }
}
EXPORT int32_t run(tw_call *c) {
    int32_t *flags = (int32_t *)c->arena, *late = c->outputs[0];
    flags[0] = flags[1] = flags[2] = 0;
    void *caller = 0, *first[] = {&caller}, *frame[] = {flags, &caller};
    c->launch(c, 0, whose, first, 1, 0);
    c->launch(c, 0, meet, frame, 2, 0);
    *late = !flags[2];
    return 0;
}
"""


def test_a_region_ends_when_its_last_worker_is_done(loaded):
    exe = loaded(
        program(SLOW_WORKER, (), (T("late", "i32", ()),), arena_bytes=64, scratch_bytes=64),
        2,
    )
    assert [int(exe()[0]) for _ in range(5)] == [0] * 5


def test_what_is_alone_runs_on_the_callers_thread(loaded):
    text = """
static void whose(void *const *frame, void *scratch, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) ((void **)frame[0])[i] = scratch;
}
EXPORT int32_t run(tw_call *c) {
    void **threads = (void **)c->arena, *frame[] = {threads};
    int64_t *others = c->outputs[0];
    c->launch(c, 0, whose, frame, 5000, 1);
    *others = 0;
    for (int64_t i = 0; i < 5000; i++) *others += threads[i] != threads[0];
    return 0;
}
"""
    exe = loaded(
        program(text, (), (T("others", "i64", ()),), arena_bytes=40064, scratch_bytes=64), 3
    )
    assert [int(exe()[0]) for _ in range(5)] == [0] * 5


def test_sleeping_workers_are_woken(loaded):
    import time

    exe = loaded(counter(), 3)
    for _ in range(20):
        time.sleep(0.002)  # longer than workers spin
        assert exe(np.int64(500), np.int64(3))[0][:500].tolist() == [3] * 500


def test_symbols_must_agree(loaded):
    exe = loaded(
        program(
            "EXPORT int32_t run(tw_call *c) { *(int64_t *)c->outputs[0] = c->dims[0] * 100 + "
            "c->dims[1]; return 0; }",
            (T("a", "f32", ("n", "m")), T("b", "f32", ("m", "n"))),
            (T("y", "i64", ()),),
            symbols=(abi.Symbol("n", 0, 50), abi.Symbol("m", 0, 50)),
            name="pair",
        )
    )
    f = np.float32
    assert exe(np.zeros((3, 5), f), np.zeros((5, 3), f))[0] == 305
    assert exe(np.zeros((0, 5), f), np.zeros((5, 0), f))[0] == 5
    with pytest.raises(TilewrightError, match=r"input 1 'b': dimension 0 is 4, expected 5 = m"):
        exe(np.zeros((3, 5), f), np.zeros((4, 3), f))
    with pytest.raises(TilewrightError, match=r"dimension 1 is 51, expected m from 0 to 50"):
        exe(np.zeros((3, 51), f), np.zeros((51, 3), f))
    assert exe(np.zeros((3, 5), f), np.zeros((5, 3), f))[0] == 305


def test_symbols_are_solved_from_their_multiples(loaded):
    exe = loaded(
        program(
            "EXPORT int32_t run(tw_call *c) { *(int64_t *)c->outputs[0] = c->dims[0] * 100 + "
            "c->dims[1]; return 0; }",
            (T("a", "f32", ("n * 4 + 1", "m * 2")), T("b", "f32", ("m", "n - 1"))),
            (T("y", "i64", ()),),
            symbols=(abi.Symbol("n", 2, 9), abi.Symbol("m", 0, 50)),
        )
    )

    def run(a, b):
        return int(exe(np.zeros(a, np.float32), np.zeros(b, np.float32))[0])

    assert run((13, 10), (5, 2)) == 305
    assert run((9, 0), (0, 1)) == 200
    for a, b, why in (
        (
            (14, 10),
            (5, 2),
            r"input 0 'a': dimension 0 is 14, expected n \* 4 \+ 1 with n from 2 to 9",
        ),
        ((13, 11), (5, 2), r"input 0 'a': dimension 1 is 11, expected 10 = m \* 2"),
        ((37, 10), (5, 9), r"input 1 'b': dimension 1 is 9, expected 8 = n - 1"),
        ((41, 10), (5, 9), r"dimension 0 is 41, expected n \* 4 \+ 1 with n from 2 to 9"),
        ((13, 102), (51, 2), r"input 1 'b': dimension 0 is 51, expected m from 0 to 50"),
        ((0, 10), (5, 2), r"dimension 0 is 0, expected"),
    ):
        with pytest.raises(TilewrightError, match=why):
            run(a, b)
    assert run((13, 10), (5, 2)) == 305


def test_output_shapes_follow_symbols(loaded):
    exe = loaded(
        program(
            "EXPORT int32_t run(tw_call *c) { float *y = c->outputs[0];"
            "for (int64_t i = 0; i < 2 * c->dims[0] * 3; i++) y[i] = i; return 0; }"
            "EXPORT int32_t shapes(const int64_t *d, int64_t *s, int64_t *a)"
            "{ s[0] = 2 * d[0]; s[1] = 3; s[2] = d[0]; *a = 0; return d[0] == 13 ? 7 : 0; }",
            (T("x", "i8", ("n",)),),
            (T("y", "f32", ("n * 2", 3)), T("z", "i8", ("n",))),
            symbols=(abi.Symbol("n"),),
        )
    )
    for n in (1, 4, 1, 9):
        y, z = exe(np.zeros(n, np.int8))
        assert y.shape == (2 * n, 3) and z.shape == (n,)
        np.testing.assert_array_equal(y.ravel(), np.arange(6 * n))
    with pytest.raises(TilewrightError, match=r"the model refuses these dimensions \(code 7\)"):
        exe(np.zeros(13, np.int8))


def test_arena_grows_and_stays(loaded):
    exe = loaded(symbolic_program())
    sizes = []
    for n in (10, 1000, 10, 2_000_000 // 2, 10):
        exe(np.zeros(n, np.float32))
        sizes.append(exe.arena_bytes)
    assert sizes == [40, 4000, 4000, 4_000_000, 4_000_000]


def test_a_fault_of_the_program_is_reported(loaded):
    exe = loaded(program("EXPORT int32_t run(tw_call *c) { return 42; }", (), ()))
    with pytest.raises(TilewrightError, match="the model's program stopped with code 42"):
        exe()


def test_alignment_of_what_compiled_code_gets(loaded):
    exe = loaded(
        program(
            "static void k(void *const *f, void *scratch, int64_t b, int64_t e)"
            "{ ((int64_t *)f[0])[1] = (int64_t)scratch % 64; }"
            "EXPORT int32_t run(tw_call *c) { int64_t *y = c->outputs[0]; void *f[] = {y};"
            "y[0] = (int64_t)c->arena % 64; y[2] = (int64_t)c->weights % 64;"
            "c->launch(c, 0, k, f, 1, 0); return 0; }",
            (),
            (T("y", "i64", (3,)),),
            weights=(np.ones(3, np.float32),),
            arena_bytes=100,
            scratch_bytes=100,
        )
    )
    assert exe()[0].tolist() == [0, 0, 0]


def test_impossible_memory_is_an_error(loaded):
    with pytest.raises(TilewrightError, match="out of memory: the model needs"):
        loaded(program("EXPORT int32_t run(tw_call *c) { return 0; }", (), (), arena_bytes=2**43))


# ---- Several at once --------------------------------------------------------------------------


def in_threads(count, work):
    failures = []

    def guarded(i):
        try:
            work(i)
        except BaseException as fault:
            failures.append(fault)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_two_executables_run_side_by_side(loaded):
    exes = [loaded(scale_program(20_000), 2) for _ in range(3)]

    def work(i):
        x = np.full(20_000, i, np.float32)
        for _ in range(100):
            np.testing.assert_array_equal(exes[i](x)[0], 2 * x + 3)

    in_threads(3, work)


def test_callers_of_one_executable_take_turns(loaded):
    exe = loaded(scale_program(20_000), 2)

    def work(i):
        x = np.full(20_000, i, np.float32)
        for _ in range(50):
            np.testing.assert_array_equal(exe(x)[0], 2 * x + 3)

    in_threads(4, work)


def test_a_session_in_use_is_refused(loaded):
    """Beneath the executable's lock: a kernel that waits, and a second run of its session."""
    exe = loaded(
        program(
            "EXPORT int32_t run(tw_call *c) { volatile int32_t *flag = c->outputs[0];"
            "flag[0] = 1; while (!flag[1]) {} return 0; }",
            (),
            (T("flag", "i32", (2,)),),
        )
    )
    flag = np.zeros(2, np.int32)
    runner = threading.Thread(target=exe.run_into, args=([flag], []))
    runner.start()
    while not flag[0]:
        pass
    status = lib.tw_run(exe._session, exe._inputs.address, exe._outputs.address)
    text = lib.tw_error()
    flag[1] = 1
    runner.join()
    assert status == 5 and b"in use by another thread" in text


def test_a_forked_child_can_run_and_end(loaded):
    exe = loaded(scale_program(20_000), 3)
    x = np.ones(20_000, np.float32)
    exe(x)
    child = os.fork()
    if not child:
        good = (exe(x)[0] == 5).all()
        lib.tw_session_destroy(exe._session)
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(exe(x)[0], 2 * x + 3)


def test_session_outlives_its_module(loaded):
    exe = loaded(scale_program())
    memory = exe._module.memory
    address, size = memory.ctypes.data, memory.nbytes
    module = lib.tw_module_open_memory(address, size)
    session = lib.tw_session_create(module, 2)
    lib.tw_module_close(module)
    x = np.zeros(1000, np.float32)
    (y,) = exe(x)
    y[:] = 0  # the tables of `exe` still point to x and y
    assert lib.tw_run(session, exe._inputs.address, exe._outputs.address) == 0
    lib.tw_session_destroy(session)
    np.testing.assert_array_equal(y, np.full(1000, 3))


def test_null_data_is_refused(loaded):
    exe = loaded(scale_program())
    exe(np.zeros(1000, np.float32))
    for table, what in ((exe._inputs, b"input 0 'x'"), (exe._outputs, b"output 0 'y'")):
        kept, table.words[0] = table.words[0], 0
        assert lib.tw_run(exe._session, exe._inputs.address, exe._outputs.address) == 4
        assert lib.tw_error() == what + b": its data is NULL"
        table.words[0] = kept


def test_code_is_never_writable_and_executable(loaded, tmp_path):
    before = writable_code()
    exe = loaded(scale_program())
    kept = exe.save(tmp_path / "m.tw")
    from tilewright.runtime.executor import load

    mapped = load(kept, threads=1)
    mapped(np.zeros(1000, np.float32))
    after = writable_code()
    with open("/proc/self/maps") as file:
        assert not any(str(kept) in line for line in file)  # nobody can write to what runs
    assert after <= before  # other libraries of this process may have some


def writable_code() -> set[str]:
    """The lines of this process's memory map that are both writable and executable."""
    with open("/proc/self/maps") as file:
        return {line.split()[0] for line in file if " rwx" in line}


def test_abi_mirror_has_the_layout_of_the_header():
    assert ctypes.sizeof(abi.Tensor) == 24 and abi.Tensor.dtype.offset == 20
    assert ctypes.sizeof(abi.Info) == 24 and abi.Info.rank.offset == 16
    assert ctypes.sizeof(abi.Hash) == 136
