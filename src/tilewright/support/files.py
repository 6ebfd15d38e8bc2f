"""What to say when a file cannot be read or written.

In: an OSError, or a path. Out: a message with what to do, in the form of the other errors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tilewright.support.errors import InputError, WriteFault

REMEDIES = {
    errno.ENOENT: "check the path; folders are not made",
    errno.ENOTDIR: "check the path: a part of it is a file, not a folder",
    errno.EISDIR: "name a file in that folder",
    errno.EACCES: "ask for its permissions, or name another folder",
    errno.EPERM: "ask for its permissions, or name another folder",
    errno.EROFS: "name a folder that can be written to",
    errno.ENOSPC: "free some space, or name another folder",
    errno.EDQUOT: "free some space, or name another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "close some files, or raise the limit (ulimit -n)",
}


def remedy_of(fault: OSError) -> str:
    """What to do about it."""
    return REMEDIES.get(fault.errno or 0, "check the path and what lies there")


def told(fault: OSError) -> str:
    """The message of an OSError: which file, why not, what to do."""
    why = fault.strerror or str(fault)
    name = fault.filename
    if isinstance(name, bytes):
        name = name.decode(errors="replace")
    what = f"cannot use '{name}': {why}" if name is not None else why
    return f"{what}\n  {remedy_of(fault)}"


def check_folder(path: Path) -> None:
    """Before the work, not after it: is there a folder for a file? Raises InputError."""
    if path.is_dir():
        why, remedy = "it is a folder", "name a file in it"
    elif not path.parent.is_dir():
        why, remedy = f"there is no folder '{path.parent}'", "make it, or name another"
    elif not os.access(path.parent, os.W_OK):
        why, remedy = f"the folder '{path.parent}' takes no files of yours", "name another"
    else:
        return
    raise InputError(f"cannot write '{path}'", why, remedy=remedy)


@contextmanager
def writing(path: Path) -> Generator[None]:
    """What writes a file. An OSError in here is raised as a WriteFault."""
    try:
        yield
    except WriteFault:
        raise
    except OSError as cause:
        why, remedy = cause.strerror or str(cause), remedy_of(cause)
        fault = WriteFault(f"cannot write '{path}'", why, remedy=remedy)
        fault.errno, fault.strerror, fault.filename = cause.errno, cause.strerror, str(path)
        raise fault from cause
