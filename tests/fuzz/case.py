"""A case: the files of one hostile folder, which of them is the model, and what must happen."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

MODEL = "inside/model.onnx"
ARTIFACT = "inside/model.tw"
SECRET = "outside/secret.bin"  # sound weights that no model inside may read


@dataclass(frozen=True)
class Link:
    """A symbolic link; the target is relative to the link's own folder, or absolute."""

    target: str


@dataclass(frozen=True)
class Pipe:
    """A named pipe that nobody writes to: opening it for reading waits for ever."""


File = bytes | Link | Pipe


@dataclass(frozen=True)
class Case:
    """`files` by path below the case's folder; `subject` is the one to open.

    `must_refuse`: accepting it would be a fault. Otherwise accepting and refusing are both fine.
    `may_run`: what was accepted is also called once, with zeros.
    """

    title: str
    files: dict[str, File] = field(repr=False)
    subject: str = MODEL
    must_refuse: bool = False
    may_run: bool = True

    def write(self, folder: Path) -> Path:
        """Write the files below `folder`; returns the subject's path."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            match content:
                case bytes():
                    path.write_bytes(content)
                case Link(target):
                    path.symlink_to(target)
                case Pipe():
                    os.mkfifo(path)
        return folder / self.subject
