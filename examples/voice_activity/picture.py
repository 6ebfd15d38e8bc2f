"""The sound, where it is speech, and how sure the model is."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, WAVE, LINE, TEXT = 900, 150, 70, 30  # pixels: of the picture, of its parts' heights
GREY, BLUE, GREEN, INK = (150, 150, 150), (31, 119, 180), (223, 240, 216), (40, 40, 40)


def draw(
    sound: np.ndarray,
    probabilities: np.ndarray,
    window: int,
    stretches: list[tuple[float, float]],
    rate: int,
) -> Image.Image:
    """The waveform above the probability of each window; seconds below; speech on green."""
    picture = Image.new("RGB", (WIDTH, WAVE + LINE + TEXT), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(14)
    scale = WIDTH / len(sound)  # pixels in a sample
    for begin, end in stretches:
        pen.rectangle([begin * rate * scale, 0, end * rate * scale, WAVE + LINE], fill=GREEN)
    for x, part in enumerate(np.array_split(sound, WIDTH)):
        top, bottom = WAVE / 2 * (1 - part.max()), WAVE / 2 * (1 - part.min())
        pen.line([x, top, x, bottom], fill=GREY)
    points = [
        ((n + 0.5) * window * scale, WAVE + LINE - 2 - (LINE - 8) * float(p))
        for n, p in enumerate(probabilities)
    ]
    pen.line(points, fill=BLUE, width=2)
    for second in range(int(len(sound) / rate) + 1):
        pen.text((second * rate * scale + 3, WAVE + LINE + 6), f"{second} s", INK, font)
    return picture
