"""LLVM text of one function, built in order, but with pure instructions hoisted.

In: instructions one by one. Out: lines. The one idea: a *region* is the body of a loop or of a
branch; a pure instruction stands in the outermost region where its operands exist (so invariants
stand in front of loops without a pass that moves them; `asked` tells of an exception), and the same
instruction is never written twice where the first one is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Lines = list[Any]  # strings and nested Lines


class Region:
    """A loop or branch body: its lines, what is known in it, and where hoisted instructions go.

    writes: of a loop that surely runs and holds no other loop, the buffers it writes; loads of any
    other buffer may stand in front of it. None: loads stay inside. is_parallel: of a launch's loop,
    whose edges are branches in it. is_arm: one side of a branch.
    """

    __slots__ = ("hoist", "is_arm", "is_parallel", "known", "lines", "reused", "writes")

    def __init__(self) -> None:
        self.lines: Lines = []
        self.hoist: Lines = []
        self.known: dict[str, str] = {}  # instruction → value
        self.reused: dict[Any, Any] = {}  # by `llvm_memory`: addresses, loads, splats
        self.writes: set[str] | None = None
        self.is_parallel = self.is_arm = False


class Carried:
    """A value that each round of a loop takes from the one before: `name` in the loop, `first`
    before it, `last` at the end of a round, and `left` behind the loop."""

    __slots__ = ("first", "kind", "last", "left", "name")

    def __init__(self, kind: str, first: str, name: str) -> None:
        self.kind, self.first, self.name = kind, first, name
        self.last = self.left = name


class Again:
    """What has to hold for another round of a loop, an i1 of its body, where something has."""

    __slots__ = ("holds", "level", "variable")

    def __init__(self, variable: str) -> None:
        self.variable, self.holds, self.level = variable, "", 0


# No instruction, but none that LLVM takes out of its block. The loops on the two sides of a branch
# start with the same addresses and zeros; once these stand in front of the branch and the blocks
# between are gone, the sums of both loops take registers at once, and some of them none.
KEPT = 'call void asm sideeffect "", ""() nomerge nounwind memory(none)'


class Builder:
    """The body of a function under construction. Values are names ("%v1") or constants as text."""

    def __init__(self) -> None:
        self.count = 0
        self.block = "entry"  # label of the block that is being written
        self.arms: set[str] = set()  # labels of blocks where the sides of branches begin
        self.keeps_entries = False  # of loops there: blocks that LLVM does not merge (`KEPT`)
        self.regions = [Region()]
        self.level_of: dict[str, int] = {}  # value → index of the region where it is defined
        self.declarations: set[str] = set()
        self.needs: set[tuple[str, str, int]] = set()  # functions of `llvm_math`
        self.allocas: Lines = []

    # -- values ------------------------------------------------------------------------------------

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def pure(self, instruction: str, *operands: str) -> str:
        """The value of an instruction without effects, hoisted as far as its operands allow."""
        level_of = self.level_of
        level = 0
        for operand in operands:
            at = level_of.get(operand, 0)
            if at > level:
                level = at
        region = self.regions[level]
        known = region.known.get(instruction)
        if known is None:
            self.count += 1
            known = region.known[instruction] = f"%v{self.count}"  # as `name`, which costs a call
            level_of[known] = level
            lines = region.lines if level == len(self.regions) - 1 else region.hoist
            lines.append(f"  {known} = {instruction}")
        return known

    def here(self, instruction: str, key: str | None = None, at: int | None = None) -> str:
        """The value of an instruction that stays in its region (it may trap, or reads memory).

        Instructions with the same `key` give the same value: a load's key names the state of its
        memory. at: the region's index; the current one if None.
        """
        key = key or instruction
        top = len(self.regions) - 1
        at = top if at is None else at
        for level in range(at, -1, -1):
            known = self.regions[level].known.get(key)
            if known is not None:
                return known
        region = self.regions[at]
        name = region.known[key] = self.name()
        self.level_of[name] = at
        (region.lines if at == top else region.hoist).append(f"  {name} = {instruction}")
        return name

    def asked(self, instruction: str, *operands: str) -> str:
        """As `pure`, of addresses and what lanes are on: an edge of a launch needs dozens of such
        values. An iteration inside does not wait for them: they stay on their side of a branch."""
        at = max([self.level_of.get(o, 0) for o in operands])
        if self.regions[at].is_parallel:
            while at + 1 < len(self.regions) and self.regions[at + 1].is_arm:
                at += 1
        return self.here(instruction, None, at)

    def reach(self, buffer: str, *operands: str) -> int:
        """The outermost region in which a load of `buffer` with these operands may stand."""
        at = len(self.regions) - 1
        if self.regions[at].writes is None:  # as in most regions
            return at
        low = max([self.level_of.get(o, 0) for o in operands])
        while at > low:
            writes = self.regions[at].writes
            if writes is None or buffer in writes:
                break
            at -= 1
        return at

    def value(self, instruction: str) -> str:
        """The value of an instruction with effects, written here and now."""
        name = self.name()
        self.level_of[name] = len(self.regions) - 1
        self.regions[-1].lines.append(f"  {name} = {instruction}")
        return name

    def effect(self, instruction: str) -> None:
        """An instruction without a value."""
        self.regions[-1].lines.append(f"  {instruction}")

    def call(
        self,
        result: str,
        function: str,
        arguments: list[tuple[str, str]],
        *,
        pure: bool = True,
        flags: str = "",
        attributes: str = "",
    ) -> str:
        """Call an intrinsic or an internal function, declared on the way. `arguments`: (type,
        value).
        """
        if function.startswith("llvm."):
            types = ", ".join(t for t, _ in arguments)
            self.declarations.add(f"declare {result} @{function}({types})")
        inside = ", ".join(f"{t} {v}" for t, v in arguments)
        text = f"call {flags}{result} @{function}({inside}){attributes}"
        if result == "void":
            self.effect(text)
            return ""
        return self.pure(text, *[v for _, v in arguments]) if pure else self.value(text)

    # -- control -----------------------------------------------------------------------------------

    def label(self) -> str:
        self.count += 1
        return f"L{self.count}"

    def begin(self, label: str) -> None:
        """Start a block in the current region."""
        self.regions[-1].lines.append(f"{label}:")
        self.block = label

    @contextmanager
    def region(self, terminator: str) -> Iterator[Region]:
        """A region below the current one; `terminator` ends the current block in front of it."""
        parent = self.regions[-1]
        parent.hoist = []
        inner = Region()
        parent.lines += [parent.hoist, f"  {terminator}", inner.lines]
        self.regions.append(inner)
        yield inner
        self.regions.pop()

    @contextmanager
    def loop(
        self,
        start: str,
        stop: str,
        *,
        surely: bool,
        writes: set[str] | None = None,
        carried: Sequence[Carried] = (),
        again: Again | None = None,
    ) -> Iterator[str]:
        """A loop over [start, stop); gives its variable.

        surely: it is known to run at least once. writes: see `Region`. carried: whose `last` is set
        when a round ends. again: its `holds` too.
        """
        before, head, after = self.block, self.label(), self.label()
        if surely and self.keeps_entries and before in self.arms:
            self.effect(KEPT)
        enter = f"br label %{head}"
        if not surely:
            some = self.pure(f"icmp slt i64 {start}, {stop}", start, stop)
            enter = f"br i1 {some}, label %{head}, label %{after}"
        with self.region(enter) as inside:
            inside.writes = writes if surely else None
            self.begin(head)
            phi: Lines = []
            inside.lines.append(phi)
            variable, following = self.name(), self.name()
            self.level_of[variable] = len(self.regions) - 1
            if again is not None:
                again.level = len(self.regions) - 1
            for c in carried:
                self.level_of[c.name] = len(self.regions) - 1
            yield variable
            inside.lines.append(f"  {following} = add nuw nsw i64 {variable}, 1")
            more = self.value(f"icmp slt i64 {following}, {stop}")
            if again is not None and again.holds:
                more = self.value(f"and i1 {more}, {again.holds}")
            inside.lines.append(f"  br i1 {more}, label %{head}, label %{after}")
            end = self.block
            phi.append(f"  {variable} = phi i64 [ {start}, %{before} ], [ {following}, %{end} ]")
            phi += [
                f"  {c.name} = phi {c.kind} [ {c.first}, %{before} ], [ {c.last}, %{end} ]"
                for c in carried
            ]
        self.begin(after)
        for c in carried:
            if surely:
                c.left = c.last
                if self.level_of.get(c.left, 0) >= len(self.regions):  # else it was there before
                    self.level_of[c.left] = len(self.regions) - 1
            else:
                c.left = self.value(f"phi {c.kind} [ {c.first}, %{before} ], [ {c.last}, %{end} ]")

    @contextmanager
    def endless(self) -> Iterator[Callable[[str], None]]:
        """A loop without a variable; the function it gives leaves the loop if its i1 holds."""
        head, after = self.label(), self.label()
        with self.region(f"br label %{head}"):
            self.begin(head)

            def leave(condition: str) -> None:
                stay = self.label()
                self.effect(f"br i1 {condition}, label %{after}, label %{stay}")
                self.begin(stay)

            yield leave
            self.effect(f"br label %{head}")
        self.begin(after)

    def branch(
        self, condition: str, then: Callable[[], None], other: Callable[[], None] | None = None
    ) -> None:
        """Run `then` if the i1 `condition` holds, else `other`."""
        yes, no, after = self.label(), self.label(), self.label()
        target = no if other is not None else after
        with self.region(f"br i1 {condition}, label %{yes}, label %{target}") as inner:
            inner.is_arm = True
            self.begin(yes)
            self.arms.add(yes)
            then()
            self.effect(f"br label %{after}")
        if other is not None:
            inner = Region()
            inner.is_arm = True
            self.regions[-1].lines.append(inner.lines)
            self.regions.append(inner)
            self.begin(no)
            self.arms.add(no)
            other()
            self.effect(f"br label %{after}")
            self.regions.pop()
        self.begin(after)

    def choose(
        self, condition: str, kind: str, then: Callable[[], str], other: Callable[[], str]
    ) -> str:
        """The value, of LLVM type `kind`, of the one side that `condition` selects; only that side
        runs.
        """
        found: list[tuple[str, str]] = []

        def side(make: Callable[[], str]) -> Callable[[], None]:
            def run() -> None:
                value = make()
                found.append((value, self.block))

            return run

        self.branch(condition, side(then), side(other))
        (a, at), (b, bt) = found
        return self.value(f"phi {kind} [ {a}, %{at} ], [ {b}, %{bt} ]")

    def text(self) -> str:
        """The lines written so far, allocas first."""
        out: list[str] = []
        _flatten(self.allocas, out)
        _flatten(self.regions[0].lines, out)
        return "\n".join(out)


def _flatten(lines: Lines, out: list[str]) -> None:
    for line in lines:
        if line.__class__ is list:
            _flatten(line, out)
        else:
            out.append(line)
