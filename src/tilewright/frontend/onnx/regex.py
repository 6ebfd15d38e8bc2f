"""Regular expressions as finite automata over code points.

In: a pattern in the syntax of RE2 (without its rarer escapes). Out: a table of states and classes
of code points. A pattern is parsed into fragments of a nondeterministic automaton; states of the
deterministic one are sets of its positions, together with what kind of letter stood before, so that
anchors and word boundaries are steps like others (Thompson 1968; Rabin and Scott 1959).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.frontend.onnx.registry import Refusal

LAST = 0x10FFFF
MOST_STATES, MOST_REPEATS, MOST_POSITIONS = 4096, 1000, 20_000
Set = tuple[tuple[int, int], ...]  # code points, as ranges with both ends

DIGIT: Set = ((48, 57),)
WORD: Set = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: Set = ((9, 10), (12, 13), (32, 32))
NAMED = {"d": DIGIT, "w": WORD, "s": SPACE}
LETTERS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7}
EDGE, INSIDE, OUTSIDE = range(3)  # beside a position: the string's end, a letter of a word, another


class Automaton(NamedTuple):
    """edges: where classes of code points begin (class k is from edges[k - 1] on; class 0, below
    the first, is the end of the string). table[state, class] → state; state 0 is the first."""

    edges: np.ndarray
    table: np.ndarray
    accepts: np.ndarray


def without(ranges: Set) -> Set:
    """All other code points."""
    made, start = [], 1
    for low, high in sorted(ranges):
        if low > start:
            made.append((start, low - 1))
        start = max(start, high + 1)
    return (*made, (start, LAST)) if start <= LAST else tuple(made)


class Positions:
    """A nondeterministic automaton. steps: (set of code points, position) of each position; free:
    (what must hold, position), what must hold being "" or one of ^ $ b B."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[Set, int]]] = []
        self.free: list[list[tuple[str, int]]] = []

    def new(self) -> int:
        if len(self.steps) >= MOST_POSITIONS:
            raise Refusal("its pattern is too large")
        self.steps.append([])
        self.free.append([])
        return len(self.steps) - 1


