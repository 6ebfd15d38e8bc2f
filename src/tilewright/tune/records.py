"""Records: what a tuner learns, as plain data.

In: what was tried, and what came of it. Out: trials and champions. The one idea: raw times are of
one build of the compiler, on one machine; what outlives both is a point, which is a suggestion
wherever it did not win itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tilewright.schedule.trace import Plain
from tilewright.support import knobs
from tilewright.support.cache import Cache
from tilewright.support.errors import UserFault
from tilewright.support.llvm import release
from tilewright.support.makers import makers
from tilewright.support.record import record
from tilewright.support.version import __version__

OK = "ok"  # the status of a trial whose results were right


class RecordsFault(UserFault):
    """Records of tuning cannot be read or kept."""


@record
class Build:
    """What made the code that was timed. key: changes with all that makes kernels
    (`support.makers`); version: the package's; llvm: LLVM's release."""

    key: str
    version: str = __version__
    llvm: str = ""


@record
class Trial:
    """A point that was tried.

    point: in the names of the function. samples: seconds of each run, raw. status: `OK`, or a word
    for what came instead. compile_seconds: what it took to compile. made_at: seconds since 1970
    UTC, None for now. sentinel: seconds of the kernel that tells how busy the machine was.
    """

    point: Mapping[str, Plain]
    samples: tuple[float, ...] = ()
    status: str = OK
    compile_seconds: float = 0.0
    made_at: int | None = None
    sentinel: float | None = None


@record
class Champion:
    """The best point of a workload on a machine, by one build.

    point: in the names of the function. seconds: of a run. ratio: the default's seconds over
    these. low, high: the ends of the ratio's interval. verified: its results were compared with the
    reference's. made_at: seconds since 1970 UTC, None for now.
    """

    point: Mapping[str, Plain]
    seconds: float
    ratio: float
    low: float
    high: float
    verified: bool = False
    made_at: int | None = None


@record
class Suggestion:
    """A point that won elsewhere, to be tried here.

    point: in the names of the function asked for. origin: what is not the same there: "sizes",
    "machine" (its line), "threads" or "build", the first of these that differs. distance: how far
    its sizes are, the sum of |log2| of their ratios. ratio: the default's seconds over its own,
    there.
    """

    point: dict[str, Plain]
    origin: str
    distance: float
    ratio: float


@record
class Measured:
    """A trial with all that it belongs to, for models. point: in canonical names
    (`Workload.to_canonical`). Samples of different builds or machines are not comparable."""

    workload: str
    family: str
    sizes: tuple[int, ...]
    machine: str
    threads: int
    build: str
    point: dict[str, Plain]
    samples: tuple[float, ...]
    status: str
    compile_seconds: float
    made_at: int
    sentinel: float | None


@record
class Crowned:
    """A champion with all that it belongs to. text: of the workload, canonical, as it parses;
    machine: its line; build: its key. The champion's point is in canonical names."""

    workload: str
    text: str
    machine: str
    threads: int
    build: str
    champion: Champion


@record
class Stats:
    """How many records there are. current: trials of this build; nbytes: of the file."""

    workloads: int
    families: int
    machines: int
    builds: int
    trials: int
    current: int
    champions: int
    nbytes: int


def this_build() -> Build:
    """The build that this process has imported, known by what the cache of kernels knows it by."""
    memory = Cache(knobs.kernel_folder(), within=knobs.cache_folder())
    return Build(makers(memory), __version__, release())


def point_text(point: Mapping[str, Plain]) -> str:
    """A point as text: equal points are equal text. Raises RecordsFault for what is none."""
    try:
        text = json.dumps(
            dict(point), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
        )
        text.encode()
    except (TypeError, ValueError) as fault:
        raise RecordsFault("cannot record a point", f"it is not plain data ({fault})") from fault
    return text
