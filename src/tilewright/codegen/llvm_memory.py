"""Loads and stores: from an index in linear form to LLVM's memory instructions.

In: a buffer, a `Linear` index and a mask. Out: instructions, and for a load a `Value`. Lanes that
touch neighbouring elements become one vector access; the same element, one scalar access; elements
at known distances, a few vectors or scalars; anything else a gather or scatter. Masked lanes touch
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import gcd

from tilewright.codegen.llvm_builder import Builder
from tilewright.codegen.llvm_convert import Convert
from tilewright.codegen.llvm_index import Linear, splat
from tilewright.codegen.llvm_transpose import overlapped, transpose, widened
from tilewright.codegen.llvm_types import (
    SMALL_FLOATS,
    Value,
    constant,
    known_lanes,
    mangle,
    memory,
    register,
    vector,
    vector_constant,
)
from tilewright.ir.dtype import DType, bool_, i32, i64, u8
from tilewright.ir.expr import Buffer

WORD = 8  # bytes
MOST_COVER = 4  # vectors that are loaded to choose one from
MOST_READERS = 4  # lanes of one element, whose masks are put together
Cells = dict[int, Value]  # what elements of a buffer hold, by the first of a vector
Elements = tuple[object, ...]  # which elements, in which state of their buffer


class Memory:
    """Accesses written into `builder`. `pointers` gives each buffer's base address."""

    def __init__(self, builder: Builder, convert: Convert) -> None:
        self.b, self.convert = builder, convert
        self.pointers: dict[str, str] = {}
        self.private: set[str] = set()  # buffers on this thread's own stack, padded by a vector
        self.unmasked: set[str] = set()  # private buffers whose masked lanes nobody reads
        self.version: dict[
            str, int
        ] = {}  # how often a buffer was written, so that loads can be shared
        self.transposed: dict[Elements, str] = {}  # vectors across memory that are made already
        self.cells: dict[str, Cells] = {}  # of buffers that are values, not memory
        self.starts = 1  # bytes at whose multiples buffers begin, where the machine asks

    # -- whole elements ----------------------------------------------------------------------------

    def load(self, buffer: Buffer, index: Linear, lanes: int, mask: str | None) -> Value:
        """The element(s) at `index`: a scalar where all lanes read the same one.

        Unrolled loops ask again and again for one form: then all is there already.
        """
        cells = self.cells.get(buffer.name)
        if cells is not None:
            if lanes and index.stride not in (0, 1):
                positions = [index.constant + o for o in index.offsets or ()]
                return Value(self.across(cells, buffer.dtype, positions), buffer.dtype, lanes)
            return cells.get(index.first) or Value("poison", buffer.dtype, lanes)
        if self.transposed:
            return self.loaded(buffer, index, lanes, mask)
        known = self.b.regions[-1].reused
        state = index, buffer.name, self.version.get(buffer.name, 0), lanes, mask
        found = known.get(state)
        if found is None:
            found = known[state] = self.loaded(buffer, index, lanes, mask)
        return found

    def loaded(self, buffer: Buffer, index: Linear, lanes: int, mask: str | None) -> Value:
        """As `load`, by instructions."""
        if buffer.dtype.is_packed:
            return self.load_packed(buffer, index, lanes, mask)
        dtype, stride = buffer.dtype, index.stride
        if stride == 0:
            pointer = self.address(buffer, index, loads=True)
            text = self.read(
                buffer, f"load {memory(dtype)}, ptr {pointer}, align {_align(dtype)}", pointer
            )
            return self.to_register(text, dtype, 0)
        kind, size = memory(dtype, lanes), _align(dtype)
        if buffer.name in self.private and stride == 1:
            mask = None
        if stride == 1:
            pointer = self.address(buffer, index, loads=True)
            if mask is None:
                known = self.known_multiple(buffer, index)
                text = self.read(buffer, f"load {kind}, ptr {pointer}, align {known}", pointer)
            else:
                name, flag = f"llvm.masked.load.{mangle(kind)}.p0", vector("i1", lanes)
                self.b.declarations.add(f"declare {kind} @{name}(ptr, {flag}, {kind})")
                passed = f"ptr align {size} {pointer}, {flag} {mask}, {kind} zeroinitializer"
                text = self.read(buffer, f"call {kind} @{name}({passed})", pointer, mask)
            return self.to_register(text, dtype, lanes)
        made = self.transposed.get(self.elements(buffer, index)) if self.transposed else None
        if made:
            return self.to_register(made, dtype, lanes)
        if stride == -1 and mask is None:
            first = Linear(index.constant + min(index.offsets or (0,)), index.terms)
            pointer = self.address(buffer, first, loads=True)
            text = self.read(buffer, f"load {kind}, ptr {pointer}, align {size}", pointer)
            return self.to_register(self.reverse(text, kind, lanes), dtype, lanes)
        on = [True] * lanes if mask is None else known_lanes(mask)
        if index.offsets is not None and index.varying is None and any(on):
            return self.to_register(self.collect(buffer, index, on), dtype, lanes)
        if mask is not None and not on and _is_near(index, lanes):
            return self.to_register(self.collect_some(buffer, index, mask, lanes), dtype, lanes)
        addresses = self.addresses(buffer, index, lanes)
        name = f"llvm.masked.gather.{mangle(kind)}.v{lanes}p0"
        pointers, flag = vector("ptr", lanes), vector("i1", lanes)
        self.b.declarations.add(f"declare {kind} @{name}({pointers}, {flag}, {kind})")
        every = mask or "splat (i1 true)"
        passed = f"{pointers} align {size} {addresses}, {flag} {every}, {kind} zeroinitializer"
        text = self.read(buffer, f"call {kind} @{name}({passed})", addresses, every)
        return self.to_register(text, dtype, lanes)

    def store(
        self, buffer: Buffer, index: Linear, value: Value, lanes: int, mask: str | None
    ) -> None:
        """Write `value`, which has `lanes` lanes if the index varies over lanes, else none."""
        cells = self.cells.get(buffer.name)
        if cells is not None:
            if index.first in cells:  # else it is beyond the buffer's end, where all lanes are off
                cells[index.first] = self.blended(buffer, cells[index.first], value, mask)
            return None
        self.version[buffer.name] = self.version.get(buffer.name, 0) + 1
        if buffer.dtype.is_packed:
            return self.store_packed(buffer, index, value, lanes, mask)
        dtype, stride = buffer.dtype, index.stride
        size = _align(dtype)
        if buffer.name in self.unmasked and stride == 1:
            mask = None
        if stride == 0:
            text = self.to_memory(value)
            return self.b.effect(
                f"store {memory(dtype)} {text}, ptr {self.address(buffer, index)}, align {size}"
            )
        kind, flag = memory(dtype, lanes), vector("i1", lanes)
        text = self.to_memory(value)
        if stride == 1:
            pointer = self.address(buffer, index)
            if mask is None:
                known = self.known_multiple(buffer, index)
                return self.b.effect(f"store {kind} {text}, ptr {pointer}, align {known}")
            if buffer.name in self.private:  # blend, so that the buffer can live in registers
                old = self.b.value(f"load {kind}, ptr {pointer}, align {size}")
                both = self.b.value(f"select {flag} {mask}, {kind} {text}, {kind} {old}")
                return self.b.effect(f"store {kind} {both}, ptr {pointer}, align {size}")
            lane = _only_lane(mask)
            if lane is not None:  # of a truncated value LLVM 22 would store all bytes there were
                first = index.constant + (index.offsets or (0,))[0]
                pointer = self.address(buffer, Linear(first + lane, index.terms))
                part = self.b.pure(f"extractelement {kind} {text}, i32 {lane}", text)
                return self.b.effect(f"store {memory(dtype)} {part}, ptr {pointer}, align {size}")
            name = f"llvm.masked.store.{mangle(kind)}.p0"
            self.b.declarations.add(f"declare void @{name}({kind}, ptr, {flag})")
            return self.b.effect(
                f"call void @{name}({kind} {text}, ptr align {size} {pointer}, {flag} {mask})"
            )
        if stride == -1 and mask is None:
            first = Linear(index.constant + min(index.offsets or (0,)), index.terms)
            text = self.reverse(text, kind, lanes)
            return self.b.effect(
                f"store {kind} {text}, ptr {self.address(buffer, first)}, align {size}"
            )
        if index.offsets is not None and index.varying is None and mask is None:
            for lane, offset in enumerate(index.offsets):
                pointer = self.address(buffer, Linear(index.constant + offset, index.terms))
                part = self.b.pure(f"extractelement {kind} {text}, i32 {lane}", text)
                self.b.effect(f"store {memory(dtype)} {part}, ptr {pointer}, align {size}")
            return None
        addresses = self.addresses(buffer, index, lanes)
        name = f"llvm.masked.scatter.{mangle(kind)}.v{lanes}p0"
        pointers = vector("ptr", lanes)
        self.b.declarations.add(f"declare void @{name}({kind}, {pointers}, {flag})")
        every = mask or "splat (i1 true)"
        self.b.effect(
            f"call void @{name}({kind} {text}, {pointers} align {size} {addresses}, {flag} {every})"
        )

    def across(self, cells: Cells, dtype: DType, positions: Sequence[int]) -> str:
        """Lanes that lie apart in a buffer of vectors that are values. Where one lane alone comes
        from a third vector, the others are those of the tap that begins a step earlier."""
        lanes = len(positions)
        used = [at for at in cells if any(at <= p < at + lanes for p in positions)]
        earlier = (2 * positions[0] - positions[1], *positions[:-1])
        if len(used) > 2 and all(0 <= p < used[-1] for p in earlier):
            made = self.across(cells, dtype, earlier)
            order = [*range(1, lanes), lanes + positions[-1] - used[-1]]
            return self.shuffled(made, cells[used[-1]].text, dtype, order)
        made = "poison"
        for at in used:
            order = [p - at + lanes if at <= p < at + lanes else n for n, p in enumerate(positions)]
            made = self.shuffled(made, cells[at].text, dtype, order)
        return made

    def shuffled(self, a: str, b: str, dtype: DType, order: list[int]) -> str:
        """Lanes of two vectors, as many as these have."""
        kind, lanes = memory(dtype, len(order)), vector_constant(order, i32)
        text = f"shufflevector {kind} {a}, {kind} {b}, <{len(order)} x i32> {lanes}"
        return self.b.pure(text, a, b)

    def blended(self, buffer: Buffer, old: Value, new: Value, mask: str | None) -> Value:
        """What a cell holds after a store under a mask."""
        if mask is None or not new.lanes or buffer.name in self.unmasked:
            return new
        kind, flag = register(new.dtype, new.lanes), vector("i1", new.lanes)
        both = f"select {flag} {mask}, {kind} {new.text}, {kind} {old.text}"
        return Value(self.b.pure(both, mask, new.text, old.text), new.dtype, new.lanes)

    def read(self, buffer: Buffer, instruction: str, *operands: str) -> str:
        """A load, shared with an equal one if the buffer was not written since, and in front of
        an innermost loop that does not change what it reads.
        """
        key = f"{instruction} ;{self.version.get(buffer.name, 0)}"
        return self.b.here(instruction, key, self.level(buffer, *operands))

    def elements(self, buffer: Buffer, index: Linear) -> Elements:
        """Which elements, in which state of the buffer, lanes at `index` have."""
        state = self.version.get(buffer.name, 0)
        terms = tuple(sorted(index.terms.items()))
        varying = index.varying.text if index.varying else ""
        return buffer.name, state, index.constant, terms, index.offsets, varying

    def transpose(
        self, buffer: Buffer, index: Linear, lanes: int, count: int, on: list[bool] | str
    ) -> None:
        """Make the vectors at `index` and the next `count - 1` elements from lines of memory, one
        for each lane that is `on`, as is known or as a mask says."""
        dtype, size, wide = buffer.dtype, _align(buffer.dtype), 1 << (count - 1).bit_length()
        element, kind = memory(dtype), memory(dtype, count)
        lines = ["poison"] * lanes
        for lane in range(lanes):
            if isinstance(on, str) or on[lane]:
                start = self.lane_of(index, lane)
                if not isinstance(on, str) and _is_read_in_halves(dtype, count):
                    lines[lane] = self.halves(buffer, start, count)
                    continue
                pointer = self.address(buffer, start, loads=True)
                if isinstance(on, str):
                    line = self.line_under(buffer, pointer, count, on, lanes, lane)
                else:
                    line = self.read(buffer, f"load {kind}, ptr {pointer}, align {size}", pointer)
                lines[lane] = widened(self.b, line, element, count, wide)
        for n, made in enumerate(transpose(self.b, lines, element, wide)[:count]):
            moved = Linear(index.constant + n, index.terms, index.offsets, index.varying)
            self.transposed[self.elements(buffer, moved)] = made

    def halves(self, buffer: Buffer, index: Linear, count: int) -> str:
        """`count` elements from two vectors, of which the second ends where they do, in front of
        what fills the next power of two."""
        half, size = 1 << (count.bit_length() - 1), _align(buffer.dtype)
        kind = memory(buffer.dtype, half)

        def part(start: int) -> str:
            first = Linear(index.constant + start, index.terms, index.offsets, index.varying)
            pointer = self.address(buffer, first, loads=True)
            return self.read(buffer, f"load {kind}, ptr {pointer}, align {size}", pointer)

        return overlapped(self.b, part(0), part(count - half), memory(buffer.dtype), half, count)

    def line_under(
        self, buffer: Buffer, at: str, count: int, mask: str, lanes: int, lane: int
    ) -> str:
        """`count` elements that lie at an address, or zeros where the lane is off."""
        kind, flags = memory(buffer.dtype, count), vector("i1", count)
        bit = self.b.pure(f"extractelement {vector('i1', lanes)} {mask}, i64 {lane}", mask)
        let = spread(self.b, Value(bit, bool_), count).text
        # an address beyond the buffer's pages takes long to find, even if nothing is loaded
        start = self.pointers[buffer.name]
        at = self.b.pure(f"select i1 {bit}, ptr {at}, ptr {start}", bit, at, start)
        name = f"llvm.masked.load.{mangle(kind)}.p0"
        self.b.declarations.add(f"declare {kind} @{name}(ptr, {flags}, {kind})")
        passed = f"ptr align {_align(buffer.dtype)} {at}, {flags} {let}, {kind} zeroinitializer"
        return self.read(buffer, f"call {kind} @{name}({passed})", at, let)

    def level(self, buffer: Buffer, *operands: str) -> int | None:
        """The region where a load may stand; a private buffer becomes registers anyway."""
        return None if buffer.name in self.private else self.b.reach(buffer.name, *operands)

    def collect(self, buffer: Buffer, index: Linear, on: list[bool]) -> str:
        """The elements at known distances, in the lanes that are `on`: chosen from vectors that
        cover them all if those are few, else one by one. No machine gathers as fast.
        """
        assert index.offsets is not None
        offsets = {lane: o for lane, o in enumerate(index.offsets) if on[lane]}
        lanes, size = len(on), _align(buffer.dtype)
        least = min(offsets.values())
        span = max(offsets.values()) - least + 1
        # a power of two: LLVM fails on some shuffles of three lanes that are stored repeatedly
        wide = min(lanes, 1 << (span.bit_length() - 1))
        kind, element = memory(buffer.dtype, wide), memory(buffer.dtype)

        def at(offset: int) -> str:
            start = Linear(index.constant + offset, index.terms)
            return self.address(buffer, start, loads=True)

        result = memory(buffer.dtype, lanes)
        made = "poison"
        if span <= MOST_COVER * lanes:
            starts = [*range(0, span - wide, wide), span - wide]
            for k, start in enumerate(starts):
                pointer = at(least + start)
                text = self.read(buffer, f"load {kind}, ptr {pointer}, align {size}", pointer)
                text = widened(self.b, text, element, wide, lanes)
                end = starts[k + 1] if k + 1 < len(starts) else span
                order = [
                    lanes + o - least - start
                    if (o := offsets.get(lane, -1 + least)) - least in range(start, end)
                    else lane
                    for lane in range(lanes)
                ]
                made = self.b.pure(
                    f"shufflevector {result} {made}, {result} {text}, "
                    f"<{lanes} x i32> {vector_constant(order, i32)}",
                    made,
                    text,
                )
            return made
        for lane, offset in offsets.items():
            pointer = at(offset)
            text = self.read(buffer, f"load {element}, ptr {pointer}, align {size}", pointer)
            made = self.b.pure(
                f"insertelement {result} {made}, {element} {text}, i32 {lane}", made, text
            )
        return made

    def collect_some(self, buffer: Buffer, index: Linear, mask: str, lanes: int) -> str:
        """As `collect`, for a mask that only the run knows: vectors that cover the elements are
        loaded where the mask lets one through, for whichever of the lanes that read it."""
        offsets, size = [*(index.offsets or ())], _align(buffer.dtype)
        least, kind, flag = min(offsets), memory(buffer.dtype, lanes), vector("i1", lanes)
        name = f"llvm.masked.load.{mangle(kind)}.p0"
        self.b.declarations.add(f"declare {kind} @{name}(ptr, {flag}, {kind})")
        made = "poison"
        for start in range(least, max(offsets) + 1, lanes):
            lanes_of: dict[int, list[int]] = {}
            for lane, offset in enumerate(offsets):
                if 0 <= offset - start < lanes:
                    lanes_of.setdefault(offset - start, []).append(lane)
            let = ""
            for n in range(max(map(len, lanes_of.values()), default=0)):
                order = [(*lanes_of.get(p, ()), *[lanes] * lanes)[n] for p in range(lanes)]
                bits = self.b.pure(
                    f"shufflevector {flag} {mask}, {flag} zeroinitializer, "
                    f"<{lanes} x i32> {vector_constant(order, i32)}",
                    mask,
                )
                let = self.b.pure(f"or {flag} {let}, {bits}", let, bits) if let else bits
            if not let:
                continue
            first = Linear(index.constant + start, index.terms)
            pointer = self.address(buffer, first, loads=True)
            passed = f"ptr align {size} {pointer}, {flag} {let}, {kind} zeroinitializer"
            text = self.read(buffer, f"call {kind} @{name}({passed})", pointer, let)
            put = {lane: lanes + p for p, of in lanes_of.items() for lane in of}
            order = [put.get(lane, lane) for lane in range(lanes)]
            made = self.b.pure(
                f"shufflevector {kind} {made}, {kind} {text}, "
                f"<{lanes} x i32> {vector_constant(order, i32)}",
                made,
                text,
            )
        return made

    def reverse(self, text: str, kind: str, lanes: int) -> str:
        order = vector_constant(list(range(lanes - 1, -1, -1)), i32)
        return self.b.pure(
            f"shufflevector {kind} {text}, {kind} poison, <{lanes} x i32> {order}", text
        )

    # -- addresses ---------------------------------------------------------------------------------

    def address(self, buffer: Buffer, index: Linear, loads: bool = False) -> str:
        """The address of the first lane's element; `loads`: for a load, which may move outwards."""
        first = index.first
        base = self.base(buffer, index)
        if not first:
            return base
        at = self.level(buffer, base) if loads else None
        return self.b.here(
            f"getelementptr {memory(buffer.dtype)}, ptr {base}, i64 {first}", None, at
        )

    def known_multiple(self, buffer: Buffer, index: Linear) -> int:
        """Bytes of which the address of the first lane's element is a multiple."""
        size, step = _align(buffer.dtype), gcd(index.first, *index.terms.values())
        return max(size, min(self.starts, size * (step & -step) or self.starts))

    def base(self, buffer: Buffer, index: Linear) -> str:
        """The address that the terms of `index` give."""
        start = self.pointers[buffer.name]
        if not index.terms:
            return start
        known = self.b.regions[-1].reused
        name = start, memory(buffer.dtype), *index.terms.items()
        found = known.get(name)
        if found is None:
            found = known[name] = self.moved(start, memory(buffer.dtype), index.terms)
        return found

    def moved(self, pointer: str, kind: str, terms: dict[str, int]) -> str:
        """An address so many elements behind another, outer loops' terms added first."""
        b = self.b
        levels: dict[int, str] = {}
        for term, c in terms.items():
            part = term if c == 1 else b.pure(f"mul i64 {term}, {c}", term)
            at = b.level_of.get(term, 0)
            had = levels.get(at)
            levels[at] = part if had is None else b.pure(f"add i64 {had}, {part}", had, part)
        for at in sorted(levels):
            pointer = b.asked(
                f"getelementptr {kind}, ptr {pointer}, i64 {levels[at]}", pointer, levels[at]
            )
        return pointer

    def addresses(self, buffer: Buffer, index: Linear, lanes: int) -> str:
        """A vector with each lane's address."""
        b, kind = self.b, memory(buffer.dtype)
        base = self.base(buffer, index)
        if index.varying is None:
            assert index.offsets is not None
            each = vector_constant([index.constant + o for o in index.offsets], i64)
        else:
            each = Linear(index.constant, {}, index.offsets, index.varying).value(b, lanes).text
        return b.asked(f"getelementptr {kind}, ptr {base}, <{lanes} x i64> {each}", base, each)

    # -- between memory and registers --------------------------------------------------------------

    def to_register(self, text: str, dtype: DType, lanes: int) -> Value:
        if dtype.name in SMALL_FLOATS:
            return Value(self.convert.widen(text, lanes, dtype), dtype, lanes, bits=text)
        if dtype.is_bool:
            zero = "zeroinitializer" if lanes else "0"
            return Value(
                self.b.pure(f"icmp ne {memory(dtype, lanes)} {text}, {zero}", text), dtype, lanes
            )
        return Value(text, dtype, lanes)

    def to_memory(self, value: Value) -> str:
        dtype, lanes = value.dtype, value.lanes
        if dtype.name in SMALL_FLOATS:
            return self.convert.bits_of(value)
        if dtype.is_bool:
            flag = register(dtype, lanes)
            return self.b.pure(f"zext {flag} {value.text} to {memory(dtype, lanes)}", value.text)
        return value.text

    # -- packed elements ---------------------------------------------------------------------------

    def load_packed(self, buffer: Buffer, index: Linear, lanes: int, mask: str | None) -> Value:
        dtype, per = buffer.dtype, 8 // buffer.dtype.bits
        if index.is_uniform:
            return self.one_packed(buffer, index)
        byte = index.divided(per, False) if index.stride == 1 and not lanes % per else None
        if byte is not None and mask is None and byte.offsets and index.constant % per == 0:
            return self.run_packed(buffer, byte, lanes)
        out = "zeroinitializer"
        kind = register(dtype, lanes)
        for lane in range(lanes):

            def element(lane: int = lane) -> str:
                return self.one_packed(buffer, self.lane_of(index, lane)).text

            if mask is None:
                one = element()
            else:
                active = self.b.pure(f"extractelement <{lanes} x i1> {mask}, i64 {lane}", mask)
                one = self.b.choose(active, register(dtype), element, lambda: "0")
            out = self.b.pure(
                f"insertelement {kind} {out}, {register(dtype)} {one}, i64 {lane}", out, one
            )
        return Value(out, dtype, lanes)

    def lane_of(self, index: Linear, lane: int) -> Linear:
        """The index of one lane."""
        terms = dict(index.terms)
        if index.varying is not None:
            one = self.b.pure(
                f"extractelement <{index.varying.lanes} x i64> {index.varying.text}, i64 {lane}",
                index.varying.text,
            )
            terms[one] = terms.get(one, 0) + 1
        return Linear(index.constant + (index.offsets[lane] if index.offsets else 0), terms)

    def packed_address(self, buffer: Buffer, index: Linear) -> tuple[str, str]:
        """The address of the byte, and how far up in it (as an i8) the element lies."""
        b, dtype = self.b, buffer.dtype
        per = 8 // dtype.bits
        at = index.scalar(b)
        byte = b.pure(f"ashr i64 {at}, {per.bit_length() - 1}", at)
        pointer = b.pure(
            f"getelementptr i8, ptr {self.pointers[buffer.name]}, i64 {byte}",
            byte,
            self.pointers[buffer.name],
        )
        within = b.pure(f"and i64 {at}, {per - 1}", at)
        up = b.pure(f"mul i64 {within}, {dtype.bits}", within)
        return pointer, b.pure(f"trunc i64 {up} to i8", up)

    def one_packed(self, buffer: Buffer, index: Linear) -> Value:
        pointer, up = self.packed_address(buffer, index)
        byte = self.read(buffer, f"load i8, ptr {pointer}, align 1", pointer)
        low = self.b.pure(f"lshr i8 {byte}, {up}", byte, up)
        kind = register(buffer.dtype)
        return Value(self.b.pure(f"trunc i8 {low} to {kind}", low), buffer.dtype)

    def run_packed(self, buffer: Buffer, byte: Linear, lanes: int) -> Value:
        """Neighbouring elements that start and end with a byte."""
        dtype, per = buffer.dtype, 8 // buffer.dtype.bits
        count, pure = lanes // per, self.b.pure
        pointer = self.address(Buffer(buffer.name, buffer.shape, u8, buffer.scope), byte)
        bytes_ = self.read(buffer, f"load <{count} x i8>, ptr {pointer}, align 1", pointer)
        some, order = f"<{count} x i8>", vector_constant([n // per for n in range(lanes)], i32)
        each = pure(
            f"shufflevector {some} {bytes_}, {some} poison, <{lanes} x i32> {order}",
            bytes_,
        )
        ups = vector_constant([n % per * dtype.bits for n in range(lanes)], u8)
        low = pure(f"lshr <{lanes} x i8> {each}, {ups}", each)
        return Value(
            pure(f"trunc <{lanes} x i8> {low} to {register(dtype, lanes)}", low), dtype, lanes
        )

    def store_packed(
        self, buffer: Buffer, index: Linear, value: Value, lanes: int, mask: str | None
    ) -> None:
        if index.is_uniform:
            return self.put_packed(buffer, index, value.text)
        dtype, per = buffer.dtype, 8 // buffer.dtype.bits
        byte = index.divided(per, False) if index.stride == 1 and not lanes % per else None
        if byte is not None and mask is None and byte.offsets and index.constant % per == 0:
            return self.put_run(buffer, byte, value, lanes)
        for lane in range(lanes):
            one = self.b.pure(
                f"extractelement {register(dtype, lanes)} {value.text}, i64 {lane}", value.text
            )
            at = self.lane_of(index, lane)
            if mask is None:
                self.put_packed(buffer, at, one)
            else:
                active = self.b.pure(f"extractelement <{lanes} x i1> {mask}, i64 {lane}", mask)
                self.b.branch(active, lambda at=at, one=one: self.put_packed(buffer, at, one))
        return None

    def put_packed(self, buffer: Buffer, index: Linear, text: str) -> None:
        """Replace one element inside its byte."""
        b, dtype = self.b, buffer.dtype
        pointer, up = self.packed_address(buffer, index)
        wide = b.pure(f"zext {register(dtype)} {text} to i8", text)
        new = b.pure(f"shl i8 {wide}, {up}", wide, up)
        hole = b.pure(f"shl i8 {(1 << dtype.bits) - 1}, {up}", up)
        keep = b.pure(f"xor i8 {hole}, -1", hole)
        old = b.value(f"load i8, ptr {pointer}, align 1")
        kept = b.pure(f"and i8 {old}, {keep}", old, keep)
        both = b.pure(f"or i8 {kept}, {new}", kept, new)
        b.effect(f"store i8 {both}, ptr {pointer}, align 1")

    def put_run(self, buffer: Buffer, byte: Linear, value: Value, lanes: int) -> None:
        dtype, per = buffer.dtype, 8 // buffer.dtype.bits
        count, pure = lanes // per, self.b.pure
        every = f"<{lanes} x i8>"
        wide = pure(f"zext {register(dtype, lanes)} {value.text} to {every}", value.text)
        total = ""
        for part in range(per):
            order = vector_constant([n * per + part for n in range(count)], i32)
            some = pure(
                f"shufflevector {every} {wide}, {every} poison, <{count} x i32> {order}",
                wide,
            )
            up = constant(part * dtype.bits, u8, count).text
            some = pure(f"shl <{count} x i8> {some}, {up}", some) if part else some
            total = pure(f"or <{count} x i8> {total}, {some}", total, some) if total else some
        pointer = self.address(Buffer(buffer.name, buffer.shape, u8, buffer.scope), byte)
        self.b.effect(f"store <{count} x i8> {total}, ptr {pointer}, align 1")


def _is_near(index: Linear, lanes: int) -> bool:
    """Are the lanes' elements at known distances, each read by few, and few vectors cover them?"""
    if index.offsets is None or index.varying is not None:
        return False
    most = max(Counter(index.offsets).values())
    return most <= MOST_READERS and max(index.offsets) - min(index.offsets) < MOST_COVER * lanes


def _is_read_in_halves(dtype: DType, count: int) -> bool:
    """Of elements that are no power of two the code generator reads one after the other what is
    left over; a single part beside a word at most it inserts."""
    parts, first = count.bit_count(), 1 << (count.bit_length() - 1)
    return parts > 2 or (parts == 2 and first * _align(dtype) > WORD)


def _align(dtype: DType) -> int:
    return max(1, dtype.bits // 8)


def spread(b: Builder, value: Value, lanes: int) -> Value:
    """A scalar value in every one of `lanes` lanes."""
    if value.lanes == lanes:
        return value
    if value.const is not None:
        return constant(value.const, value.dtype, lanes)
    known = b.regions[-1].reused  # rounds of unrolled loops ask again and again
    found = known.get((value, lanes))
    if found is None:
        bits = None if value.bits is None else splat(b, memory(value.dtype), value.bits, lanes)
        text = splat(b, register(value.dtype), value.text, lanes)
        found = known[value, lanes] = Value(text, value.dtype, lanes, bits=bits)
    return found


def _only_lane(mask: str) -> int | None:
    """The one lane that a mask of constants lets through, if it is one."""
    on = [lane for lane, flag in enumerate(known_lanes(mask)) if flag]
    return on[0] if len(on) == 1 else None
