"""From kernels to a program: what is launched in which order, on which memory.

In: the fused graph, its memory plan, its kernels' code for each machine. Out: a `Program`, whose
code variants differ in their kernels and host programs only and share weights, arena and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice

from tilewright.arith.simplify import Facts
from tilewright.backend.backend import native_of
from tilewright.codegen.host import ENTRY, SHAPES, host_program
from tilewright.codegen.host_steps import (
    MOST_SIZE,
    Branch,
    Carried,
    Check,
    Is,
    Kept,
    Launch,
    Location,
    Provide,
    ReadSizes,
    Renew,
    Require,
    Size,
    Step,
    Together,
    While,
    is_straight,
)
from tilewright.codegen.link import link
from tilewright.driver.allocation import Allocation
from tilewright.driver.build import aligned_bytes, dim, dims, info, variant
from tilewright.driver.kernel_cache import KernelCache
from tilewright.driver.kernels import Kernel
from tilewright.driver.own_sizes import SOME, Own, some_elements
from tilewright.graph import sizes
from tilewright.graph.graph import Graph, Node, Value, binds
from tilewright.graph.group import FusedGraph, FusedGroup
from tilewright.graph.ops.loop import body_of
from tilewright.graph.ops.while_loop import states_of
from tilewright.graph.passes.demand import Demand
from tilewright.graph.passes.plan_memory import MemoryPlan, is_data_dependent
from tilewright.graph.requirements import required_by, sizes_of_values
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Expr, Var, as_int, const, expr, maximum
from tilewright.ir.stmt import Func
from tilewright.ir.walk import substitute
from tilewright.runtime import abi
from tilewright.strategy.work import flops, spare_times, touched
from tilewright.support.background import in_background
from tilewright.support.errors import ONE_MAY_BE_1
from tilewright.support.record import record
from tilewright.support.version import __version__
from tilewright.target.target import Target

MOST_BYTES = 1 << 46  # of a tensor


@record
class Likely:
    """What a group computes where a symbol is a likely number: its function, with what that has own
    names for."""

    symbol: Var
    number: int
    func: Func
    own: Own


@record
class Code:
    """What the kernels are on one machine: each once, and by the names of the groups. own: for each
    group what its kernel has own names for. of_likely: other kernels of groups, for likely
    sizes."""

    machine: Target
    kernels: Sequence[Kernel]
    of_group: Mapping[str, Kernel]
    own: Mapping[str, Own]
    of_likely: Mapping[str, Sequence[tuple[Likely, Kernel]]]

    @property
    def scratch_bytes(self) -> int:
        """Bytes that each thread needs."""
        return max((e.scratch_bytes for k in self.kernels for e in k.entries), default=0)

    def versions(self) -> Iterator[tuple[str, Kernel, Own]]:
        """The kernels of the groups, by their names, and what they have own names for."""
        yield from ((name, kernel, self.own[name]) for name, kernel in self.of_group.items())
        for name, made in self.of_likely.items():
            yield from ((name, kernel, version.own) for version, kernel in made)


def workspaces(codes: Sequence[Code]) -> dict[str, Expr]:
    """Bytes that each group's kernel needs between its launches, on whichever machine."""
    most: dict[str, Expr] = {}
    for code in codes:
        for name, kernel, own in code.versions():
            if kernel.workspace:
                size = sizes.size(substitute(_workspace_bytes(kernel), own))
                most[name] = sizes.size(maximum(most[name], size)) if name in most else size
    return most


def fallbacks(codes: Sequence[Code]) -> dict[str, str]:
    """What scheduled the kernels that their family's strategy did not, and why, by their names."""
    return {k.name: k.fallback for code in reversed(codes) for k in code.kernels if k.fallback}


def _workspace_bytes(kernel: Kernel) -> Expr:
    """Bytes of the buffers that live between a kernel's launches, each aligned."""
    total: Expr = const(0)
    for buffer in kernel.workspace:
        total = total + aligned_bytes(buffer)
    return sizes.size(total)


