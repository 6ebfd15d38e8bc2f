"""The pictures side by side, each above its likeliest classes."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont, ImageOps

WIDTH, HEIGHT, LINE = 360, 240, 24  # pixels: of a picture; of a line of text
BLUE, INK = (173, 208, 235), (40, 40, 40)


def draw(pictures: Sequence[Image.Image], found: Sequence[list[tuple[str, float]]]) -> Image.Image:
    """`found`: of each picture the classes and their probabilities, drawn as bars."""
    lines = max(map(len, found))
    sheet = Image.new("RGB", (WIDTH * len(pictures), HEIGHT + lines * LINE), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    for n, (picture, classes) in enumerate(zip(pictures, found, strict=True)):
        left = n * WIDTH
        sheet.paste(ImageOps.fit(picture.convert("RGB"), (WIDTH - 4, HEIGHT)), (left, 0))
        for line, (name, probability) in enumerate(classes):
            top = HEIGHT + line * LINE + 2
            pen.rectangle([left, top, left + (WIDTH - 4) * probability, top + LINE - 4], fill=BLUE)
            pen.text((left + 4, top + 1), f"{name} {probability:.0%}", INK, font)
    return sheet
