"""Hostile places for external data: outside the folder, not there, not a file, not that long.

Each place is a tensor's (location, offset, length) and what else lies in the folders. The model is
`seeds.external`; the file outside holds sound values, so that reading it would go unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.fuzz import seeds
from tests.fuzz.case import MODEL, SECRET, Case, File, Link, Pipe

SIZE = 256  # bytes of the weight


@dataclass(frozen=True)
class Place:
    """Where the weight is said to lie; `files` are added below the case's folder."""

    location: str
    offset: str = "0"
    length: str = str(SIZE)
    files: dict[str, File] = field(default_factory=dict)


PLACES = {
    "above": Place("../outside/secret.bin"),
    "down_and_above": Place("a/../../outside/secret.bin", files={"inside/a/x": b""}),
    "dots_in_the_middle": Place("./a/./../../outside/secret.bin", files={"inside/a/x": b""}),
    "backslashes": Place("..\\outside\\secret.bin"),
    "absolute": Place("/etc/passwd"),
    "home": Place("~/secret.bin"),
    "link": Place("link.bin", files={"inside/link.bin": Link("../outside/secret.bin")}),
    "linked_folder": Place("there/secret.bin", files={"inside/there": Link("../outside")}),
    "link_to_itself": Place("loop.bin", files={"inside/loop.bin": Link("loop.bin")}),
    "link_to_zeros": Place("zeros.bin", files={"inside/zeros.bin": Link("/dev/zero")}),
    "zeros": Place("/dev/zero"),
    "own_memory": Place("/proc/self/mem"),
    "standard_input": Place("/dev/stdin"),
    "pipe": Place("pipe", files={"inside/pipe": Pipe()}),
    "folder": Place("a", files={"inside/a/x": b""}),
    "the_folder_itself": Place("."),
    "nowhere": Place("absent.bin"),
    "empty": Place(""),
    "nul": Place("weights.bin\0.txt"),
    "long": Place("a" * 100_000),
    "url": Place("file:///etc/passwd"),
    "offset_past_the_end": Place("weights.bin", offset="100000"),
    "offset_huge": Place("weights.bin", offset=str(2**63)),
    "offset_wraps": Place("weights.bin", offset=str(2**64 - 256)),
    "offset_negative": Place("weights.bin", offset="-4"),
    "offset_no_number": Place("weights.bin", offset="0x10"),
    "length_short": Place("weights.bin", length="255"),
    "length_huge": Place("weights.bin", length=str(2**40)),
    "length_negative": Place("weights.bin", length="-1"),
    "length_no_number": Place("weights.bin", length="all"),
    "file_short": Place("short.bin", files={"inside/short.bin": b"\0" * 255}),
    "file_empty": Place("none.bin", files={"inside/none.bin": b""}),
}


def hostile_place(random: Random, name: str) -> Case:
    """The case of one place; the random generator adds a checksum now and then."""
    place = PLACES[name]
    model = seeds.external()
    weight = model.graph.initializer[0]
    seeds.place_outside(weight, place.location, 0, 0)
    for entry in weight.external_data:
        if entry.key == "offset":
            entry.value = place.offset
        elif entry.key == "length":
            entry.value = place.length
    if random.random() < 0.2:
        weight.external_data.add(key="checksum", value="0" * random.choice((0, 40, 10_000)))
    files: dict[str, File] = {
        MODEL: model.SerializeToString(),
        f"inside/{seeds.WEIGHTS_FILE}": seeds.weights_file(),
        SECRET: seeds.weights_file(),
    }
    return Case(f"external/{name}", files | place.files, must_refuse=True)
