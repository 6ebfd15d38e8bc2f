"""Pages of documentation that a tool writes and a person comments on."""

from pathlib import Path

BY_HAND = "<!-- What follows is written by hand; the tool keeps it. -->"


def write(path: Path, text: str) -> None:
    """Write `text` as the page `path`; what the page had from the line BY_HAND on stays below."""
    kept = ""
    if path.exists():
        _, mark, after = path.read_text().partition(BY_HAND)
        kept = mark and f"\n{mark}{after}"
    path.write_text(text.rstrip("\n") + "\n" + kept)
