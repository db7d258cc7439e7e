"""What the machine does not execute: which nodes, why, and what would change it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hw.errors import InputError

#: What would change a reason, by what it says; the first that fits, beside `--allow-host`.
_REMEDIES = (
    (r"must be int8 or uint8 or int32", ""),
    (r"opset", "convert the model to a newer opset (onnx.version_converter)"),
    (
        r"shape of its result|its condition",
        "give the inputs that decide it when it is compiled (--inputs)",
    ),
    (r"(scale|zero point) must be a constant", "quantise statically (onnxruntime's quantize_static)"),
    (r"int16|int4|float16|float8", "quantise to int8 or uint8"),
    (r"blocks", "quantise by tensor or by channel"),
    (r"DequantizeLinear|QuantizeLinear|float32|real numbers", "quantise it too (quantize_static, QDQ)"),
)
#: Characters of the first refusal where there are others, and of one alone with what to do.
_FIRST, _MOST = 130, 270


@dataclass(frozen=True)
class Refusal:
    """A node, or an output, that the machine does not execute.

    `follows`: what it reads is real numbers of the host, so another refusal may be the cause. `lost`: the
    host cannot execute it either.
    """

    place: str
    name: str
    op: str
    reason: str
    follows: bool = False
    lost: bool = False

    @property
    def remedy(self) -> str:
        """What would change it."""
        found = next((text for pattern, text in _REMEDIES if re.search(pattern, self.reason)), "")
        host = "" if self.lost else "--allow-host leaves it to the host"
        return ", or ".join(filter(None, (found, host)))

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
    """All that is refused of a model; the text names the first and counts the others."""

    def __init__(self, refusals: Sequence[Refusal]):
        self.refusals = tuple(refusals)
        super().__init__(summary(self.refusals))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def summary(refusals: Sequence[Refusal]) -> str:
    """The first refusal, how many others there are of what kinds, and what to do."""
    causes = [r for r in refusals if r.lost] or [r for r in refusals if not r.follows] or list(refusals)
    first, others = causes[0], Counter(r.op for r in causes[1:])
    if not others:
        # What to do stays whole.
        remedy = f"; {first.remedy}" if first.remedy else ""
        return _cut(str(first), _MOST - len(remedy)) + remedy
    text = _cut(str(first), _FIRST)
    kinds = [f"{count} {op}" for op, count in others.most_common(3)]
    count = f"{others.total()} more are" if others.total() > 1 else "1 more is"
    more = f"{count} refused: {', '.join(kinds)}{', ...' * (len(others) > 3)}"
    remedy = f"; {first.remedy.replace('leaves it', 'leaves them')}" if first.remedy else ""
    return f"{text}; {more} (heald explain lists all){remedy}"
