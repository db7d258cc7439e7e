"""`InputError`, for mistakes in a user's input, and functions that tell system errors from bugs."""

from __future__ import annotations

import contextlib
import difflib
import errno
import operator
import os
import re
import textwrap
from collections.abc import Iterable, Iterator

#: System errors from outside the program: full disks, missing rights, limits. A missing file is not among
#: them; it is a mistake of the user (reported earlier) or of this program.
SURROUNDINGS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EPIPE, errno.ESTALE, errno.ENOLCK),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.ETXTBSY, errno.ENXIO),
    }
)
#: The same errors in the output of tools; compilers report when the system kills them.
_TOLD = re.compile(
    "|".join(
        [
            *(
                re.escape(os.strerror(number))
                for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENOMEM)
            ),
            "out of memory",
            "Killed signal terminated program",
            "virtual memory exhausted",
        ]
    )
)
#: Characters of a list of names in a message, which would be cut elsewhere if it were longer.
_LISTED = 120


class InputError(ValueError):
    """Invalid input. The message says where, what was found, and what is needed.

    The command line prints it as one line on stderr and exits with code 2.
    """


class UnwritableError(InputError):
    """The cache cannot be written, because of a full disk for instance: no fault of a model or a machine."""


@contextlib.contextmanager
def refusals_ignored() -> Iterator[None]:
    """Suppress `InputError`, where something else does if this is refused; but not `UnwritableError`."""
    try:
        yield
    except UnwritableError:
        raise
    except InputError:
        pass


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> str:
    """The message for an unknown name: what was probably meant, and the known names or `where` they are."""
    names = list(known)
    near = " or ".join(map(repr, difflib.get_close_matches(name, names, 3)))
    listed = textwrap.shorten(", ".join(names), _LISTED, placeholder=" ...")
    hint = f"did you mean {near}? " if near else ""
    return f"unknown {what} {name!r:.80}; {hint}{where or 'valid are ' + (listed or 'none')}"


def of_surroundings(error: BaseException) -> bool:
    """Whether the system (disk, rights, limits), not this program, caused an unexpected error."""
    if isinstance(error, OSError):
        # `tempfile` raises an error of its own for full disks.
        return error.errno in SURROUNDINGS or "No usable temporary directory" in str(error)
    return isinstance(error, MemoryError)


def surroundings_in(log: str) -> str | None:
    """The system error that the end of a tool's log names; None if it names none."""
    found = _TOLD.search(log[-20_000:])
    return None if found is None else found[0]


def address(text: str) -> int:
    """Parses a decimal or 0x number; raises `InputError` for anything else."""
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"an address must be a number, as 4096 or 0x1000, not {text!r}") from None


def whole_number(name: str, value: object, least: int | None = None) -> int:
    """Checks that a value is an integer of at least `least`; raises `InputError` with its name otherwise."""
    try:
        found = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = None
    if found is None or isinstance(value, bool) or (least is not None and found < least):
        limit = "" if least is None else f" of at least {least}"
        raise InputError(f"{name} must be a whole number{limit}, not {value!r}")
    return found
