"""Families of operators that few models use are imported when a model has one of theirs."""

import subprocess
import sys

from tests.frontend.test_onnx_messages import DIGITS

SELDOM = "tilewright.frontend.onnx.seldom"
START = """
import pkgutil, sys
import tilewright.frontend.onnx as families
from tilewright.frontend.onnx.registry import TRANSLATORS, translator
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", START + code], check=True)


def test_an_ordinary_model_is_read_without_them() -> None:
    run(f"families.import_onnx({str(DIGITS)!r}); assert {SELDOM!r} not in sys.modules")


def test_an_operator_of_theirs_is_found() -> None:
    run(
        "assert ('', 'Loop') not in TRANSLATORS\n"
        "assert translator('', 'Loop') is TRANSLATORS['', 'Loop']\n"
        "assert translator('com.microsoft', 'FusedConv') is not None\n"
        "assert translator('', 'Nonsense') is None\n"
    )


def test_they_replace_no_translator_and_none_is_left_out() -> None:
    run(
        "before = dict(TRANSLATORS)\n"
        f"import {SELDOM}\n"
        "assert all(TRANSLATORS[key] is f for key, f in before.items())\n"
        "known = len(TRANSLATORS)\n"
        "for found in pkgutil.iter_modules(families.__path__, families.__name__ + '.'):\n"
        "    __import__(found.name)\n"
        "assert len(TRANSLATORS) == known\n"
    )
