"""Decision names: those of one function's blocks in terms of another's that is equal but for names.

In: which block and buffer stands for which. Out: points, translated. The one idea: a decision is
named `<block>.<what>`, and a block that a primitive makes is named after a block or buffer that was
there, a word behind it and a number where the name is taken. So a name is taken apart as it was put
together, and the number counts the names that are free, which each function has its own of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilewright.schedule.trace import Plain
from tilewright.support.errors import ScheduleError
from tilewright.support.record import record

OF_BLOCKS = ("init", "o", "rf")  # behind a block's name; other words stand behind a buffer's
PREFIXES = ("short_rows",)  # before the decisions of a kernel's other version


@record
class Renaming:
    """What blocks and buffers of one function are called in another."""

    blocks: tuple[tuple[str, str], ...]
    buffers: tuple[tuple[str, str], ...]

    def reversed(self) -> Renaming:
        """The way back."""
        blocks, buffers = (
            tuple((new, old) for old, new in pairs) for pairs in (self.blocks, self.buffers)
        )
        return Renaming(blocks, buffers)

    def translated(self, point: Mapping[str, Plain]) -> dict[str, Plain]:
        """The point with decisions named as in the other function; values stay. Raises
        ScheduleError for a decision whose block is not, and was not made of, one of this one's."""
        there, back = _Names(self), _Names(self.reversed())
        made: dict[str, Plain] = {}
        for name, value in point.items():
            new = there.decision(name)
            if new is None or back.decision(new) != name or new in made:
                known = ", ".join(dict.fromkeys(old for old, _ in self.blocks)) or "none"
                raise ScheduleError(
                    f"cannot translate the decision '{name}'",
                    "it is of no block of the function, nor of one made of its blocks and buffers;"
                    f" the blocks are {known}",
                    remedy="the point is of another function, or was changed by hand",
                )
            made[new] = value
        return made


class _Names:
    """A renaming, ready to be looked up. `decision` and the others give None for what is not
    known."""

    def __init__(self, of: Renaming) -> None:
        self.blocks, self.buffers = dict(of.blocks), dict(of.buffers)
        self.taken = {*self.blocks, *self.buffers}
        self.taken_there = {*self.blocks.values(), *self.buffers.values()}

    def decision(self, name: str) -> str | None:
        """The name of a decision; those of the whole function have no block."""
        first, dot, rest = name.partition(".")
        if not dot:
            return name
        if first in PREFIXES:
            inner = self.decision(rest)
            return inner and f"{first}.{inner}"
        block = name
        while "." in block:  # `what` has seldom a dot
            block = block.rpartition(".")[0]
            if (new := self.block(block)) is not None:
                return new + name[len(block) :]
        return None

    def block(self, name: str) -> str | None:
        """The name of a block, whether it was there or a primitive made it."""
        if name in self.taken:
            return self.blocks.get(name) or self.buffers[name]
        return self._made(name, of_block=True)

    def buffer(self, name: str) -> str | None:
        """The name of a buffer, likewise."""
        if name in self.taken:
            return self.buffers.get(name) or self.blocks[name]
        return self._made(name, of_block=False)

    def _made(self, name: str, of_block: bool) -> str | None:
        stem, _, last = name.rpartition("_")
        count = int(last) if last.isdecimal() else 0
        stem = stem if last.isdecimal() else name
        base, _, word = stem.rpartition("_")
        if base and word.isidentifier():
            after_block = of_block and word in OF_BLOCKS
            new = self.block(base) if after_block else self.buffer(base)
            if new is not None:
                return self._free(stem, count, f"{new}_{word}")
        if stem == name:
            return None
        new = self.block(stem) if of_block else self.buffer(stem)  # a copy
        return new and self._free(stem, count, new)

    def _free(self, stem: str, count: int, new: str) -> str:
        """As many free names of `new`, `new_1`, … are before it as of those before
        `stem_<count>`."""
        number = count - sum(n < count for n in _numbers(self.taken, stem))
        for n in sorted(_numbers(self.taken_there, new)):
            number += n <= number
        return f"{new}_{number}" if number else new


def _numbers(taken: Collection[str], stem: str) -> set[int]:
    """Which of the names `stem`, `stem_1`, … are taken."""
    ends = (name[len(stem) + 1 :] for name in taken if name.startswith(f"{stem}_"))
    return {int(end) for end in ends if end.isdecimal()} | ({0} if stem in taken else set())