def assemble(
    fused: FusedGraph,
    groups: Sequence[FusedGroup],
    funcs: Sequence[Func],
    codes: Sequence[Code],
    plan: MemoryPlan,
    finished: Callable[[], Sequence[Kernel]],
    known: KernelCache | None = None,
) -> tuple[abi.Program, list[str]]:
    """The program, and the text of each variant's host program. finished: what gives the kernels of
    `codes`, one machine's after another's, with their code, which is made meanwhile. known: has
    host programs too."""
    graph, allocation = fused.graph, Allocation(fused, plan)
    symbols = (*graph.symbols, *graph.data_dependent)
    texts: list[str] = []
    tells: list[str] = []
    hosts: list[Callable[[], bytes]] = []
    of_func = {g.name: (n, f) for n, (g, f) in enumerate(zip(groups, funcs, strict=True))}
    for code in codes:
        tells = []
        steps = _steps(allocation, _Program(of_func, code, symbols, tells), {})
        texts.append(_host_text(graph, steps, code.machine, plan))
        compile_object = native_of(code.machine).compile_object
        if known is not None:
            compile_object = partial(known.object, compile_object)
        hosts.append(partial(compile_object, texts[-1], code.machine, quick=is_straight(steps)))
    kernels = codes[0].of_group
    with in_background(hosts, 1, len(hosts)) as objects:  # by LLVM, without Python
        works = {f: _work(f) for f in dict.fromkeys(funcs)}
        infos = tuple(
            _info(kernels[g.name].name, g, works[f], codes[0].own[g.name], symbols)
            for g, f in zip(groups, funcs, strict=True)
        )
        entries = [ENTRY, SHAPES] if symbols else [ENTRY]
        made = iter(finished())
        linked = [
            _linked(c.machine, [*islice(made, len(c.kernels))], host, entries)
            for c, host in zip(codes, objects, strict=True)
        ]
    manifest = abi.Manifest(
        name=graph.name,
        inputs=_infos(graph.inputs, graph.input_names, graph.formats),
        outputs=_infos(graph.outputs, graph.output_names, graph.formats),
        symbols=tuple(_symbol(s, graph) for s in symbols),
        kernels=infos,
        target=codes[0].machine.triple,
        compiler=__version__,
        notes={
            "arena_live_bytes": plan.live_bytes,
            "arena_bytes": plan.typical_bytes,
            "targets": [str(code.machine) for code in codes],
            "code": [starts for _, starts in linked],
            **({"metadata": graph.metadata} if graph.metadata else {}),
            **({"faults": tells} if tells else {}),
            **({"not_for_all": True} if any(ONE_MAY_BE_1 in t for t in (*texts, *tells)) else {}),
            **({"fallbacks": told} if (told := fallbacks(codes)) else {}),
            **({"together": teams} if (teams := _teams(fused, groups)) else {}),
        },
    )
    program = abi.Program(
        manifest,
        [made for made, _ in linked],
        allocation.weights(),
        arena_bytes=max(0, sizes.at(plan.arena_bytes, plan.known(dict.fromkeys(symbols, 1)))),
        scratch_bytes=max(code.scratch_bytes for code in codes),
    )
    return program, texts


def _linked(
    machine: Target, kernels: Sequence[Kernel], host: bytes, entries: Sequence[str]
) -> tuple[abi.Variant, dict[str, list[int]]]:
    """The kernels and the host program of one machine as a code variant, and where in it each
    kernel's functions start."""
    own = {k.entries[0].symbol: k.code for k in kernels if k.entries}  # some share their code
    symbols = dict.fromkeys([*entries, *(e.symbol for k in kernels for e in k.entries)])
    image = link([*own.values(), host], symbols)
    starts = {k.name: [image.entries[e.symbol] for e in k.entries] for k in kernels}
    made = variant(machine, image.bytes, image.entries[ENTRY], image.entries.get(SHAPES))
    return made, starts


def _host_text(graph: Graph, steps: Sequence[Step], machine: Target, plan: MemoryPlan) -> str:
    symbols = (*graph.symbols, *graph.data_dependent)
    shapes = [v.shape for v in graph.outputs] if symbols else None
    names = [s.name for s in symbols]
    given, arena = len(graph.symbols), plan.arena_bytes
    ends = (*plan.offsets.values(), arena)
    if not all(sizes.is_never_more(sizes.size(0), e) for e in ends):  # the program will refuse it
        arena = maximum(arena, const(0))
    return host_program(steps, machine, names[:given], shapes, arena, names, plan.offsets)


@record
class _Program:
    """What the steps of all parts of a program share: kernels with their numbers and functions by
    the names of their groups, one machine's code, and what the program tells by its codes."""

    of_func: Mapping[str, tuple[int, Func]]
    code: Code
    symbols: Sequence[Var]
    tells: list[str]


