"""Draw `receipt.jpg`: printed lines on paper, in uneven light, with the noise of a camera.

python -m examples.text_recognition.make_receipt
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 480, 384  # multiples of 32, as the detector wants them
LINES = (  # x, y, size in pixels, text
    (96, 30, 34, "Tilewright Coffee"),
    (60, 110, 24, "2 espresso"),
    (340, 110, 24, "4.80"),
    (60, 155, 24, "1 cheesecake"),
    (340, 155, 24, "3.50"),
    (60, 230, 28, "TOTAL"),
    (325, 230, 28, "8.30"),
    (130, 310, 22, "Thank you, come again!"),
)


def receipt(lines: Sequence[tuple[int, int, int, str]] = LINES) -> Image.Image:
    paper = Image.new("L", (WIDTH, HEIGHT), 255)
    pen = ImageDraw.Draw(paper)
    for x, y, size, text in lines:
        pen.text((x, y), text, fill=45, font=ImageFont.load_default(size))
    grey = np.asarray(paper, np.float64)
    light = 1 - 0.45 * np.linspace(0, 1, WIDTH) * np.linspace(0.3, 1, HEIGHT)[:, None]
    noise = np.random.default_rng(0).normal(0, 5, (HEIGHT, WIDTH))
    warm = np.array([1.0, 0.97, 0.9])
    pixels = (grey * light + noise)[..., None] * warm
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    receipt().save(Path(__file__).with_name("receipt.jpg"), quality=80)
