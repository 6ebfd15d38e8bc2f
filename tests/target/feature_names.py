"""src/tilewright/target/feature_names.py: the instruction-set features that LLVM has names for.

    python -m tests.target.feature_names        writes the file

In: what LLVM prints where "+help" is asked for, in a process for each architecture (it prints
once). Out: the names.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from tilewright.target.processors import ARCHITECTURES

FILE = Path(__file__).parents[2] / "src/tilewright/target/feature_names.py"
ASK = """
import sys, llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu=sys.argv[2], features="+help")
"""
HEAD = '''"""The names of instruction-set features that LLVM has for each architecture.

Written by `python -m tests.target.feature_names`: LLVM prints them, but cannot be asked through
llvmlite; of a name that it does not know it only prints a warning, when code is made.
"""

from __future__ import annotations

_WORDS = {
'''
TAIL = """}
NAMES = {architecture: frozenset(words.split()) for architecture, words in _WORDS.items()}
"""


def printed_by_llvm(architecture: str) -> list[str]:
    """The names that this LLVM knows."""
    _, cpu, triple = ARCHITECTURES[architecture]
    command = [sys.executable, "-c", ASK, triple, cpu]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, _, listed = done.stderr.partition("Available features for this target:")
    return sorted(re.findall(r"^  (\S+) +- ", listed, re.MULTILINE))


def text() -> str:
    """The file."""
    parts = [HEAD]
    for architecture in ARCHITECTURES:
        words = textwrap.fill(
            " ".join(printed_by_llvm(architecture)), 96, break_on_hyphens=False,
            break_long_words=False,
        )  # fmt: skip
        parts.append(f'    "{architecture}": """\n{words}\n""",\n')
    return "".join([*parts, TAIL])


if __name__ == "__main__":
    FILE.write_text(text())