def _steps(allocation: Allocation, program: _Program, around: Mapping[Var, int]) -> list[Step]:
    """What the host program does on one machine. around: the most that symbols around a loop's body
    may be."""
    fused, graph, tells = allocation.fused, allocation.graph, program.tells
    steps: list[tuple[Demand, Step]] = []

    def add(step: Step, demand: Demand = ()) -> None:
        steps.append((demand, step))

    def require(size: Expr, what: str, demand: Demand = ()) -> None:
        add(Require(size, len(tells)), demand)
        tells.append(what)

    most = {**around}
    for s in graph.symbols:
        most.setdefault(s, graph.ranges.get(s.name, (0, abi.MOST_SYMBOL))[1])
    most |= dict.fromkeys(graph.data_dependent, MOST_SIZE)
    unbound = set(allocation.data_dependent)  # sizes that no step has found yet
    done: set[tuple[Value, Step]] = set()  # checks of what several values follow from
    known = Facts({s: graph.ranges.get(s.name, (0, None)) for s in most})
    by_data = allocation.data_dependent if allocation.around is None else {*most}
    huge = _may_be_huge(graph, most, by_data)
    rows: dict[str, tuple[Launch, ...]] = {}
    named = [tuple(fused.groups[n].name for n in team) for team in fused.together]
    teams = {name: team for team in named for name in team}
    always = [n for g in fused.groups if not g.demand for n in g.nodes]
    needed = dict(sizes_of_values(always, allocation.data_dependent))
    always_needed: set[Expr] = set()  # of sizes that data decides
    for size, what in (*graph.required, *needed.items()):
        require(size, what)

    def bound(symbols: Sequence[str]) -> None:
        """Nothing has sizes that no memory holds, as far as symbols are known now."""
        unbound.difference_update(map(Var, symbols))
        for value in [v for v in huge if unbound.isdisjoint(sizes.symbols(v.shape))]:
            told = f"{value!r} would take more memory than any machine has"
            require(sizes.size(MOST_BYTES - value.nbytes), told)
            huge.remove(value)

    if allocation.around is not None:
        bound(())
        nbytes = sizes.size(maximum(allocation.plan.arena_bytes, const(0)))
        add(Provide(allocation.arena.index, nbytes))
    for group in fused.groups:
        if group.demand:  # where nobody needs the values, their sizes may be anything
            for size, what in sizes_of_values(group.nodes, allocation.data_dependent):
                if size not in needed:
                    require(size, what, group.demand)
        for size, what in sizes_of_values(group.nodes, allocation.data_dependent, by_data=True):
            if size not in always_needed:
                require(size, what, group.demand)
                if not group.demand:
                    always_needed.add(size)
        if group.is_loop:
            add(Provide(allocation.bodies[group.name].counter.index, sizes.size(8)))
            for stack in group.outputs[len(states_of(group.anchor)) :]:
                room = allocation.room(stack, stack.nbytes)
                if room is not None:
                    add(room)
            add(_while(group.anchor, allocation.bodies[group.name], program, most))
            bound(binds(group.anchor))
            continue
        if group.name not in program.of_func:
            for node in group.nodes:
                if node.op == "measure":
                    names = tuple((_among_dims(s, allocation, program), s) for s in binds(node))
                    add(ReadSizes(allocation(node.inputs[0]), names, len(tells)))
                    tells.append(node["what"])
                    bound(binds(node))
                elif node.op == "check_bounds":
                    numbers = node.inputs[1]  # others may lie there at another time
                    checks = [s for s in _checks(node, allocation) if (numbers, s) not in done]
                    done.update((numbers, check) for check in checks)
                    steps += [((), check) for check in checks]
            continue
        number, func = program.of_func[group.name]
        code = program.code
        kernel, own = code.of_group[group.name], code.own[group.name]
        launches = list(_launches(number, func, group, kernel, own, code.machine, allocation))
        provides = [s for s in launches if isinstance(s, Provide | Renew)]
        for node in group.nodes:
            for size, what in required_by(node, known):
                require(size, what, () if provides else group.demand)
        rows[group.name] = tuple(s for s in launches if isinstance(s, Launch))
        team = teams.get(group.name, (group.name,))
        for step in provides:
            add(step)
        if group.name == team[-1]:
            if len(team) > 1:
                ready: tuple[Step, ...] = (Together(tuple(rows[name] for name in team)),)
            else:
                ready = _by_size(number, group, code, allocation, rows[group.name])
            for step in ready:
                add(step, group.demand)
    return _under_conditions(steps, allocation)


