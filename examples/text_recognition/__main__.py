"""What is written on a picture? PP-OCR: one net finds the lines, another one reads each.

    python -m examples.text_recognition [PICTURE] [--picture FILE.jpg]

In: a picture with horizontal text; `receipt.jpg` beside this file without one. Out: its lines,
from top to bottom.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

import tilewright as tw
from examples.beside import THREADS, compare, onnxruntime_session, shipped

INSTALL = "--no-deps rapidocr-onnxruntime"
IS_TEXT, IS_LINE = 0.3, 0.5  # probabilities: of a pixel, of a region's mean
GROW = 1.6  # the detector is trained on shrunk regions; this restores their size
LEAST_SIDE, HEIGHT = 3, 48  # pixels: of a region, of a line that is read
APART = 1e-3  # from onnxruntime: under a softmax between two likely letters last bits count

Run = Callable[[Any, dict[str, np.ndarray]], list[Any]]
Box = tuple[int, int, int, int]  # left, top, right, bottom


def as_input(picture: Image.Image) -> np.ndarray:
    """f32[1, 3, height, width] from -1 to 1: blue, green, red."""
    pixels = np.asarray(picture.convert("RGB"), np.float32)[..., ::-1] / 127.5 - 1
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def find_lines(probability: np.ndarray) -> list[Box]:
    """The boxes of connected regions of text in f32[height, width], from top to bottom."""
    labels, _ = ndimage.label(probability > IS_TEXT)
    found: list[Box] = []
    for n, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1):
        high, wide = rows.stop - rows.start, columns.stop - columns.start
        inside = labels[rows, columns] == n
        if min(high, wide) < LEAST_SIDE or probability[rows, columns][inside].mean() < IS_LINE:
            continue
        by = round(high * wide * GROW / (2 * (high + wide)))
        top, left = max(rows.start - by, 0), max(columns.start - by, 0)
        found.append((left, top, columns.stop + by, rows.stop + by))
    return sorted(found, key=lambda box: (box[1] // HEIGHT, box[0]))


def text_of(scores: np.ndarray, alphabet: list[str]) -> str:
    """CTC: the likeliest class of each column, repetitions and blanks (class 0) left out."""
    classes = scores.argmax(-1)
    first = np.flatnonzero(np.diff(classes, prepend=-1) != 0)
    return "".join(alphabet[c] for c in classes[first] if c)


def read(detect: Run, transcribe: Run, picture: Image.Image) -> tuple[list[Box], list[np.ndarray]]:
    """The box of each line and its scores, f32[columns, classes]: a call for each line."""
    (probability,) = detect(None, {"x": as_input(picture)})
    boxes = find_lines(probability[0, 0])
    scores = []
    for box in boxes:
        line = picture.crop(box)
        line = line.resize((round(line.width * HEIGHT / line.height), HEIGHT))
        scores.append(transcribe(None, {"x": as_input(line)})[0][0])
    return boxes, scores


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.text_recognition")
    source = Path(__file__).with_name("receipt.jpg")
    parser.add_argument("source", nargs="?", type=Path, default=source, metavar="PICTURE")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    picture = Image.open(arguments.source)
    picture = picture.resize([max(32, round(side / 32) * 32) for side in picture.size])

    package = "rapidocr_onnxruntime"
    detector = shipped(package, "models/ch_PP-OCRv4_det_infer.onnx", INSTALL)
    recogniser = shipped(package, "models/ch_PP-OCRv4_rec_infer.onnx", INSTALL)
    detect = tw.compile(detector, shapes={"x": as_input(picture).shape}, threads=THREADS)
    transcribe = tw.compile(recogniser, threads=THREADS)  # of lines of any width

    alphabet = ["", *transcribe.metadata["character"].splitlines(), " "]
    boxes, scores = read(detect.run, transcribe.run, picture)
    for (left, top, _, _), line in zip(boxes, scores, strict=True):
        print(f"({left:3}, {top:3})  {text_of(line, alphabet)}")
    if arguments.picture:
        for box in boxes:
            ImageDraw.Draw(picture).rectangle(box, outline=(220, 40, 40), width=2)
        picture.save(arguments.picture, quality=80)

    detector_there, reader_there = map(onnxruntime_session, (detector, recogniser))
    compare(
        f"{picture.width} x {picture.height} pixels, {len(boxes)} lines",
        lambda: read(detect.run, transcribe.run, picture)[1],
        lambda: read(detector_there.run, reader_there.run, picture)[1],
        APART,
    )


if __name__ == "__main__":
    main()
