"""UART receiver and transmitter: eight data bits, no parity, one stop bit."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import Component, In, Out

from hw.errors import InputError

#: Minimum number of clock cycles per bit: three samples around its middle.
LEAST_DIVISOR = 4
#: Maximum relative error of the bit time; a frame of ten bits tolerates 5 % for both ends together.
TOLERANCE = 0.02


def divisor(clock_hz: int, baud: int) -> int:
    """Clock cycles per bit; raises `InputError` if the clock is too slow or does not match the baud rate."""
    if clock_hz <= 0 or baud <= 0:
        raise InputError(f"clock and baud rate must be positive, not {clock_hz} and {baud}")
    cycles = max(1, round(clock_hz / baud))
    if cycles < LEAST_DIVISOR:
        raise InputError(
            f"the baud rate must be at most a {LEAST_DIVISOR}th of the clock ({clock_hz} Hz), not {baud}"
        )
    if abs(clock_hz / cycles / baud - 1) > TOLERANCE:
        raise InputError(
            f"the baud rate must be within {TOLERANCE:.0%} of a whole fraction of the clock ({clock_hz} Hz); "
            f"{baud} would become {clock_hz / cycles:.0f}"
        )
    return cycles


class Receiver(Component):
    """Receives bytes on `rx`: each pulses `valid`, or `bad` if its stop bit is 0.

    Each bit is the majority of three samples around its middle. After a bad byte the receiver waits until the
    line is 1.

    **Timing.** `valid` or `bad` is 1 for one cycle; `data` holds until the next byte begins. If the start bit
    begins on `rx` in cycle t, that cycle is `t + 9*cycles + cycles div 2 + max(1, cycles div 8) + 3`.
    """

    def __init__(self, cycles: int):
        assert cycles >= LEAST_DIVISOR
        self._cycles = cycles
        super().__init__({"rx": In(1), "valid": Out(1), "data": Out(8), "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchroniser = FFSynchronizer(self.rx, line, init=1)
        spread = max(1, self._cycles // 8)
        middle = self._cycles // 2
        clock = Signal(range(self._cycles))
        bits = Signal(range(10))  # start bit, data, stop bit
        busy, blocked = Signal(), Signal()
        samples, majority = Signal(2), Signal()
        m.d.comb += majority.eq((samples[0] & samples[1]) | (line & samples.any()))
        m.d.sync += [self.valid.eq(0), self.bad.eq(0)]
        with m.If(~busy):
            m.d.sync += [clock.eq(1), bits.eq(0), busy.eq(~line & ~blocked), blocked.eq(blocked & ~line)]
        with m.Else():
            m.d.sync += clock.eq(Mux(clock == self._cycles - 1, 0, clock + 1))
            with m.If((clock == middle - spread) | (clock == middle)):
                m.d.sync += samples.eq(Cat(line, samples[0]))
            with m.If(clock == middle + spread):
                m.d.sync += bits.eq(bits + 1)
                with m.If(bits == 0):
                    m.d.sync += busy.eq(~majority)  # a spike is no start bit
                with m.Elif(bits < 9):
                    m.d.sync += self.data.eq(Cat(self.data[1:], majority))
                with m.Else():
                    m.d.sync += [busy.eq(0), self.valid.eq(majority), self.bad.eq(~majority)]
                    m.d.sync += blocked.eq(~majority)
        return m


class Transmitter(Component):
    """Sends the bytes of a stream on `tx`, without a pause between them.

    **Timing.** The start bit of a byte accepted in cycle t begins in t + 1. Each of the ten bits lasts
    `cycles` cycles, and the next byte is accepted in t + 10*cycles at the earliest.
    """

    def __init__(self, cycles: int):
        self._cycles = cycles
        super().__init__({"bytes": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clock = Signal(range(self._cycles))
        bits = Signal(range(11))  # still to send, including the current one
        rest = Signal(9)
        end = Signal()
        m.d.comb += [
            end.eq(clock == 0),
            self.bytes.ready.eq((bits == 0) | ((bits == 1) & end)),
        ]
        with m.If(self.bytes.ready):
            m.d.sync += [bits.eq(0), self.tx.eq(1)]
            with m.If(self.bytes.valid):
                m.d.sync += [
                    bits.eq(10),
                    clock.eq(self._cycles - 1),
                    self.tx.eq(0),
                    rest.eq(Cat(self.bytes.payload, Const(1, 1))),
                ]
        with m.Elif(end):
            m.d.sync += [
                bits.eq(bits - 1),
                clock.eq(self._cycles - 1),
                self.tx.eq(rest[0]),
                rest.eq(rest[1:]),
            ]
        with m.Else():
            m.d.sync += clock.eq(clock - 1)
        return m
