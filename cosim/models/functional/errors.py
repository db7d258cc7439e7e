"""What a machine refuses to do."""

from __future__ import annotations

from hw.errors import InputError

#: The spaces for people.
NAMES = {"acc": "the accumulator", "scratch": "the scratchpad", "out": "the output buffer"}


class OperationError(InputError):
    """An operation that the machine refuses, or one that reads what nothing has written."""

    def __init__(self, found: str, expected: str):
        self.found, self.expected = found, expected
        super().__init__(f"found {found}, expected {expected}")