class Parser:
    """Reads a pattern; each method adds what it reads after position `at` and gives the position
    where it ends."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.i = pattern, 0
        self.positions = Positions()
        self.depth = 0

    def refuse(self, why: str) -> Refusal:
        return Refusal(f"its pattern {self.pattern[:80]!r}: {why} at {self.i}")

    def peek(self) -> str:
        return self.pattern[self.i : self.i + 1]

    def take(self) -> str:
        found = self.peek()
        if not found:
            raise self.refuse("it ends too early")
        self.i += 1
        return found

    def all(self) -> tuple[int, int]:
        """The first position and the last."""
        first = self.positions.new()
        last = self.choice(first)
        if self.peek():
            raise self.refuse("a ) too many")
        return first, last

    def choice(self, at: int) -> int:
        self.depth += 1
        if self.depth > 64:
            raise self.refuse("groups nest too deeply")
        end = self.positions.new()
        while True:
            first = self.positions.new()
            self.positions.free[at].append(("", first))
            self.positions.free[self.row(first)].append(("", end))
            if self.peek() != "|":
                self.depth -= 1
                return end
            self.take()

    def row(self, at: int) -> int:
        while self.peek() not in ("", "|", ")"):
            at = self.repeated(at)
        return at

    def repeated(self, at: int) -> int:
        """One thing, as often as what follows it says: it is read again for each copy."""
        start = self.i
        first = self.positions.new()
        self.positions.free[at].append(("", first))
        end = self.one(first)
        least, most = self.counts()
        after = self.i
        if (least, most) == (1, 1):
            return end
        for _ in range(1, least):
            end = self.again(start, end)
        out = self.positions.new()
        if most is None:
            if least == 0:
                self.positions.free[first].append(("", out))
            back = self.again(start, end) if least > 1 else end
            self.positions.free[back].append(("", first if least <= 1 else end))
            end = back if least <= 1 else end
            self.positions.free[end].append(("", out))
        else:
            if least == 0:
                self.positions.free[first].append(("", out))
            if most == 0:
                self.i = after
                return out
            self.positions.free[end].append(("", out))
            for _ in range(max(least, 1), most):
                end = self.again(start, end)
                self.positions.free[end].append(("", out))
        self.i = after
        return out

    def again(self, start: int, at: int) -> int:
        """A further copy of what was read from `start` on."""
        self.i = start
        first = self.positions.new()
        self.positions.free[at].append(("", first))
        return self.one(first)

    def counts(self) -> tuple[int, int | None]:
        mark = self.peek()
        found: tuple[int, int | None] = (1, 1)
        if mark in ("*", "+", "?") and mark:
            self.take()
            found = {"*": (0, None), "+": (1, None), "?": (0, 1)}[mark]
        elif mark == "{":
            end = self.pattern.find("}", self.i)
            parts = self.pattern[self.i + 1 : end].split(",") if end > 0 else []
            if not 1 <= len(parts) <= 2 or not parts[0].isdecimal():
                return found  # a brace by itself
            if len(parts) == 2 and parts[1] and not parts[1].isdecimal():
                return found
            self.i = end + 1
            least = int(parts[0])
            most = least if len(parts) == 1 else int(parts[1]) if parts[1] else None
            if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
                raise self.refuse("the repetition is not possible")
            found = (least, most)
        else:
            return found
        if self.peek() == "?":  # how greedy it is does not matter: all must match
            self.take()
        return found

    def one(self, at: int) -> int:
        c = self.take()
        if c == "(":
            if self.peek() == "?":
                self.group_head()
            end = self.choice(at)
            if self.peek() != ")":
                raise self.refuse("a ) is missing")
            self.take()
            return end
        if c in "*+?":
            raise self.refuse("nothing to repeat")
        if c in "^$":
            return self.condition(at, c)
        if c == "[":
            return self.step(at, self.bracket())
        if c == ".":
            return self.step(at, without(((10, 10),)))
        if c == "\\":
            c = self.take()
            if c in "bBAz":
                return self.condition(at, {"A": "^", "z": "$"}.get(c, c))
            return self.step(at, self.escape(c))
        return self.step(at, ((ord(c), ord(c)),))

    def group_head(self) -> None:
        """(?: and (?P<name> and (?<name>; what a group is called does not matter."""
        rest = self.pattern[self.i :]
        if rest.startswith("?:"):
            self.i += 2
            return
        if rest.startswith(("?P<", "?<")) and not rest.startswith(("?<=", "?<!")) and ">" in rest:
            self.i += rest.index(">") + 1
            return
        raise self.refuse("this kind of group is not supported")

    def condition(self, at: int, what: str) -> int:
        end = self.positions.new()
        self.positions.free[at].append((what, end))
        return end

    def step(self, at: int, letters: Set) -> int:
        end = self.positions.new()
        self.positions.steps[at].append((letters, end))
        return end

    def escape(self, c: str) -> Set:
        if c.lower() in NAMED:
            found = NAMED[c.lower()]
            return without(found) if c.isupper() else found
        if c == "x":
            wide = self.peek() == "{"
            end = self.pattern.find("}", self.i) if wide else self.i + 2
            digits = self.pattern[self.i + wide : end]
            try:
                code = int(digits, 16)
            except ValueError:
                raise self.refuse("\\x needs hexadecimal digits") from None
            self.i = end + wide
            return ((code, code),)
        if c in LETTERS:
            return ((LETTERS[c], LETTERS[c]),)
        if c.isalnum():
            raise self.refuse(f"\\{c} is not supported")
        return ((ord(c), ord(c)),)

    def bracket(self) -> Set:
        negative = self.peek() == "^"
        if negative:
            self.take()
        found: list[tuple[int, int]] = []
        first = True
        while first or self.peek() != "]":
            first = False
            found += self.member()
        self.take()
        return without(tuple(found)) if negative else tuple(found)

    def member(self) -> list[tuple[int, int]]:
        if self.pattern.startswith("[:", self.i):
            raise self.refuse("named classes are not supported")
        c = self.take()
        letters = self.escape(self.take()) if c == "\\" else ((ord(c), ord(c)),)
        single = len(letters) == 1 and letters[0][0] == letters[0][1]
        behind = self.pattern[self.i + 1 : self.i + 2]
        if not single or self.peek() != "-" or behind in ("]", ""):
            return list(letters)
        self.take()
        c = self.take()
        ends = self.escape(self.take()) if c == "\\" else ((ord(c), ord(c)),)
        low, high = letters[0][0], ends[0][1]
        if len(ends) != 1 or high < low:
            raise self.refuse("a range goes backwards")
        return [(low, high)]


def contains(letters: Set, code: int) -> bool:
    return any(low <= code <= high for low, high in letters)


def holds(what: str, before: int, after: int) -> bool:
    """Does a condition hold between two neighbours?"""
    if not what:
        return True
    if what in "^$":
        return (before if what == "^" else after) == EDGE
    return ((before == INSIDE) != (after == INSIDE)) == (what == "b")


def compile_pattern(pattern: str) -> Automaton:
    """The automaton that accepts the strings which `pattern` matches from end to end. Raises
    Refusal."""
    parser = Parser(pattern)
    first, last = parser.all()
    positions = parser.positions
    cuts = {1, *(low for low, _ in WORD), *(high + 1 for _, high in WORD)}
    for steps in positions.steps:
        for letters, _ in steps:
            cuts.update(low for low, _ in letters)
            cuts.update(high + 1 for _, high in letters)
    edges = sorted(c for c in cuts if 1 <= c <= LAST)
    kinds = [INSIDE if contains(WORD, c) else OUTSIDE for c in edges]

    def reached(core: frozenset[int], before: int, after: int) -> set[int]:
        found, stack = set(core), list(core)
        while stack:
            for what, goal in positions.free[stack.pop()]:
                if goal not in found and holds(what, before, after):
                    found.add(goal)
                    stack.append(goal)
        return found

    start = (frozenset([first]), EDGE)
    numbers, rows, order = {start: 0}, [], [start]
    for core, before in order:
        row = [numbers[core, before]]  # the end of the string changes nothing
        for code, kind in zip(edges, kinds, strict=True):
            now = reached(core, before, kind)
            goals = frozenset(
                goal for p in now for letters, goal in positions.steps[p] if contains(letters, code)
            )
            state = (goals, kind) if goals else (goals, OUTSIDE)
            if state not in numbers:
                if len(numbers) >= MOST_STATES:
                    raise Refusal(f"its pattern needs more than {MOST_STATES} states")
                numbers[state] = len(order)
                order.append(state)
            row.append(numbers[state])
        rows.append(row)
    accepts = [last in reached(core, before, EDGE) for core, before in order]
    return Automaton(np.array(edges), np.array(rows, np.int64), np.array(accepts))
