"""Distil: the winners of all runs as a small table, which may become the next default.

In: examples, which know what points of their workloads took. Out: a challenger, rows that say for
which functions of which machines a decision is taken otherwise, and what they brought workloads
that they were not made of. The one idea: rows are added one by one, each the one that brings most,
as long as that is more than a row is worth; and whoever proposes rows does not judge them: each
workload is judged by the rows that the others alone would have made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.schedule.trace import Plain
from tilewright.strategy.learned import SHARING, THREADS, TRAITS, Range, Row, Table
from tilewright.support.record import record
from tilewright.tune.examples import Example

WORTH = 1.02  # times as fast as the default: less is no sign of a rule
LOSS = 0.99  # a family that is slower than that by a challenger refuses it
HARM = 0.97  # and a workload that is slower than that, none of a row: single times are less certain
ROW, RANGE, UNKNOWN = 0.03, 0.01, 0.01  # what a row, a range and an unknown effect count, in log
MOST_ROWS, MOST_TAKEN = 6, 2  # of a family on a class of machines; decisions that a row takes
DRAWS, P = 2000, 0.05  # of the bootstrap; how often its interval may be wrong
ROUNDS = 4  # of measuring what rows bring, after which others may come up
CANDIDATES = 12  # for what a row decides
ENDS = 6  # of the ranges of a trait
BEAM = 4  # ranges of one trait to which one of another is added
FEWEST = 2  # workloads that a row has to be seen to help

Taken = tuple[tuple[str, Plain], ...]
Scored = tuple[float, dict[str, Range], Taken]  # a row: what it is worth, for which, what it takes


@record
class Judged:
    """What a challenger brings a family on a class of machines. ratios: by workloads that it would
    change and did not see, how many times as fast; unknown: how many it would change without
    anybody knowing; gain, low: the mean of ratios, and the lower end of its interval; accepted;
    why: in words."""

    role: str
    machine: str
    ratios: dict[str, float]
    unknown: int
    workloads: int
    gain: float
    low: float
    accepted: bool
    why: str

    def __str__(self) -> str:
        seen = f"{len(self.ratios)} of {self.workloads} workloads changed"
        more = f", {self.unknown} more of unknown effect" if self.unknown else ""
        told = f"{self.gain:.3f} times as fast, at least {self.low:.3f}; " if self.ratios else ""
        verdict = "accepted" if self.accepted else "refused"
        return f"{self.role} on {self.machine}: {verdict}, {told}{seen}{more}; {self.why}"


@record
class Challenger:
    """A table that may replace another one: those rows of it that were accepted, and what stays.
    judged: family by family; proposed: all rows, accepted or not; tested: what was asked of
    workloads to judge them."""

    table: Table
    judged: tuple[Judged, ...]
    proposed: tuple[Row, ...]
    tested: tuple[tuple[Example, Row], ...]

    @property
    def is_accepted(self) -> bool:
        """Is there anything in it that is new?"""
        return any(j.accepted for j in self.judged)


def challenger(found: Sequence[Example], champion: Table, build: str) -> Challenger:
    """The table that these examples make. A family on a class of machines gets new rows where those
    are better than the champion's, by workloads that they were not made of; else it keeps them."""
    families = sorted({(e.role, e.machine_class) for e in found})
    kept = [r for r in champion if (r.role, r.machine) not in families]
    judged: list[Judged] = []
    proposed: list[Row] = []
    tested: list[tuple[Example, Row]] = []
    for role, machine in families:
        own = [e for e in found if (e.role, e.machine_class) == (role, machine)]
        old = Table(r for r in champion if (r.role, r.machine) == (role, machine))
        rows = induced(own, build)
        new = Table(rows)
        if rows or len(old):
            judged.append(_judged(own, old, new, tested))
            proposed += rows
        is_new = bool(rows or len(old)) and judged[-1].accepted
        kept += new if is_new else old
    kept.sort(key=lambda row: (row.role, row.machine))
    return Challenger(Table(kept), tuple(judged), tuple(proposed), tuple(tested))


