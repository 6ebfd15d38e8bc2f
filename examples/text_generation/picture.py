"""The text; the darker a character's ground, the surer the network was of it."""

from __future__ import annotations

import re

from PIL import Image, ImageDraw, ImageFont

WIDTH, LINE, MARGIN = 760, 34, 12  # pixels
GROUND, WHITE, INK = (120, 180, 225), (255, 255, 255), (30, 30, 30)


def draw(text: str, probabilities: list[float]) -> Image.Image:
    """`probabilities`: of each character, 0 for those that were given."""
    font = ImageFont.load_default(20)
    positions, x, y = [], MARGIN, MARGIN
    for word in re.findall(r"\S*\s?", text):
        if x + font.getlength(word) > WIDTH - MARGIN:
            x, y = MARGIN, y + LINE
        for letter in word:
            positions.append((x, y))
            x += font.getlength(letter)
    picture = Image.new("RGB", (WIDTH, y + LINE + MARGIN), WHITE)
    pen = ImageDraw.Draw(picture)
    for letter, (x, y), p in zip(text, positions, probabilities, strict=True):
        shade = tuple(round(w + (g - w) * p) for w, g in zip(WHITE, GROUND, strict=True))
        pen.rectangle([x, y, x + font.getlength(letter), y + LINE - 8], fill=shade)
        pen.text((x, y), letter, INK, font)
    return picture
