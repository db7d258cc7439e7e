"""Messages in one line, however long what they quote is."""

from __future__ import annotations

import re

#: Characters of a message at most.
LONGEST = 300
#: A word is not cut below so many characters.
_WORD = 48
_GAP = "..."


def shortened(message: str, longest: int = LONGEST) -> str:
    """A message in one line of at most so many characters, without characters that do not print.

    What is too long loses the middle of its longest words first, since these are quoted input, and then the
    middle of the text: its beginning says where, its end says what to do.
    """
    # Whole megabytes may be quoted.
    head = (
        message
        if len(message) <= 40 * longest
        else f"{message[: 20 * longest]}{_GAP}{message[-20 * longest :]}"
    )
    line = " ".join(part.strip() for part in head.splitlines() if part.strip())
    line = "".join(c if c.isprintable() or "\ud800" <= c <= "\udfff" else repr(c)[1:-1] for c in line)
    words = re.split(r"( )", line)
    lengths = [len(word) for word in words]
    while (total := sum(lengths)) > longest:
        place = max(range(len(words)), key=lengths.__getitem__)
        if lengths[place] <= _WORD:
            break
        keep = max(_WORD, lengths[place] - (total - longest)) - len(_GAP)
        words[place] = _middle_cut(words[place], keep)
        lengths[place] = len(words[place])
    line = "".join(words)
    return line if len(line) <= longest else _middle_cut(line, longest - len(_GAP))


def _middle_cut(text: str, keep: int) -> str:
    """A text of so many characters, with a gap between its two thirds at the beginning and the rest."""
    first = keep * 2 // 3
    return f"{text[:first]}{_GAP}{text[len(text) - (keep - first) :]}"
