"""How near each question is to each module that answers one of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

LEFT, CELL, ROW, HEAD = 250, 78, 34, 30  # pixels: questions; a column; a row; modules' names
GROUND, WHITE, INK = (90, 160, 215), (255, 255, 255), (30, 30, 30)


def draw(questions: Sequence[str], names: Sequence[str], cosines: np.ndarray) -> Image.Image:
    """`cosines`: f32[questions, names]; the nearer, the darker."""
    picture = Image.new("RGB", (LEFT + CELL * len(names), HEAD + ROW * len(questions)), WHITE)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(14)
    for n, name in enumerate(names):
        pen.text((LEFT + n * CELL + CELL / 2, HEAD / 2), name, INK, font, anchor="mm")
    for m, question in enumerate(questions):
        top = HEAD + m * ROW
        pen.text((LEFT - 8, top + ROW / 2), question, INK, font, anchor="rm")
        for n, cosine in enumerate(cosines[m]):
            fraction = min(max(float(cosine), 0.0), 1.0)
            shade = tuple(round(w + (g - w) * fraction) for w, g in zip(WHITE, GROUND, strict=True))
            left = LEFT + n * CELL
            pen.rectangle([left, top, left + CELL - 2, top + ROW - 2], fill=shade)
            pen.text((left + CELL / 2, top + ROW / 2), f"{cosine:.2f}", INK, font, anchor="mm")
    return picture
