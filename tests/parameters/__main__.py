"""The command: see the package."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from tests.parameters.judge import compiled, run_draws
from tests.parameters.subjects import subjects

MOST_SHOWN = 3  # failures of a subject


def main(
    count: Annotated[int, typer.Option(help="Draws, over all subjects.")] = 20_000,
    only: Annotated[str, typer.Option(help="Subjects whose name starts so.")] = "",
    seed: int = 0,
    opt_level: int = 3,
) -> None:
    chosen = [s for s in subjects() if s.name.startswith(only)]
    if not chosen:
        raise typer.BadParameter(f"no subject's name starts with '{only}'")
    each, total = max(1, count // len(chosen)), Counter[str]()
    for subject in chosen:
        failures = run_draws(subject, compiled(subject, opt_level), seed, 0, each)
        crashes = sum(f.why.startswith("CRASH") for f in failures)
        total.update(draws=each, crashes=crashes, wrong=len(failures) - crashes)
        print(f"{subject.name}: {each} draws, {crashes} crashes, {len(failures) - crashes} wrong")
        for failure in failures[:MOST_SHOWN]:
            print(f"    {failure.number}: {failure.why[:600]}")
    print(", ".join(f"{n} {what}" for what, n in total.items()))
    raise typer.Exit(int(total["crashes"] + total["wrong"] > 0))


if __name__ == "__main__":
    typer.run(main)
