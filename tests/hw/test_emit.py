"""Making Verilog can be interrupted."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest

from hw.emit import interrupts_kept


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Interrupts are heard even where the tests run in the background, which ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_that_is_lost_on_the_way_is_raised_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        with contextlib.suppress(KeyboardInterrupt):  # as a destructor would
            signal.raise_signal(signal.SIGINT)
        reached.append("the end")
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_is_not_lost_stops_at_once() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        signal.raise_signal(signal.SIGINT)
        reached.append("too far")
    assert not reached


def test_nothing_is_raised_without_an_interrupt() -> None:
    reached = []
    with interrupts_kept():
        reached.append("the end")
    assert reached == ["the end"]
