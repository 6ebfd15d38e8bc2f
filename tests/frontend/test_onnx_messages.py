"""Reading a file needs none of onnx but its messages, which are those that onnx has."""

import subprocess
import sys
from pathlib import Path

from tests.frontend import onnx_arity
from tilewright.frontend.onnx import arity

DIGITS = Path(__file__).parents[2] / "src/tilewright/driver/demo/digits.onnx"


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_is_read_without_the_package() -> None:
    run(
        "import sys, tilewright.frontend.onnx as f\n"
        f"f.import_onnx({str(DIGITS)!r})\n"
        "assert 'onnx' not in sys.modules\n"
        "from tilewright.frontend.onnx import messages\n"
        "import onnx, onnx.helper\n"
        "assert onnx.ModelProto is messages.ModelProto\n"
        "assert onnx.NodeProto is messages.NodeProto\n"
        f"f.import_onnx(onnx.load({str(DIGITS)!r}))\n"
    )


def test_what_imported_the_package_first_has_the_same_messages() -> None:
    run(
        "import onnx\n"
        "from tilewright.frontend.onnx import messages\n"
        "assert onnx.ModelProto is messages.ModelProto\n"
    )


def test_the_table_of_counts_is_that_of_the_schemas() -> None:
    assert onnx_arity.newest() == arity.NEWEST
    assert onnx_arity.rows() == arity.ARITY, "python -m tests.frontend.onnx_arity writes it"