def _judged(
    own: Sequence[Example], old: Table, new: Table, tested: list[tuple[Example, Row]]
) -> Judged:
    """What new rows bring instead of old ones, each workload by rows made of the others. The same
    function for other threads, or on other machines of the class, is no other workload. tested:
    takes what is asked of workloads."""
    ratios: dict[str, list[float]] = {}
    unknown = 0
    for e in own:
        others = [o for o in own if o.key != e.key]
        row, before = e.by(Table(induced(others))), e.by(old)
        tested += [(e, r) for r in (row, before, e.by(new)) if r is not None]
        if (row and row.take) == (before and before.take):
            continue
        effect, was = e.ratio(row), e.ratio(before)
        if effect is None or was is None:
            unknown += 1
        else:
            ratios.setdefault(e.key, []).append(effect / was)
    means = {key: _mean(values) for key, values in ratios.items()}
    gain, low = _mean([*means.values()]), _low([*means.values()])
    if old.digest == new.digest:
        accepted, why = False, "these are the rows that are there"
    elif len(means) < FEWEST:
        accepted, why = False, f"fewer than {FEWEST} workloads show that others' rows help them"
    elif gain < LOSS:
        accepted, why = False, "workloads that they were not made of lose"
    elif low <= 1:
        accepted, why = False, "that they help others may be chance"
    else:
        accepted, why = True, "workloads that they were not made of gain"
    of = own[0].role, own[0].machine_class
    return Judged(*of, means, unknown, len({e.key for e in own}), gain, low, accepted, why)


def _mean(ratios: Sequence[float]) -> float:
    """The geometric mean; 1 of none."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def _low(ratios: Sequence[float]) -> float:
    """The lower end of the mean's interval, by bootstrap over workloads; 1 of none."""
    if not ratios:
        return 1.0
    logs = np.log(np.asarray(ratios))
    drawn = np.random.default_rng(0).integers(0, len(logs), (DRAWS, len(logs)))
    return float(np.exp(np.quantile(logs[drawn].mean(1), P / 2)))


def induced(own: Sequence[Example], build: str = "", harm: float = HARM) -> list[Row]:
    """The rows that examples of one family on one class of machines make, those first that bring
    most; few, and none of what helps a single workload. harm: as fast has each one to be."""
    rows: list[Row] = []
    left = [*own]
    candidates = takes(own)
    while len(rows) < MOST_ROWS and left:
        score, where, taken = _Left(left).best(candidates, harm)
        if score <= 0:
            break
        row = Row(left[0].role, left[0].machine_class, where, dict(taken))
        matched = [e for e in left if row.is_for(e.traits or {})]
        ratios = _by_workload(row, matched)
        gain, low = round(_mean(ratios), 3), round(_low(ratios), 3)
        rows.append(replace(row, gain=gain, low=low, workloads=len(ratios), build=build))
        left = [e for e in left if e not in matched]
    return rows


def _by_workload(row: Row, matched: Iterable[Example]) -> list[float]:
    """What a row brings, workload by workload, where that is known."""
    ratios: dict[str, list[float]] = {}
    for e in matched:
        if (ratio := e.ratio(row)) is not None:
            ratios.setdefault(e.key, []).append(ratio)
    return [_mean(values) for values in ratios.values()]


def takes(own: Iterable[Example]) -> list[Taken]:
    """What rows might decide: each difference to the default of points that were faster, of as many
    workloads as a row has to help, alone and, where a point has few, together; those that may have
    brought most, for a strategy has to be run to find out."""
    seen: dict[Taken, dict[str, float]] = {}
    for e in own:
        for text, ratio in sorted(e.ratios.items()):
            told = e.differences(e.points[text]) if ratio >= WORTH else {}
            pairs = tuple(sorted(told.items()))
            several = [pairs] if 1 < len(pairs) <= MOST_TAKEN else []
            for taken in [*((pair,) for pair in pairs), *several]:
                most = seen.setdefault(taken, {})
                most[e.key] = max(most.get(e.key, 0.0), math.log(ratio))
    found = [taken for taken, most in seen.items() if len(most) >= FEWEST]
    return sorted(found, key=lambda taken: -sum(seen[taken].values()))[:CANDIDATES]


