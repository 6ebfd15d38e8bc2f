"""What to say when a file cannot be read or written.

In: an OSError. Out: its message with what to do, in the form of the other errors.
"""

from __future__ import annotations

import errno

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
