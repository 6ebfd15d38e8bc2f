"""The field's names: words of our own that a standard one has replaced do not come back.

Where a thing has a name in the literature of compilers, code and docs use that one. Each row of
`OURS` is a pattern of an old word, what is said instead, and where the pattern means another thing.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("src", "benchmarks", "examples", "tools")
ALL = (*CODE, "docs", "README.md", "tests")
LOWERING = ("src/tilewright/lower", "src/tilewright/codegen", "tests/lower", "tests/codegen")
STRATEGY = ("src/tilewright/strategy", "tests/strategy")
ROOMS = tuple(f"src/tilewright/{room}" for room in ("driver", "runtime", "backend", "frontend"))
ROOMS = (*ROOMS, *CODE[1:])
RECORDS = {"space.md"}  # pages that keep the words of their day
PAGES = (p.name for p in sorted((ROOT / "docs").glob("*.md")) if p.name not in RECORDS)
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in PAGES))
TEXT = {".py", ".md", ".c", ".h", ".toml"}

LOOPS = tuple(  # the rooms of loops and what they stand on
    f"{top}/{room}"
    for top in ("src/tilewright", "tests")
    for room in ("arith", "ir", "schedule", "strategy", "support", "target", "te")
)
GRAPH = ("src/tilewright/graph", "tests/graph")


@dataclass(frozen=True)
class Old:
    """A word of our own. pattern: it, as a regular expression; instead: the field's word; under:
    the folders and files where it is not found; allowed: paths (or beginnings of paths) → why the
    pattern is something else there."""

    pattern: str
    instead: str
    under: tuple[str, ...] = ALL
    allowed: dict[str, str] = field(default_factory=dict)


OURS = (
    Old(r"\b(Part)?Site\b", "NodeContext", CODE + ("docs", "tests/frontend")),
    Old(r"frontend[./]onnx[./](regular|grams|lean)\b", "regex, ngrams, lazy_weights"),
    Old(r"(?<![-\w])grams\b", "n-grams"),
    Old(
        r"frontend[./]onnx[./]alike\b|\b(padded_alike|alike_texts)\b|\balike\(n\b",
        "runtime_broadcast",
    ),
    Old(
        r"graph[./](settle|agree)\b|\b(read_settled|meet_under|\w+\.settle|\w+\.meet)\b",
        "unify, shape_guard",
        ("src/tilewright/graph", "src/tilewright/frontend", "docs", "tests/graph"),
    ),
    Old(r"(frontend[./](onnx|torch)|graph[./]ops)[./]measured\b", "data_dependent"),
    Old(
        r"(?i)(?<!in[ _-])(?<!in the )(?<!in one )(?<!the last )(?<!out of )"
        r"(?<![a-z-])places?(?![a-z])|\bin places\b",
        "elements, indices, positions, pixels, locations",
        (*ROOMS, *LOOPS, *GRAPH, *PAGES),
    ),
    Old(
        r"(?i)(?<![a-z])measured(?![a-z])",
        "data-dependent (sizes), calibrated (machines)",
        ROOMS[:4],
        {
            "src/tilewright/driver/cli.py": "what a benchmark measures",
            "src/tilewright/driver/calibrate.py": "times of kernels",
            "src/tilewright/runtime/executor.py": "peaks of a machine",
            "src/tilewright/runtime/native/probe.c": "peaks of a machine",
            "src/tilewright/backend/backend.py": "times of kernels",
        },
    ),
    Old(
        r"(?i)\b(an?|the|each|every|its|their|last|own|equal) shares?\b|\bshares? of\b"
        r"|(?<![a-z_])shares?(?=( [-+*/=]|_out\b|\[))|(?-i:\bSHARES?\b)",
        "chunk, fraction, weight",
        (*ROOMS, *PAGES),
    ),
    Old(
        r"(?i)(?<![a-z.])(pieces?|strips?|abreast)(?![a-z])",
        "part, chunk, block, tile",
        (*ROOMS, *PAGES),
    ),
    Old(
        r"(?i)(?<![a-z])bands?(?![a-z])",
        "block, tile",
        (*ROOMS, *PAGES),
        {
            "src/tilewright/frontend/onnx/signal.py": "of a mel filter bank",
            "docs/operators.md": "of a mel filter bank",
        },
    ),
    Old(r"(?i)(?<![a-z])alike(?![a-z])", "equal, the same", (*ROOMS, *PAGES)),
    Old(
        r"(?i)(?<![a-z])turned(?! off)(?![a-z])",
        "rotated, transposed, reversed",
        (*ROOMS, *PAGES),
    ),
    Old(
        r"(?i)(?<![a-z])(ahead|usual)(?![a-z])",
        "prefetched, in the background; default",
        ROOMS,
    ),
    Old(
        r"(?<![a-z])(meets?|met|settle[sd]?)(?![a-z])",
        "unify, are equal",
        ROOMS,
    ),
    Old(r"\balike\b", "equal, the same; same_input", GRAPH),
    Old(r"\blie\b(?=( =|\.\w|: [A-Z]\w+[,)]))", "channel layout", (*GRAPH, *LOOPS)),
    Old(r"\bmeasured\b|_measured\b", "data-dependent", ("src/tilewright/graph",)),
    Old(r"\bturned\b", "transposed, rotated", GRAPH),
    Old(r"(?i)(\b|_)abreast\b", "in lanes, vectorised", ("src/tilewright/graph",)),
    Old(
        r"(?i)(?<![.\w])_?(pieces?|strips?|bands?)\b|\bshare(?= [=*]|:)|_share\b",
        "block, tile, chunk, live range",
        GRAPH,
    ),
    Old(r"\b(written|write|writes) out\b|written_out\b|\bwrite_out\b", "inlined, unrolled", GRAPH),
    Old(
        r"(?i)\b(settle[sd]?|meets?|met|meetings?|agrees?)\b",
        "unify, shape guard; post-dominator, conflict",
        GRAPH,
    ),
    Old(r"(?i)\busual\b", "default", GRAPH),
    Old(r"\bahead\b", "prefetch, further", GRAPH),
    Old(r"emit\(\"places\"", "nonzero"),
    Old(
        r"(?i)\bmeasured (sizes?|symbols?|shapes?|dimensions?)\b",
        "data-dependent sizes",
        tuple(f"src/tilewright/{room}" for room in ("graph", "frontend", "driver"))
        + (*LOOPS, "docs"),
    ),
    Old(
        r"\b(first|second|third)[_ ](level )?cache\b",
        "L1, L2, L3",
        allowed={"tests/target/test_calibration.py": "a file that an earlier version kept"},
    ),
    Old(r"\b(afar|AFAR|in_the_way)\b|\bcosts\.region\b", "transfer, overlap_penalty, fork_join"),
    Old(r"-costs=usual|\bcosts\.usual\b", "-costs=default"),
    Old(r"target[./]measured\b|machine --measure\b|measured machine\b", "calibrated"),
    Old(r"\btwo_axes\b(?=[.(,])|passes[./]two_axes\b", "lower_to_2d"),
    Old(r"\bphases_as_channels\b", "sub_pixel"),
    Old(r"\bmerge_products\b", "fuse_gemms"),
    Old(r"\bfold_affine\b", "fold_batch_norm"),
    Old(r"passes[./]recognise\b|\brecognise\(", "match_patterns"),
    Old(r"(ops|cpu)[./]response\b|\brole\W+squares\b", "lrn, local_response_norm"),
    Old(r"\bllvm_squares\b|\bturned_candidates\b", "llvm_transpose, transposable"),
    Old(
        r"(?i)(?<![a-z])shares(?![a-z])|\b(an?|the|each|every|last|next|one|for) share\b"
        r"|\bshare (of|[-+*/%<>=])",
        "chunk",
        LOWERING,
    ),
    Old(
        r"(?i)(?<![a-z.])(pieces?|strips?|bands?)(?![a-z])",
        "block, tile, tail tile, launch body",
        LOWERING,
    ),
    Old(
        r"(?i)(?<![a-z])(?<!in[ _])(?<!units in the last )place[sd]?(?![a-z])",
        "element, index, position, location; allocate",
        LOWERING,
    ),
    Old(r"(?i)(?<![a-z])abreast(?![a-z])", "unrolled and jammed", LOWERING),
    Old(
        r"(?i)(?<![a-z])(homes?|swept)(?![a-z])",
        "allocation depth, level, relaxed region",
        LOWERING,
    ),
    Old(r"\bMOST_MEASURED\b|\bMeasure\(", "MOST_SIZE, ReadSizes", CODE),
    Old(r"\bfetch_ahead\b|(cpu|support)[./]ahead\b|\bmade_ahead\b", "prefetch_panels, background"),
    Old(
        r"(?i)(?<![a-z])(swept|sweep(s|ing)?|driven|drives?|(?<!cache_)homes?(?!\())(?![a-z])",
        "relaxed region, bound, allocation scope",
        LOOPS,
    ),
    Old(
        r"(?i)(?<![a-z])(flight|bands?|strips?(?!\()|pieces?|abreast)(?![a-z])|\bshares? of\b",
        "accumulators, tile, part, rows, chunk",
        LOOPS,
    ),
    Old(
        r"(?i)(?<![a-z])(turned|alike|settle[sd]?)(?![a-z])",
        "transposed or swapped, equal, canonical or unified",
        (*LOOPS, *LOWERING),
    ),
    Old(
        r"(?i)(?<![a-z])(ahead|writ(e|ten)[_ -]out)(?![a-z])",
        "prefetch, unroll or unrolled",
        (*LOOPS, *LOWERING),
    ),
    Old(  # the noun: threads may share loops
        r"(?i)\b(an?|the|each|every|its|their|no|one|own|equal|even) shares?\b"
        r"|(?<![a-z])shares?(?=_)|(?<=_)shares?(?![a-z])|(?-i:\bSHARES?\b)",
        "chunk",
        STRATEGY,
    ),
    Old(r"\blie( =|\.\w)", "layout", STRATEGY),
    Old(
        r"\b(wishes|forms)\b",
        "preferences, layouts",
        tuple(
            f"src/tilewright/graph/passes/{name}.py"
            for name in (
                "choose_layouts",
                "packed_values",
                "packed_images",
                "packed_products",
                "sought_layouts",
            )
        ),
    ),
)


def texts(under: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(path from the root, content) of each file of text."""
    return itertools.chain.from_iterable(map(texts_of, under))


