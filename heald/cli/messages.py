"""Messages in one line, however long the texts that they quote."""

from __future__ import annotations

import re

#: Maximum length of a message.
LONGEST = 300
#: A word keeps at least this many characters; a path or quoted text at least the second number.
_WORD, _NAME = 48, 24
_GAP = "..."


def shortened(message: str, longest: int = LONGEST) -> str:
    """A message in one line of at most `longest` characters, with unprintable ones escaped.

    If it is too long, its longest words lose their middle first, since these are quoted input (paths lose all
    but their end). Then the text loses its middle: its beginning says where, its last clauses what to do.
    """
    # The message may quote megabytes.
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
    """Cut a text to `keep` characters and a gap before the `last` ones, by default a third."""
    last = last or keep - keep * 2 // 3
    return f"{text[: keep - last]}{_GAP}{text[len(text) - last :]}"
