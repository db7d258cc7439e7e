"""Verilog names are unambiguous to tools, and generation can be interrupted."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import load
from hw.emit import converted, interrupts_kept, of_machine


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


class Sum(Component):
    """The sum of the elements of an array."""

    def __init__(self) -> None:
        super().__init__({"values": In(data.ArrayLayout(8, 3)), "total": Out(10)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.total.eq(self.values[0] + self.values[1] + self.values[2])
        return m


class Partial(Component):
    """A structure one field of which depends on a condition, and a register that does not begin with 0."""

    def __init__(self) -> None:
        self.fields = data.StructLayout({"low": 4, "high": 4})
        super().__init__({"wanted": In(1), "value": In(4), "made": Out(self.fields), "kept": Out(4, init=5)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.made.low.eq(self.value), self.made.high.eq(3)]
        with m.If(self.wanted):
            m.d.comb += self.made.high.eq(self.value)
            m.d.sync += self.kept.eq(self.value)
        return m


def test_every_block_is_evaluated_at_the_beginning_and_every_register_begins_with_its_value() -> None:
    text = converted(Partial(), "partial")
    blocks = re.findall(r"always @\*(.*?)\n(.*?)\n", text)
    assert len(blocks) > 1
    assert all(re.fullmatch(r" *if \(\S+ \) begin end", first) for _, first in blocks)
    assert not re.search(r"^ *reg [^;]*=", text, re.MULTILINE)
    assert re.search(r"^ *reg \[3:0\] kept ;\n *initial kept = 4'h5;", text, re.MULTILINE)


def test_elements_of_arrays_are_not_named_as_bits_are() -> None:
    text = converted(Sum(), "sum")
    assert {"values", "values.0", "values.1", "values.2"} <= set(re.findall(r"wire .*?([\w.]+) ?;", text))
    assert re.search(r"assign \\values\.1 += values\[15:8\];", text)


class Flags(Component):
    """Bits that are set and cleared one by one; a memory with constants, and one of zeros."""

    def __init__(self) -> None:
        super().__init__({"set": In(2), "clear": In(2), "flags": Out(2), "address": In(2), "word": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kept = Signal(2)
        for i in range(2):
            with m.If(self.clear[i]):
                m.d.sync += kept[i].eq(0)
            with m.Elif(self.set[i]):
                m.d.sync += kept[i].eq(1)
        m.submodules.words = words = memory.Memory(shape=8, depth=4, init=[0, 7, 0, 9])
        m.submodules.zeros = zeros = memory.Memory(shape=8, depth=4, init=[])
        read, write = words.read_port(domain="comb"), zeros.write_port()
        m.d.comb += [self.flags.eq(kept), read.addr.eq(self.address)]
        m.d.comb += [write.addr.eq(self.address), write.en.eq(1), write.data.eq(read.data)]
        other = zeros.read_port(domain="comb")
        m.d.comb += [other.addr.eq(self.address), self.word.eq(other.data)]
        return m


def test_nothing_is_left_out_but_the_first_contents_of_memories_of_zeros() -> None:
    whole, text = converted(Flags(), "flags"), of_machine(Flags(), "flags", load("test"))
    assert re.search(r"\[1\] = 1'h0;", text)
    assert "words[2] = 8'h00;" in text
    left, kept = whole.splitlines(), text.splitlines()
    start = left.index("    zeros[0] = 8'h00;") - 1
    assert left[start + 5].strip() == "end"
    assert left[:start] + left[start + 6 :] == kept[len(kept) - len(left) + 6 :]
