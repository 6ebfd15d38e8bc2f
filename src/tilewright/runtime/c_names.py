"""Names of models and tensors as identifiers of C.

In: any text. Out: an identifier that is no word of C or C++ and, of a model, gives no file or
function a name that the system's own has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.support.errors import CompileError

KEYWORDS = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t "
    "char32_t class compl concept const consteval constexpr constinit const_cast continue co_await "
    "co_return co_yield decltype default delete do double dynamic_cast else enum explicit export "
    "extern false float for friend goto if inline int long mutable namespace new noexcept not "
    "not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires "
    "restrict return short signed sizeof static static_assert static_cast struct switch template "
    "this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned "
    "using virtual void volatile wchar_t while xor xor_eq "
    "main NULL EOF errno linux unix stdin stdout stderr".split()  # macros, too
)
# <name>.h is a header of C or POSIX, which -I would hide.
HEADERS = frozenset(
    "aio arpa assert complex cpio ctype dirent dlfcn elf endian errno fcntl features fenv float "
    "fmtmsg fnmatch ftw glob grp iconv inttypes iso646 langinfo libgen libintl limits link locale "
    "malloc math memory mqueue ndbm netdb nl_types poll pthread pwd regex sched search semaphore "
    "setjmp signal spawn stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio "
    "stdlib stdnoreturn string strings stropts syslog tar termios tgmath threads time trace uchar "
    "ulimit unistd utime utmpx wchar wctype wordexp tilewright".split()
)
# lib<name> is a library that compilers link (-l<name>), or <name>_open is a function of POSIX.
TAKEN = frozenset("c m dl rt pthread util resolv stdc++ gcc atomic crypt mq sem shm".split())
RESERVED = KEYWORDS | HEADERS | TAKEN
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_name(name: str) -> None:
    """Raise CompileError for a name that a model's library cannot have."""
    asked = f"cannot name a library {name!r}"
    why = ""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        why = "its functions begin with the name, and it is no identifier of C (letters, digits, _)"
    elif name.startswith("_"):
        why = "names that begin with _ are the compiler's own"
    elif name in KEYWORDS:
        why = "it is a word of C or C++"
    elif name in HEADERS:
        why = f"{name}.h is a header of the system"
    elif name in TAKEN:
        why = f"lib{name} or {name}_open is the system's"
    if why:
        raise CompileError(asked, why, remedy=f"name it {identifier(str(name))}")


def identifier(text: str, of: str = "model", reserved: frozenset[str] = RESERVED) -> str:
    """A name in C for what is called `text`: a model, or what `of` says."""
    name = re.sub(r"\W", "_", text[:64], flags=re.ASCII).lstrip("_") or of
    return f"{of}_{name}" if name[0].isdigit() or name in reserved else name


def parameters(texts: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Names for parameters that are called `texts`, no two the same and none of them `taken`."""
    made: dict[str, None] = dict.fromkeys(taken)
    found: list[str] = []
    for text in texts:
        first = name = identifier(text, "tensor", KEYWORDS)
        number = 1
        while name in made:
            number += 1
            name = f"{first}_{number}"
        made[name] = None
        found.append(name)
    return found
