"""Errors in four parts: what was asked, why not, the location in the program, what to do.

`TilewrightError` is the root of everything Tilewright raises on purpose. A `UserFault` is about the
user's program or file and renders its four parts; an `InternalFault` is ours and shows before and
after. The location may be a callable, so that printing a program costs nothing unless somebody
reads the message.
"""

from __future__ import annotations

from collections.abc import Callable

Location = str | Callable[[], str]


class TilewrightError(Exception):
    """Root of every error raised on purpose."""


LONGEST_PART = 6_000  # characters of a message's part: a screen or two


def shortened(text: str) -> str:
    """The text; its beginning and its end if it is long (a file may hold a million names)."""
    if len(text) <= LONGEST_PART:
        return text
    kept = LONGEST_PART // 2
    return f"{text[:kept]} … ({len(text) - 2 * kept} characters) … {text[-kept:]}"


class UserFault(TilewrightError):
    """A fault of the user's program or file, in four parts, which are its attributes.

    Args:
        what: the request, as a sentence without its end ("cannot vectorize loop 'i'").
        why: the reason.
        where: the program or file with the location marked, or a callable that gives it.
        remedy: what to do.
    """

    def __init__(self, what: str, why: str, where: Location = "", remedy: str = "") -> None:
        super().__init__(what, why)
        self.what, self.why, self.remedy = what, why, remedy
        self._where = where

    @property
    def where(self) -> str:
        """The marked location, rendered on demand."""
        return self._where if isinstance(self._where, str) else self._where()

    def __str__(self) -> str:
        text = f"{shortened(self.what)}: {shortened(self.why)}"
        where = shortened(self.where)
        if where:
            text += (
                "\n\n" + "\n".join("    " + line for line in where.rstrip("\n").split("\n")) + "\n"
            )
        if self.remedy:
            text += f"\n  {self.remedy}"
        return text


class ScheduleError(UserFault):
    """A schedule primitive refused: the rewrite would be illegal or change the result.

    `rule` is the number of the precondition that does not hold ("P2"), as the primitive's docstring
    gives it.
    """

    rule = ""


class ScheduleWarning(UserWarning):
    """Kernels of a model took another schedule than their family's: they are right, and slower."""


class SizeWarning(UserWarning):
    """A model file's sizes contradict each other: the warning says which are taken."""


class PluginWarning(UserWarning):
    """The operators that an installed package registers are not there, and why."""


class RuleWarning(UserWarning):
    """A rule by which a user schedules functions raised what is no refusal, and is left out."""


class CacheWarning(UserWarning):
    """The cache's folder is not used: others than this user may write to it."""


class CompileError(UserFault):
    """A model or program cannot be compiled as asked."""


class ImportFault(CompileError):
    """A model file is malformed, hostile or uses something unsupported."""


class InputError(UserFault):
    """The arrays given to an executable do not fit its inputs."""


# What the words of a check say where code for fixed sizes takes what code for all sizes does not.
ONE_MAY_BE_1 = "in code for fixed sizes, one of them may be 1"


class BroadcastFault(InputError):
    """Code for all sizes does not broadcast these; code for them alone does."""


class ArtifactError(UserFault):
    """An artifact file is damaged, truncated, hostile or made for another machine."""


class WriteFault(ArtifactError, OSError):
    """A file cannot be written where it is to be (an OSError too, with its number and path)."""


class MemoryFault(UserFault, MemoryError):
    """The memory that something needs cannot be had; the process goes on."""


class InternalFault(TilewrightError):
    """A fault of ours: a broken invariant, shown with what is known about it."""


class VerifyError(InternalFault):
    """A function breaks a law of its stage."""


class PassError(InternalFault):
    """A pass raised or gave an invalid function; the message shows before and after."""
