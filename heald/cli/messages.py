"""Messages in one line, however long what they quote is."""

from __future__ import annotations

import re

#: Characters of a message at most.
LONGEST = 300
#: A word is not cut below so many characters, and a path or what is quoted not below so many.
_WORD, _NAME = 48, 24
_GAP = "..."


def shortened(message: str, longest: int = LONGEST) -> str:
    """A message in one line of at most so many characters, without characters that do not print.

    What is too long loses the middle of its longest words first, since these are quoted input, paths all but
    the end, and then the middle of the text: its beginning says where, its last clauses say what to do.
    """
    # Whole megabytes may be quoted.
    most = 20 * longest
    head = message if len(message) <= 2 * most else f"{message[:most]}{_GAP}{message[-most:]}"
    line = " ".join(part.strip() for part in head.splitlines() if part.strip())
    line = "".join(c if c.isprintable() or "\ud800" <= c <= "\udfff" else repr(c)[1:-1] for c in line)
    words = re.split(r"( )", line)
    for least, kind in ((_WORD, ""), (_NAME, r"/|^'")):
        named = [place for place, word in enumerate(words) if re.search(kind, word)]
        while (over := sum(map(len, words)) - longest) > 0 and named:
            place = max(named, key=lambda place: len(words[place]))
            if len(words[place]) <= least:
                break
            keep = max(least, len(words[place]) - over) - len(_GAP)
            word = words[place]
            words[place] = f"{_GAP}{word[-keep:]}" if "/" in word else _middle_cut(word, keep)
    line = "".join(words)
    if len(line) <= longest:
        return line
    lasts = (len(line) - m.start() for m in re.finditer("; ", line))
    last = next((last for last in lasts if last <= longest * 2 // 3), longest // 3)
    return _middle_cut(line, longest - len(_GAP), last)


def _middle_cut(text: str, keep: int, last: int = 0) -> str:
    """A text of so many characters with a gap before its last ones, by default a third of them."""
    last = last or keep - keep * 2 // 3
    return f"{text[: keep - last]}{_GAP}{text[len(text) - last :]}"