def _among_dims(symbol: str, allocation: Allocation, program: _Program) -> int | None:
    """Which of the dims a symbol is; None of a loop's body, whose sizes nobody asks for."""
    return program.symbols.index(Var(symbol)) if allocation.around is None else None


def _while(loop: Node, body: Allocation, program: _Program, most: Mapping[Var, int]) -> While:
    """The rounds of a loop that the host program runs."""
    around, count = body.around, loop["states"]
    assert around is not None
    first, now = loop.inputs[2:], body_of(loop["body"]).inputs[1 : 1 + count]
    after = body.graph.outputs
    kept: list[Kept] = []
    carried: dict[str, Carried] = {}
    for n, state in enumerate(states_of(loop)[1:]):
        index = around(state).index
        turn = around.turns + 2 * (index - around.first_state)
        kept.append(Kept(index, around(first[n]), turn))
        for d, size in enumerate(now[n].shape):
            if isinstance(size, Var) and size.name in binds(loop) and size.name not in carried:
                at = _among_dims(size.name, around, program)
                ends = first[n].shape[d], after[1 + n].shape[d]
                carried[size.name] = Carried(size.name, at, *ends)
    if len(states_of(loop)) < len(loop.outputs):
        turn = body.turn.name
        carried[turn] = Carried(turn, None, 0, sizes.size(body.turn + 1))
    number = len(program.tells)
    program.tells.append(f"the sizes of the states of the loop '{loop.name}'")
    inside = {**most, **dict.fromkeys(map(Var, binds(loop)), MOST_SIZE)}
    steps = tuple(_steps(body, program, inside))
    limit, condition = map(around, loop.inputs[:2])
    return While(
        steps, limit, condition, body.again, tuple(kept), tuple(carried.values()), body.counter,
        around(loop.outputs[0]), number, tuple(body.plan.offsets.items()),
    )  # fmt: skip


def _may_be_huge(graph: Graph, most: Mapping[Var, int], by_data: set[Var]) -> list[Value]:
    """Values of sizes that data decides and no memory may hold, the first of each size."""
    made = dict[Expr, Value]()
    for value in (v for n in graph.nodes for v in n.outputs if is_data_dependent(v, by_data)):
        made.setdefault(value.nbytes, value)
    return [v for size, v in made.items() if sizes.greatest(size, most) > MOST_BYTES]


def _under_conditions(steps: Sequence[tuple[Demand, Step]], allocation: Allocation) -> list[Step]:
    """The steps, neighbours that one condition asks for in one branch."""
    made: list[Step] = []
    for first, group in groupby(steps, lambda pair: pair[0][:1]):
        if not first:
            made += [step for _, step in group]
            continue
        ((condition, holds),) = first
        inside = tuple(_under_conditions([(rest[1:], step) for rest, step in group], allocation))
        made.append(Branch(allocation(condition), *((inside, ()) if holds else ((), inside))))
    return made


