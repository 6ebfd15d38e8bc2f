"""Number to case: the same number gives the same case, whatever was asked before.

One case in five is an artifact where artifacts are given; of the others three in ten are damaged
bytes, six in ten distorted structures in turn, and one in ten hostile places.
"""

from __future__ import annotations

from random import Random

from tests.fuzz import seeds
from tests.fuzz.artifacts import hostile_artifact
from tests.fuzz.case import MODEL, Case, File
from tests.fuzz.damage import DAMAGES
from tests.fuzz.places import PLACES, hostile_place
from tests.fuzz.structure import DISTORTIONS

DAMAGED, DISTORTED = (0, 3, 6), (1, 2, 4, 5, 7, 8)  # of ten cases; what is left is a hostile place


def case(number: int, artifacts: dict[str, bytes]) -> Case:
    """The case of this number; `artifacts` are sound ones by the name of their seed."""
    random = Random(number)
    if artifacts and number % 5 == 4:
        name = random.choice(sorted(artifacts))
        return hostile_artifact(random, name, artifacts[name])
    turn = number - number // 5 if artifacts else number
    round_, place = divmod(turn, 10)
    if place in DAMAGED:
        return damaged(random)
    if place in DISTORTED:
        names = list(DISTORTIONS)
        which = round_ * len(DISTORTED) + DISTORTED.index(place)
        return distorted(random, names[which % len(names)])
    return hostile_place(random, list(PLACES)[round_ % len(PLACES)])


def sound(name: str) -> Case:
    """The unchanged seed."""
    return Case(f"sound/{name}", folder(seeds.SEEDS[name]().SerializeToString()))


def folder(model: bytes) -> dict[str, File]:
    return {MODEL: model, f"inside/{seeds.WEIGHTS_FILE}": seeds.weights_file()}


def damaged(random: Random) -> Case:
    name, damage = random.choice(list(seeds.SEEDS)), random.choice(DAMAGES)
    data = damage(seeds.SEEDS[name]().SerializeToString(), random)
    return Case(f"{name}/{damage.__name__}", folder(data))


def distorted(random: Random, change: str) -> Case:
    """One distortion of the first seed, in random order, that has something to change.

    One in five is distorted once more or damaged, and then nothing is known about what must happen.
    """
    distortion = DISTORTIONS[change]
    for name in random.sample(list(seeds.SEEDS), len(seeds.SEEDS)):
        model = seeds.SEEDS[name]()
        if distortion.change(model, random) is False:
            continue
        if random.random() < 0.8:
            files = folder(model.SerializeToString())
            return Case(f"{name}/{change}", files, must_refuse=distortion.breaks)
        more = random.choice(list(DISTORTIONS))
        try:
            DISTORTIONS[more].change(model, random)
        except (IndexError, ValueError):  # the first left nothing for the second
            more = "alone"
        return Case(f"{name}/{change}/{more}", folder(model.SerializeToString()))
    raise AssertionError(f"no seed has anything for '{change}'")