@functools.cache
def texts_of(name: str) -> list[tuple[str, str]]:
    """Those of one file or folder."""
    top = ROOT / name
    return [
        (path.relative_to(ROOT).as_posix(), path.read_text())
        for path in (sorted(top.rglob("*")) if top.is_dir() else [top])
        if path.suffix in TEXT and path.is_file() and path != Path(__file__)
    ]


def uses(old: Old) -> list[str]:
    """Where an old word stands, as "path:line: what is there"."""
    pattern = re.compile(old.pattern)
    return [
        f"{path}:{number}: {line.strip()}"
        for path, content in texts(old.under)
        if not any(path.startswith(start) for start in old.allowed)
        and pattern.search(content)  # most files have none
        for number, line in enumerate(content.splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("old", OURS, ids=lambda old: old.instead)
def test_the_fields_names_are_used(old: Old) -> None:
    found = uses(old)
    assert not found, f"say {old.instead} instead:\n" + "\n".join(found)


@pytest.mark.parametrize("old", OURS, ids=lambda old: old.instead)
def test_exceptions_are_needed(old: Old) -> None:
    """A path that is allowed an old word has it; else the exception goes."""
    pattern = re.compile(old.pattern)
    for start in old.allowed:
        some = [text for path, text in texts(old.under) if path.startswith(start)]
        assert any(map(pattern.search, some)), f"{start} no longer says {old.pattern}"