def _checks(node: Node, allocation: Allocation) -> Iterator[Step]:
    """The bounds checks of one node, one for each column of its indices."""
    numbers, *only = node.inputs[1:]
    columns = len(node["least"])
    count = sizes.size(numbers.elements // columns)
    at = allocation(numbers)
    for k, (least, most) in enumerate(zip(node["least"], node["most"], strict=True)):
        first = sizes.size(expr(at.offset, i64) + k * (numbers.dtype.bits // 8))
        column = Location(at.space, at.index, first)
        check = Check(column, numbers.dtype, count, columns, least, most, node["what"])
        yield Branch(allocation(only[0]), (check,)) if only else check


def _by_size(
    number: int, group: FusedGroup, code: Code, allocation: Allocation, launches: tuple[Launch, ...]
) -> tuple[Step, ...]:
    """The launches of one group's kernel, or of one for a likely size, if there are some."""
    steps: tuple[Step, ...] = launches
    for of, kernel in reversed(code.of_likely.get(group.name, ())):
        made = _launches(number, of.func, group, kernel, of.own, code.machine, allocation)
        alone = tuple(s for s in made if isinstance(s, Launch))
        steps = (Branch(Is(of.symbol, of.number), alone, steps),)
    return steps


def _launches(
    number: int,
    func: Func,
    group: FusedGroup,
    kernel: Kernel,
    own: Own,
    machine: Target,
    allocation: Allocation,
) -> Iterator[Step]:
    """The launches of one group's kernel, after the memory that they need is there."""

    def room(nbytes: Expr) -> Expr:
        """Where a branch is not taken, the sizes of what it would make may be anything."""
        return sizes.size(maximum(nbytes, const(0))) if group.demand else nbytes

    for v in group.outputs:
        step = allocation.room(v, room(v.nbytes))
        if step is not None:
            yield step
    values = (*group.inputs, *group.outputs)
    locations = {b.name: allocation(v) for b, v in zip(func.buffers, values, strict=True)}
    plan = allocation.plan
    if group.name not in plan.workspaces and kernel.workspace:
        at = allocation.workspace
        yield Provide(at.index, room(sizes.size(substitute(_workspace_bytes(kernel), own))))
        locations.update(_row(kernel, at, own))
    elif kernel.workspace:
        locations.update(_row(kernel, allocation.in_arena(plan.workspaces[group.name].at), own))
    some = own.get(SOME, _some_elements(group.outputs, allocation.data_dependent))
    spare: list[Expr] = []
    if any(isinstance(p, Var) for p in func.params):
        spare = spare_times(func, machine, [e.buffers for e in kernel.entries])
    for n, entry in enumerate(kernel.entries):
        buffers = tuple(locations[b] for b in entry.buffers)
        symbols = tuple(own.get(Var(s), Var(s)) for s in entry.symbols)
        extent = substitute(expr(entry.extent, i64), own)
        if some is not None:
            extent = sizes.size(extent * some)
        margin: Size = 0
        if spare and as_int(extent) != 1:
            margin = sizes.size(substitute(sizes.size(spare[n]), own))
        yield Launch(number, entry.symbol, extent, buffers, symbols, n > 0, margin)


def _some_elements(outputs: Sequence[Value], data_dependent: set[Var]) -> Expr | None:
    """1 where one of several results has elements, else 0: of an axis without any, another may be
    as long as no loop should be. None: they surely are not so."""
    if not all(is_data_dependent(v, data_dependent) and len(v.shape) > 1 for v in outputs):
        return None
    return some_elements(outputs)


def _row(kernel: Kernel, start: Location, own: Own) -> dict[str, Location]:
    """Where a kernel's workspace buffers lie: in a row from `start` on."""
    at = expr(start.offset, i64)
    locations: dict[str, Location] = {}
    for buffer in kernel.workspace:
        locations[buffer.name] = Location(start.space, start.index, sizes.size(at))
        at = at + substitute(aligned_bytes(buffer), own)
    return locations


def _symbol(symbol: Var, graph: Graph) -> abi.Symbol:
    """What the runtime holds a symbol to."""
    low, high = graph.ranges.get(symbol.name, (0, abi.MOST_SYMBOL))
    return abi.Symbol(symbol.name, max(low, 0), high, symbol in graph.data_dependent)


def _infos(
    values: Sequence[Value], names: Sequence[str], formats: Mapping[str, str]
) -> tuple[abi.TensorInfo, ...]:
    return tuple(
        info(name, v, formats.get(name, "")) for v, name in zip(values, names, strict=True)
    )


def _work(func: Func) -> tuple[Expr, Expr]:
    """Floating-point operations of a function, and bytes that it touches."""
    nbytes = sizes.size(0)
    for buffer, count in touched(func).items():
        nbytes = nbytes + sizes.size((sizes.size(count) * buffer.dtype.bits + 7) // 8)
    return flops(func), nbytes


def _teams(fused: FusedGraph, groups: Sequence[FusedGroup]) -> list[list[int]]:
    """The kernels, by number, that run at once."""
    number = {g.name: n for n, g in enumerate(groups)}
    return [[number[fused.groups[n].name] for n in team] for team in fused.together]


def _info(
    name: str, group: FusedGroup, work: tuple[Expr, Expr], own: Own, told: Sequence[Var]
) -> abi.KernelInfo:
    """A kernel as the manifest tells of it. told: the symbols that it knows; sizes of which each
    round of a loop has others count as 1."""

    def known(e: Expr) -> Expr:
        rounds = dict.fromkeys(set(sizes.symbols([e])).difference(told), const(1))
        return sizes.size(substitute(e, rounds))

    amounts = (known(sizes.size(substitute(sizes.size(amount), own))) for amount in work)
    shape = dims(tuple(map(known, group.outputs[0].shape)))
    return abi.KernelInfo(name, tuple(group.ops), shape, *map(dim, amounts))