class _Left:
    """Examples that no row is for yet, as columns: which row is best for some of them."""

    def __init__(self, left: Sequence[Example]) -> None:
        self.left = left
        of = [e.key for e in left]
        self.weights = np.asarray([1 / of.count(key) for key in of])  # a workload counts once
        self.traits = {name: np.asarray([(e.traits or {})[name] for e in left]) for name in TRAITS}

    def best(self, candidates: Iterable[Taken], harm: float) -> Scored:
        """The best row, as its score, where it is for, and what it decides; a score of 0 for none.
        Candidates come by what they would be worth if they could choose their workloads."""
        found: list[tuple[float, int, Any, Taken]] = []
        for n, taken in enumerate(candidates):
            row = Row(self.left[0].role, self.left[0].machine_class, {}, dict(taken))
            ratios = [e.ratio(row) for e in self.left]
            effects = np.log(np.asarray([np.nan if r is None else r for r in ratios]))
            if self.weights[effects >= math.log(WORTH)].sum() >= FEWEST - 1e-6:
                gains = np.where(effects > 0, effects, 0.0)
                found.append((float((self.weights * gains).sum()) - ROW, -n, effects, taken))
        best: Scored = (0.0, {}, ())
        for most, _, effects, taken in sorted(found, key=lambda f: f[:2], reverse=True):
            if most <= best[0]:
                break
            best = max(best, self._placed(taken, effects, harm), key=lambda scored: scored[0])
        return best

    def _placed(self, taken: Taken, effects: Any, harm: float) -> Scored:
        """The best row with these decisions: for all, or for ranges of one trait or two."""
        is_sharing = {word for word, _ in taken} <= {*SHARING}
        names = [name for name in TRAITS if name != THREADS or is_sharing]
        helped = effects >= math.log(WORTH)
        wheres: list[dict[str, Range]] = [{}]
        wheres += [{n: limits} for n in names for limits in _ranges(self.traits[n], helped)]
        fits = np.stack([self._fits(where) for where in wheres])
        scores = self._scores(fits, effects, harm) - RANGE * (np.arange(len(wheres)) > 0)
        best = int(scores.argmax())
        found: Scored = (float(scores[best]), wheres[best], taken)
        for n in np.argsort(-scores, kind="stable")[:BEAM]:
            both = self._scores(fits & fits[n], effects, harm) - 2 * RANGE
            other = int(both.argmax())
            if both[other] > found[0] and not {*wheres[n]} & {*wheres[other]}:
                found = (float(both[other]), {**wheres[n], **wheres[other]}, taken)
        return found

    def _fits(self, where: dict[str, Range]) -> Any:
        fits = np.ones(len(self.left), bool)
        for name, (least, most) in where.items():
            fits &= self.traits[name] >= (-math.inf if least is None else least)
            fits &= self.traits[name] <= (math.inf if most is None else most)
        return fits

    def _scores(self, fits: Any, effects: Any, harm: float) -> Any:
        """What rows are worth, each for the examples in a line of `fits`: the logarithms of what
        they bring, less what it takes to know a row and doubts about what is not known; minus
        infinity for those that harm a workload, or help too few."""
        unknown = np.isnan(effects)
        known = np.where(unknown, 0.0, effects)
        helped = fits @ (self.weights * (known >= math.log(WORTH)))
        harmed = (fits & ~unknown & (np.exp(known) < harm)).any(1)
        worth = fits @ (self.weights * (known - UNKNOWN * unknown)) - ROW
        return np.where((helped < FEWEST - 1e-6) | harmed, -math.inf, worth)


def _ranges(trait: Any, helped: Any) -> Iterator[Range]:
    """Ranges of a trait around workloads that gain; open on a side where nothing else is known."""
    values, inside = trait.tolist(), sorted({*trait[helped].tolist()})
    if len(inside) > ENDS:
        inside = [inside[round(n * (len(inside) - 1) / (ENDS - 1))] for n in range(ENDS)]
    for n, least in enumerate(inside):
        for most in inside[n:]:
            limits = (least if least > min(values) else None, most if most < max(values) else None)
            if limits != (None, None):
                yield limits


def examined(
    found: Sequence[Example], champion: Table, build: str, measure: Callable[[Example, Row], None]
) -> Challenger:
    """`challenger`, where what rows would bring a workload is measured, unless it was seen beside
    the default already: times of single trials propose, duels decide. measure: notes what a row
    brings (`Example.note`)."""
    for _ in range(ROUNDS):
        made = challenger(found, champion, build)
        hoped = Table(_hoped(found))  # what single times speak against may be noise, too
        asked = [*made.tested, *((e, row) for e in found if (row := e.by(hoped)) is not None)]
        unseen = {(id(e), *sorted(row.take.items())): (e, row) for e, row in asked}
        unseen = {key: (e, row) for key, (e, row) in unseen.items() if not e.is_seen(row)}
        if not unseen:
            return made
        for e, row in unseen.values():
            measure(e, row)
    return challenger(found, champion, build)


def _hoped(found: Sequence[Example]) -> Iterator[Row]:
    """The rows there would be if none did harm."""
    for family in sorted({(e.role, e.machine_class) for e in found}):
        yield from induced([e for e in found if (e.role, e.machine_class) == family], harm=0.0)
