"""The host program: one native function that runs a whole model.

In: steps (`host_steps`: launches of kernels, branches, loops) over locations in memory. Out: LLVM
text with two entries, `tw_main` (a `tw_entry`) and, if sizes are symbolic, `tw_shapes`. The one
idea: all that the compiler knows is in the code; at run time the program only fills frames and
calls `launch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.codegen.bounds import CHUNK, FRAME, bounds_kernel
from tilewright.codegen.host_steps import (
    MOST_SIZE,
    Branch,
    Check,
    Is,
    Launch,
    Location,
    Provide,
    ReadSizes,
    Renew,
    Size,
    Step,
    Together,
    While,
)
from tilewright.codegen.llvm import ATTRIBUTES
from tilewright.codegen.llvm_expressions import Expressions
from tilewright.ir.dtype import DType, i64
from tilewright.ir.expr import Binary, BinaryOp, Expr, Var, as_int, binary, expr
from tilewright.runtime.abi import DTYPE_CODES
from tilewright.target.target import Target

ENTRY, SHAPES = "tw_main", "tw_shapes"
# in tw_call
INPUTS, OUTPUTS, DIMS, ARENA, WEIGHTS, LAUNCH, PROVIDE, REFUSE = 0, 8, 16, 24, 32, 40, 48, 56
# what the program returns; a positive code is the number of a `ReadSizes`, from 1
NO_MEMORY, REFUSED = -1, -2
RANGE = ("ptr", "i64", "i64")  # a kernel's last arguments: scratch, begin, end
NOBODYS = (1 << 31) - 1  # the id of a kernel that the manifest does not list


def host_program(
    steps: Sequence[Step],
    target: Target,
    symbols: Sequence[str] = (),
    shapes: Sequence[Sequence[Size]] | None = None,
    arena_bytes: Size = 0,
    all_symbols: Sequence[str] = (),
    named: Mapping[Var, Expr] | None = None,
) -> str:
    """LLVM text of the host program.

    symbols: the symbolic dimensions that the caller gives, in the order of `tw_call.dims`;
    all_symbols: these and the data-dependent ones. shapes: those of the outputs; where they
    are given, `tw_shapes` is written too. named: variables of the steps and of `arena_bytes` that
    stand for sizes, each in terms of symbols and of earlier ones.
    """
    named = named or {}
    main = _Main(target, symbols)
    for name, size in named.items():
        main.bind_scalar(name.name, main.size(size))
    for step in steps:
        main.step(step)
    lines = [f'target triple = "{target.triple}"']
    lines += [main.kernels[name] for name in sorted(main.kernels)]
    lines += main.own.values()
    body = main.b.text()
    texts = [
        f"define i32 @{ENTRY}(ptr %call) #0 {{\nentry:\n{main.frame()}\n{body}\n  ret i32 0\n}}"
    ]
    declared = set(main.b.declarations)
    if shapes is not None:
        text, more = _shapes(target, all_symbols or symbols, shapes, arena_bytes, named)
        texts.append(text)
        declared |= more
    return "\n".join([*lines, *sorted(declared), *texts, f"attributes #0 = {{ {ATTRIBUTES} }}", ""])


_CHECKED = {BinaryOp.add: "sadd", BinaryOp.sub: "ssub", BinaryOp.mul: "smul"}


class _Sizes(Expressions):
    """Sizes that data decides: their products may be more than any number holds."""

    def checked(self, size: Size) -> tuple[str, str]:
        """A size, and whether (an i1) it or a part of it is beyond i64."""
        flags: dict[str, None] = {}
        value = self._watched(expr(size, i64), flags, {})
        beyond = "false"
        for flag in flags:
            beyond = self.b.pure(f"or i1 {beyond}, {flag}", beyond, flag)
        return value, beyond

    def _watched(self, e: Expr, flags: dict[str, None], known: dict[Expr, str]) -> str:
        if not isinstance(e, Binary):
            return self.index(e).scalar(self.b)
        if e not in known:
            a, b = (self._watched(side, flags, known) for side in (e.a, e.b))
            if e.op in _CHECKED:
                kind = f"llvm.{_CHECKED[e.op]}.with.overflow.i64"
                both = self.b.call("{ i64, i1 }", kind, [("i64", a), ("i64", b)])
                known[e] = self.b.pure(f"extractvalue {{ i64, i1 }} {both}, 0", both)
                flags[self.b.pure(f"extractvalue {{ i64, i1 }} {both}, 1", both)] = None
            else:
                sides = Var(f"checked{a}"), Var(f"checked{b}")
                for var, value in zip(sides, (a, b), strict=True):
                    self.bind_scalar(var.name, value)
                known[e] = self.index(binary(e.op, *sides)).scalar(self.b)
        return known[e]


class _Main(_Sizes):
    """Writes the steps. Bases of the spaces and the sizes are loaded once, at the start."""

    def __init__(self, target: Target, symbols: Sequence[str]) -> None:
        super().__init__(target)
        self.kernels: dict[str, str] = {}  # declarations by symbol
        self.slots = 1
        self.buffers: dict[int, str] = {}  # addresses that were provided
        self.states: dict[int, str] = {}  # addresses of states, as they are now
        self.next: dict[int, str] = {}  # addresses of what a round makes of them
        self.turns: dict[int, str] = {}  # the buffer that it makes each in
        self.sizes: dict[Size, str] = {}  # values of sizes
        self.own: dict[str, str] = {}  # definitions beside this function: by name, their text
        self.texts: dict[bytes, str] = {}  # names of constants that hold texts
        for n, name in enumerate(symbols):
            self.bind_scalar(name, self.field("i64", self.field("ptr", "%call", DIMS), 8 * n))

    def frame(self) -> str:
        """The memory of the largest frame."""
        return f"  %frame = alloca [{self.slots} x i64], align 16"

    def field(self, kind: str, base: str, offset: int) -> str:
        """A constant of the call: loaded where it is first needed, known from there on."""
        at = self.b.pure(f"getelementptr i8, ptr {base}, i64 {offset}", base)
        return self.b.here(f"load {kind}, ptr {at}, align 8")

    def address(self, at: Location) -> str:
        if at.space == "buffer":
            base = self.buffers[at.index]
        elif at.space == "state":
            base = self.states[at.index]
        elif at.space == "next":
            base = self.next[at.index]
        elif at.space in ("input", "output"):
            table = self.field("ptr", "%call", INPUTS if at.space == "input" else OUTPUTS)
            base = self.field("ptr", table, 8 * at.index)
        else:
            base = self.field("ptr", "%call", ARENA if at.space == "arena" else WEIGHTS)
        offset = self.size(at.offset)
        return (
            base
            if offset == "0"
            else self.b.pure(f"getelementptr i8, ptr {base}, i64 {offset}", base, offset)
        )

    def size(self, size: Size) -> str:
        if size.__class__ is int:
            return str(size)
        found = self.sizes.get(size)
        if found is None:
            found = self.index(expr(size, i64)).scalar(self.b)
            if self.b.level_of.get(found, 0) == 0:  # seen from everywhere
                self.sizes[size] = found
        return found

    def step(self, step: Step) -> None:
        if isinstance(step, Launch):
            self.launch(step)
        elif isinstance(step, Together):
            self.together(step)
        elif isinstance(step, Branch):
            self.branch(step)
        elif isinstance(step, ReadSizes):
            self.read_sizes(step)
        elif isinstance(step, Provide):
            self.buffers[step.index] = self.provide(str(step.index), step.nbytes)
        elif isinstance(step, Renew):
            self.next[step.index] = self.provide(self.turns[step.index], step.nbytes)
        elif isinstance(step, While):
            self.while_loop(step)
        elif isinstance(step, Check):
            self.check(step)
        else:
            size, overflows = self.checked(step.size)
            negative = self.b.value(f"icmp slt i64 {size}, 0")
            self.stop_if(self.b.value(f"or i1 {negative}, {overflows}"), step.number + 1)

    def launch(self, step: Launch) -> None:
        self.fill(step, 0)
        self.start(step, self.taker(step), self.size(step.extent))

    def start(self, step: Launch, symbol: str, extent: str) -> None:
        start = self.field("ptr", "%call", LAUNCH)
        kernel = ~step.kernel if step.continues else step.kernel
        passed = f'ptr %call, i32 {kernel}, ptr @"{symbol}", ptr %frame, i64 {extent}'
        self.b.effect(f"call void {start}({passed}, i32 {self.alone(step)})")

    def alone(self, step: Launch) -> str:
        """1 where a kernel has too little to do for a parallel region, else 0."""
        spare = as_int(step.spare)
        if spare is not None:
            return str(int(spare < 0))
        few = self.b.value(f"icmp slt i64 {self.size(step.spare)}, 0")
        return self.b.value(f"zext i1 {few} to i32")

    def fill(self, step: Launch, first: int) -> int:
        """Write a kernel's address and its arguments into the slots from `first` on; gives the slot
        behind them."""
        kinds = ["ptr"] * len(step.buffers) + ["i64"] * len(step.symbols)
        arguments = ", ".join([*kinds, *RANGE])
        self.kernels[step.symbol] = f'declare hidden void @"{step.symbol}"({arguments})'
        buffers = first + 1
        symbols = buffers + len(step.buffers)
        end = symbols + len(step.symbols)
        self.slots = max(self.slots, end)
        self.put("ptr", f'@"{step.symbol}"', first)
        for n, at in enumerate(step.buffers, buffers):
            self.put("ptr", self.address(at), n)
        for n, size in enumerate(step.symbols, symbols):
            self.put("i64", self.size(size), n)
        return end

    def taker(self, step: Launch) -> str:
        """The function that the runtime calls for a kernel."""
        counts = len(step.buffers), len(step.symbols)
        name = "take_{}_{}".format(*counts)
        if name not in self.own:
            self.own[name] = frame_taker(name, *counts)
        return name

    def together(self, step: Together) -> None:
        """One region of as many iterations as there are rows, over a frame that holds all frames,
        each with its kernel's extent behind it."""
        slot, rows = 0, list[list[tuple[str, int, int]]]()
        for row in step.rows:
            rows.append([])
            for launch in row:
                end = self.fill(launch, slot)
                self.slots = max(self.slots, end + 1)
                self.put("i64", self.size(launch.extent), end)
                rows[-1].append((self.taker(launch), slot, end))
                slot = end + 1
        name = f"together{len(self.own)}"
        self.own[name] = rows_kernel(name, rows)
        self.start(step.rows[0][0], name, str(len(rows)))

    def put(self, kind: str, value: str, slot: int) -> None:
        at = self.b.pure(f"getelementptr i8, ptr %frame, i64 {8 * slot}")
        self.b.effect(f"store {kind} {value}, ptr {at}, align 8")

    def read_sizes(self, step: ReadSizes) -> None:
        base = self.address(step.location)
        for n, (at, name) in enumerate(step.symbols):
            source = self.b.pure(f"getelementptr i8, ptr {base}, i64 {8 * n}", base)
            value = self.b.value(f"load i64, ptr {source}, align 8")
            wrong = self.b.value(f"icmp ugt i64 {value}, {MOST_SIZE}")  # negative ones too
            self.stop_if(wrong, step.number + 1)
            if at is not None:
                self.keep(value, at)
            self.bind_scalar(name, value)

    def keep(self, value: str, at: int) -> None:
        """Tell a size among the dims."""
        dims = self.field("ptr", "%call", DIMS)
        goal = self.b.pure(f"getelementptr i8, ptr {dims}, i64 {8 * at}", dims)
        self.b.effect(f"store i64 {value}, ptr {goal}, align 8")

    def check(self, step: Check) -> None:
        name = self.bounds_kernel(step.of)
        self.slots = max(self.slots, len(FRAME))
        address, count = self.address(step.location), self.size(step.count)
        least, most = self.size(step.least), self.size(step.most)
        found = self.alloca()
        self.b.effect(f"store i64 0, ptr {found}, align 8")
        low, high = as_int(step.least), as_int(step.most)
        if low is None or high is None:
            span = self.b.pure(f"sub i64 {most}, {least}", most, least)
        else:
            span = str(high - low)
        self.put("ptr", address, 0)
        self.put("ptr", found, 1)
        for slot, value in enumerate((count, str(step.stride), least, span), 2):
            self.put("i64", value, slot)
        extent = self.chunks(count)
        start = self.field("ptr", "%call", LAUNCH)
        passed = f"ptr %call, i32 {NOBODYS}, ptr @{name}, ptr %frame, i64 {extent}, i32 0"
        self.b.effect(f"call void {start}({passed})")
        outside = self.b.value(f"load i64, ptr {found}, align 8")
        wrong = self.b.value(f"icmp ne i64 {outside}, 0")
        if not span.isdigit():
            none = self.b.value(f"icmp slt i64 {span}, 0")  # an axis without elements: all are
            some = self.b.value(f"icmp sgt i64 {count}, 0")
            none = self.b.value(f"and i1 {none}, {some}")
            wrong = self.b.value(f"or i1 {wrong}, {none}")

        tell, what = self.field("ptr", "%call", REFUSE), self.text(step.what)
        told = (
            f"ptr %call, ptr @{what}, ptr {address}, i32 {DTYPE_CODES[step.of.name]}, i64 {count},"
            f" i64 {step.stride}, i64 {least}, i64 {most}"
        )
        self.stop_if(wrong, REFUSED, f"call void {tell}({told})")

    def chunks(self, count: str) -> str:
        """The iterations of a kernel that checks so many indices."""
        if count.isdigit():
            return str(-(-int(count) // CHUNK))
        more = self.b.pure(f"add i64 {count}, {CHUNK - 1}", count)
        return self.b.pure(f"sdiv i64 {more}, {CHUNK}", more)

    def bounds_kernel(self, of: DType) -> str:
        """The name of the kernel that checks indices of this dtype; it is defined on the way."""
        name, text, declared = bounds_kernel(of)
        self.own[name] = text
        self.b.declarations.update(declared)
        return name

    def text(self, text: str) -> str:
        """The name of a constant that holds a text for C."""
        content = text.encode() + b"\0"
        name = self.texts.setdefault(content, f"text{len(self.texts)}")
        held = "".join(f"\\{byte:02x}" for byte in content)
        self.own[name] = (
            f'@{name} = private unnamed_addr constant [{len(content)} x i8] c"{held}", align 1'
        )
        return name

    def provide(self, index: str, nbytes: Size) -> str:
        asked = self.size(nbytes)
        provide = self.field("ptr", "%call", PROVIDE)
        found = self.b.value(f"call ptr {provide}(ptr %call, i32 {index}, i64 {asked})")
        self.stop_if(self.b.value(f"icmp eq ptr {found}, null"), NO_MEMORY)
        return found

    def alloca(self, kind: str = "i64") -> str:
        """The address of a number of the function's own."""
        name = f"%own{len(self.b.allocas)}"
        self.b.allocas.append(f"  {name} = alloca {kind}, align 8")
        return name

    def cell(self, kind: str, value: str) -> str:
        """The address of a new number of the function's own that holds a value."""
        name = self.alloca(kind)
        self.b.effect(f"store {kind} {value}, ptr {name}, align 8")
        return name

    def held(self, kind: str, cell: str) -> str:
        return self.b.value(f"load {kind}, ptr {cell}, align 8")

    def stop_if(self, condition: str, code: int, after: str = "") -> None:
        """End the program with `code` where the i1 `condition` holds, after an instruction."""
        stop, on = self.b.label(), self.b.label()
        self.b.effect(f"br i1 {condition}, label %{stop}, label %{on}")
        self.b.begin(stop)
        if after:
            self.b.effect(after)
        self.b.effect(f"ret i32 {code}")
        self.b.begin(on)

    def holds(self, at: Location) -> str:
        """The truth of the bool at `at`, now."""
        byte = self.b.value(f"load i8, ptr {self.address(at)}, align 1")
        return self.b.value(f"icmp ne i8 {byte}, 0")

    def is_number(self, of: Is) -> str:
        """Whether a size is a number, an i1."""
        return self.b.value(f"icmp eq i64 {self.size(of.size)}, {of.number}")

    def branch(self, step: Branch) -> None:
        def run(steps: tuple[Step, ...]) -> None:
            for s in steps:
                self.step(s)

        of = step.condition
        self.b.branch(
            self.is_number(of) if isinstance(of, Is) else self.holds(of),
            lambda: run(step.then),
            (lambda: run(step.other)) if step.other else None,
        )

    def while_loop(self, step: While) -> None:
        limit = self.held("i64", self.address(step.limit))
        rounds = self.cell("i64", "0")
        going = self.cell("i1", self.holds(step.condition))
        states = [(s, self.cell("ptr", self.address(s.start))) for s in step.states]
        carried = [(c, self.cell("i64", self.size(c.first))) for c in step.carried]
        around = dict(self.env)

        def bind() -> None:
            self.evaluated = {}  # what was computed of other sizes
            for state, cell in states:
                self.states[state.index] = self.held("ptr", cell)
            for size, cell in carried:
                self.bind_scalar(size.symbol, self.held("i64", cell))

        with self.b.endless() as leave:
            done = self.held("i64", rounds)
            leave(self.b.value(f"icmp sge i64 {done}, {limit}"))
            leave(self.b.value(f"xor i1 {self.held('i1', going)}, true"))
            bind()
            turn = self.b.value(f"trunc i64 {done} to i1")
            for state, _ in states:
                other = f"i32 {state.buffer + 1}, i32 {state.buffer}"
                self.turns[state.index] = self.b.value(f"select i1 {turn}, {other}")
            for name, size in step.named:
                self.bind_scalar(name.name, self.size(size))
            self.b.effect(f"store i64 {done}, ptr {self.address(step.counter)}, align 8")
            for s in step.body:
                self.step(s)
            after = [self.size(size.after) for size, _ in carried]
            for (_, cell), value in zip(carried, after, strict=True):
                wrong = self.b.value(f"icmp ugt i64 {value}, {MOST_SIZE}")
                self.stop_if(wrong, step.number + 1)
                self.b.effect(f"store i64 {value}, ptr {cell}, align 8")
            for state, cell in states:
                self.b.effect(f"store ptr {self.next[state.index]}, ptr {cell}, align 8")
            self.b.effect(f"store i1 {self.holds(step.again)}, ptr {going}, align 8")
            more = self.b.value(f"add i64 {done}, 1")
            self.b.effect(f"store i64 {more}, ptr {rounds}, align 8")
        self.env = around
        bind()
        for size, _ in carried:
            if size.at is not None:
                self.keep(self.size(Var(size.symbol)), size.at)
        total = self.held("i64", rounds)
        self.b.effect(f"store i64 {total}, ptr {self.address(step.rounds)}, align 8")


def frame_taker(name: str, buffers: int, symbols: int) -> str:
    """A `tw_kernel` that takes its frame apart: a kernel's address, then its arguments. One serves
    all kernels with so many; beside each kernel it took LLVM half as long as a small kernel."""
    kinds = ["ptr"] * (1 + buffers) + ["i64"] * symbols
    lines = [
        f"define internal void @{name}(ptr %frame, ptr %scratch, i64 %begin, i64 %end) #0 {{",
        "entry:",
    ]
    for n, kind in enumerate(kinds):
        lines.append(f"  %a{n} = getelementptr i8, ptr %frame, i64 {8 * n}")
        lines.append(f"  %x{n} = load {kind}, ptr %a{n}, align 8")
    passed = [f"{kind} %x{n}" for n, kind in enumerate(kinds)][1:]
    passed += [
        f"{kind} %{what}" for kind, what in zip(RANGE, ("scratch", "begin", "end"), strict=True)
    ]
    lines += [f"  tail call void %x0({', '.join(passed)})", "  ret void", "}"]
    return "\n".join(lines)


def rows_kernel(name: str, rows: Sequence[Sequence[tuple[str, int, int]]]) -> str:
    """A kernel whose iterations run one row of kernels each, all of a kernel on the spot. rows: of
    each kernel its taker, its frame's first slot and the slot of its extent."""
    picks = " ".join(f"i64 {n}, label %row{n}" for n in range(len(rows)))
    lines = [
        f"define internal void @{name}(ptr %frame, ptr %scratch, i64 %begin, i64 %end) {{",
        "entry:",
        "  br label %head",
        "head:",
        "  %i = phi i64 [ %begin, %entry ], [ %next, %tail ]",
        "  %more = icmp slt i64 %i, %end",
        "  br i1 %more, label %pick, label %out",
        "pick:",
        f"  switch i64 %i, label %tail [ {picks} ]",
    ]
    for n, row in enumerate(rows):
        lines.append(f"row{n}:")
        for k, (take, first, last) in enumerate(row):
            of = f"{n}_{k}"
            lines += [
                f"  %frame{of} = getelementptr i8, ptr %frame, i64 {8 * first}",
                f"  %at{of} = getelementptr i8, ptr %frame, i64 {8 * last}",
                f"  %extent{of} = load i64, ptr %at{of}, align 8",
                f"  %some{of} = icmp sgt i64 %extent{of}, 0",
                f"  br i1 %some{of}, label %run{of}, label %ran{of}",
                f"run{of}:",
                f"  call void @{take}(ptr %frame{of}, ptr %scratch, i64 0, i64 %extent{of})",
                f"  br label %ran{of}",
                f"ran{of}:",
            ]
        lines.append("  br label %tail")
    lines += [
        "tail:",
        "  %next = add nsw i64 %i, 1",
        "  br label %head",
        "out:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _shapes(
    target: Target,
    symbols: Sequence[str],
    shapes: Sequence[Sequence[Size]],
    arena_bytes: Size,
    named: Mapping[Var, Expr],
) -> tuple[str, set[str]]:
    """`tw_shapes`: output shapes one after another, and the arena's size, from the symbols. It
    returns 1 where one of them is more than a number holds."""
    e = _Sizes(target)
    for n, name in enumerate(symbols):
        at = e.b.pure(f"getelementptr i8, ptr %dims, i64 {8 * n}")
        e.bind_scalar(name, e.b.here(f"load i64, ptr {at}, align 8"))
    flags: list[str] = []
    for n, size in enumerate(size for shape in shapes for size in shape):
        value, flag = e.checked(size)
        flags.append(flag)
        at = e.b.pure(f"getelementptr i8, ptr %shapes, i64 {8 * n}")
        e.b.effect(f"store i64 {value}, ptr {at}, align 8")
    for name, size in named.items():
        value, flag = e.checked(size)
        flags.append(flag)
        e.bind_scalar(name.name, value)
    total, last = e.checked(arena_bytes)
    e.b.effect(f"store i64 {total}, ptr %arena, align 8")
    beyond = "false"
    for flag in dict.fromkeys([*flags, last]):
        beyond = e.b.pure(f"or i1 {beyond}, {flag}", beyond, flag)
    code = e.b.pure(f"zext i1 {beyond} to i32", beyond)
    head = f"define i32 @{SHAPES}(ptr %dims, ptr %shapes, ptr %arena) #0 {{"
    return f"{head}\nentry:\n{e.b.text()}\n  ret i32 {code}\n}}", e.b.declarations
