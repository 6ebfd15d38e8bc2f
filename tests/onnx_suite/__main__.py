"""Run the suite and print what fails, by cause.

    python -m tests.onnx_suite [PATTERN] [--trace] [--workers N] [--write]

--write keeps the list of what fails in docs/onnx_suite.md; of tests that PATTERN leaves out, the
page keeps what it says.
"""

from __future__ import annotations

import argparse
import re
import sys
import time

from rich.progress import track

from tests.onnx_suite.report import write
from tests.onnx_suite.suite import judge_all, tests


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_suite")
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--trace", action="store_true", help="show where each failure arose")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--write", action="store_true", help="keep the list in docs")
    options = parser.parse_args()
    names = [name for name in tests() if re.search(options.pattern, name)]
    start = time.perf_counter()
    judged = judge_all(names, options.workers)
    outcomes = list(track(judged, total=len(names), disable=not sys.stderr.isatty()))
    failed = sorted(o for o in outcomes if o.fault)
    for outcome in failed:
        print(f"{outcome.name}: {outcome.fault}")
        if options.trace:
            print(outcome.trace)
    slow = sorted(outcomes, key=lambda o: -o.seconds)[:5]
    print("slowest: " + ", ".join(f"{o.name} {o.seconds:.1f} s" for o in slow))
    seconds = time.perf_counter() - start
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} pass in {seconds:.0f} s")
    if options.write:
        write(outcomes, len(tests()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
