"""The languages of the C family, as tables.

In: nothing. Out: a `Dialect` for each: how types, memory, threads and functions are written.
The emitter asks the table and never the name of the language.
"""

from __future__ import annotations

from dataclasses import field

from tilewright.ir.dtype import DType
from tilewright.support.record import record


@record
class Dialect:
    """One language. `types`: of f64, f32 and the whole numbers by IR name."""

    name: str
    types: dict[str, str]
    preamble: str
    suffix: dict[str, str]  # of a whole number's literal, by dtype
    single: str  # what a function of libm's name ends in for f32
    pointers: dict[str, str]  # memory scope → qualifier
    barriers: dict[str, str]  # "barrier.shared" → statement
    threads: dict[str, str] | None  # "blockIdx" → the expression of an index; None: no threads
    unroll: str  # the line before an unrolled loop
    reinterpret: dict[str, str] = field(default_factory=dict[str, str])  # dtype → function
    functions: frozenset[str] = frozenset()  # mathematical functions by IR name; others we define
    reserved: frozenset[str] = frozenset()

    def register(self, dtype: DType) -> str:
        """The type of a value: small floats are f32, packed numbers bytes, bool is int."""
        if dtype.is_float:
            return self.types["f64" if dtype.bits == 64 else "f32"]
        if dtype.is_bool:
            return "int"
        return self.types[f"{'i' if dtype.is_signed else 'u'}{max(8, dtype.bits)}"]

    def memory(self, dtype: DType) -> str:
        """The type of an element in memory; of the byte that holds it, for packed dtypes."""
        if dtype.is_float and dtype.bits >= 32:
            return self.types[dtype.name]
        if dtype.is_int and dtype.bits >= 8:
            return self.types[dtype.name]
        return self.types[f"u{max(8, dtype.bits)}"]


LIBM = frozenset(
    """exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf
    pow atan2 fmod""".split()
)
_KEYWORDS = """auto break case char const continue default do double else enum extern float for goto
    if inline int long register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while bool true false""".split()
_USED = "floor ceil rint trunc sqrt fabs fma isnan isinf INFINITY NAN".split()

OPENCL = Dialect(
    name="OpenCL C",
    types={
        "f64": "double", "f32": "float",
        "i64": "long", "i32": "int", "i16": "short", "i8": "char",
        "u64": "ulong", "u32": "uint", "u16": "ushort", "u8": "uchar",
    },
    preamble="",
    suffix={"i64": "L", "u64": "UL", "u32": "U"},
    single="",
    pointers={"global": "__global ", "shared": "__local ", "local": ""},
    barriers={
        "barrier.shared": "barrier(CLK_LOCAL_MEM_FENCE);",
        "barrier.global": "barrier(CLK_GLOBAL_MEM_FENCE);",
    },
    threads={"blockIdx": "get_group_id({})", "threadIdx": "get_local_id({})"},
    unroll="#pragma unroll",
    reinterpret={d: f"as_{t}" for d, t in (
        ("f64", "double"), ("f32", "float"), ("i64", "long"), ("u64", "ulong"), ("i32", "int"),
        ("u32", "uint"), ("i16", "short"), ("u16", "ushort"), ("i8", "char"), ("u8", "uchar"),
    )},
    functions=LIBM,
    reserved=frozenset([*_KEYWORDS, *_USED, *LIBM, *"""kernel global local constant private half
        quad complex imaginary uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t
        image1d_t image2d_t image3d_t sampler_t pipe read_only write_only read_write barrier
        get_group_id get_local_id generic atomic_int M_PI M_E MAXFLOAT HUGE_VAL""".split()]),
)  # fmt: skip
C99 = Dialect(
    name="C99",
    types={
        "f64": "double", "f32": "float",
        **{f"i{b}": f"int{b}_t" for b in (8, 16, 32, 64)},
        **{f"u{b}": f"uint{b}_t" for b in (8, 16, 32, 64)},
    },
    preamble="#include <math.h>\n#include <stdint.h>\n#include <string.h>\n",
    suffix={"i64": "LL", "u64": "ULL", "u32": "U"},
    single="f",
    pointers={"global": "", "shared": "", "local": ""},
    barriers={"barrier.shared": "", "barrier.global": ""},  # one thread: nothing to wait for
    threads=None,
    unroll="",
    functions=LIBM,
    reserved=frozenset([*_KEYWORDS, *_USED, *LIBM, *(f"{f}f" for f in (*LIBM, *_USED)),
                        *"scratch begin end main memcpy y0 y1 yn j0 j1 jn gamma".split()]),
)  # fmt: skip
