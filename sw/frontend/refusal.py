"""Refusals: the nodes that the machine does not execute, with reasons and advice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hw.errors import InputError

#: Minimum length of the first refusal, and maximum length of the summary, which follows the model's name.
_LEAST, _MOST = 70, 245
#: A longer word, such as a long name, loses its middle part.
_LONG = r"\S{49,}"


@dataclass(frozen=True)
class Refusal:
    """A node, or an output, that the machine does not execute.

    `follows`: another refusal may be the cause, because this node reads its real numbers from the host, or
    only decides what the other needs. `lost`: the host cannot execute it either. `inputs` are the tensors
    that it reads. `advice` lists remedies, best first, besides `--allow-host`
    (`sw.frontend.advice`).
    """

    place: str
    name: str
    op: str
    reason: str
    follows: bool = False
    lost: bool = False
    inputs: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """All advice, as text."""
        return self._remedy(self.advice)

    @property
    def best(self) -> str:
        """The best advice, as text."""
        return self._remedy(self.advice[:1])

    def _remedy(self, advice: Sequence[str]) -> str:
        return ", or ".join((*advice, *([] if self.lost else ["--allow-host leaves it to the host"])))

    def as_dict(self) -> dict[str, str | bool]:
        """The JSON of `heald explain`."""
        return {
            "name": self.name,
            "op": self.op,
            "reason": self.reason,
            "follows": self.follows,
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class RefusedError(InputError):
    """All refusals of a model; the message gives the first and counts the others."""

    def __init__(self, refusals: Sequence[Refusal]):
        self.refusals = tuple(refusals)
        super().__init__(summary(self.refusals))


def _cut(text: str, most: int) -> str:
    text = re.sub(_LONG, lambda word: f"{word[0][:30]}...{word[0][-15:]}", text)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def summary(refusals: Sequence[Refusal]) -> str:
    """The first refusal, the number and kinds of the others, and what to do."""
    lost = [r for r in refusals if r.lost] or list(refusals)
    causes = [r for r in lost if not r.follows] or lost
    first, others = causes[0], Counter(r.op for r in causes[1:])
    remedy = f"; {first.best}" if first.best else ""
    if not others:
        # The advice is never cut.
        return _cut(str(first), max(_LEAST, _MOST - len(remedy))) + remedy
    kinds = [f"{count} {op}" for op, count in others.most_common(3)]
    count = f"{others.total()} more are" if others.total() > 1 else "1 more is"
    more = f"; {count} refused: {', '.join(kinds)}{', ...' * (len(others) > 3)} (heald explain lists all)"
    if len(more) + len(remedy) > _MOST - _LEAST:
        more = f"; {others.total()} more, see heald explain"
    rest = more + remedy.replace("leaves it", "leaves them")
    return _cut(str(first), max(_LEAST, _MOST - len(rest))) + rest
