"""Executes requests of `hw.rtl.bus.protocol` from a byte stream, word by word, and replies to them."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.crc import Processor
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from hw.rtl.bus.axi import Resp
from hw.rtl.bus.protocol import MAX_WORDS, SYNC_REPLY, SYNC_REQUEST, Identity, Operation, Status

#: An access to one word of memory or to one register.
Access = data.StructLayout({"address": 32, "data": 32, "write": 1, "memory": 1})
Answer = data.StructLayout({"data": 32, "resp": 2})
#: Number of cycles for which RESET holds its output.
RESET_CYCLES = 16

ACCESSES = [o for o in Operation if o not in (Operation.IDENTIFY, Operation.RESET)]


class State(enum.Enum):
    """States of the engine, each named after what it does with its next byte or cycle."""

    HUNT = 0  # looks for the first byte of a request
    HEAD = 1
    DATA = 2
    CRC = 3
    CHECK = 4
    FETCH = 5  # reads a word from the buffer
    ACCESS = 6
    ANSWER = 7
    IDENTIFY = 8
    RESET = 9
    REPLY_HEAD = 10
    REPLY_FETCH = 11
    REPLY_DATA = 12
    REPLY_CRC = 13


class FrameEngine(Component):
    """Handles one request at a time: receives all of it, checks it, executes it, replies.

    `dropped` means that a byte was lost before `received`; `tick` pulses once per bit time. `reset` is 1
    while RESET is executed, `lost` while only IDENTIFY is executed.

    **Timing.** Receives or sends at most one byte per cycle. Each word of an access takes two cycles and the
    time to its answer: at least three. Each word of a reply is preceded by two idle cycles. RESET lasts
    `RESET_CYCLES`.
    """

    def __init__(self, identity: Identity):
        self._identity = identity
        super().__init__(
            {
                "received": In(stream.Signature(8)),
                "dropped": In(1),
                "tick": In(1),
                "sent": Out(stream.Signature(8)),
                "access": Out(stream.Signature(Access)),
                "answer": In(stream.Signature(Answer)),
                "reset": Out(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._state = Signal(State)
        self._operation, self._tag, self._count = Signal(8), Signal(8), Signal(8)
        self._address = Signal(32)
        self._status, self._words = Signal(Status), Signal(8)  # of the reply
        self._place = Signal(range(RESET_CYCLES))  # byte within a part of the frame; cycle of a reset
        self._index = Signal(8)  # word within the frame
        self._word, self._shifted = Signal(32), Signal(32)  # a word as its bytes come or go
        m.submodules.crc = self._crc = Processor(CRC32_ETHERNET(data_width=8))
        # A word is never read and written in the same cycle, so synthesis need not define what is read then.
        attributes = {"no_rw_check": 1}
        m.submodules.buffer = buffer = Memory(shape=32, depth=MAX_WORDS + 1, init=[], attrs=attributes)
        self._read, self._write = buffer.read_port(), buffer.write_port()
        m.d.comb += [self._read.addr.eq(self._index), self._write.addr.eq(self._index)]
        self._paths(m)
        with m.Switch(self._state):
            self._receive(m)
            self._execute(m)
            self._reply(m)
        with m.If(self.dropped):
            m.d.sync += self.lost.eq(1)
        return m

    def _paths(self, m: Module) -> None:
        """Data paths, selected by the state outside its switch, which saves logic."""
        state, received, sent, answer, crc = self._state, self.received, self.sent, self.answer, self._crc
        place = self._place[:2]
        head = Array([Const(SYNC_REPLY, 8), self._status, self._tag, self._words])[place]
        data_or_crc = Mux(state == State.REPLY_DATA, self._word[:8], crc.crc.word_select(place, 8))
        identity = Array(Const(word, 32) for word in self._identity)[self._index]
        # If a word fails, its address is the only word of the reply.
        answered = Mux(answer.payload.resp != Resp.OKAY, self._address, answer.payload.data)
        m.d.comb += [
            sent.payload.eq(Mux(state == State.REPLY_HEAD, head, data_or_crc)),
            crc.data.eq(Mux(sent.valid, sent.payload, received.payload)),
            crc.valid.eq(
                (received.valid & received.ready) | (sent.valid & sent.ready & (state != State.REPLY_CRC))
            ),
            self._shifted.eq(Cat(self._word[8:], received.payload)),
            self._write.data.eq(
                Mux(
                    state == State.DATA,
                    self._shifted,
                    Mux(state == State.IDENTIFY, identity, answered),
                )
            ),
            self.access.payload.address.eq(self._address),
            self.access.payload.data.eq(self._read.data),
            self.access.payload.write.eq(self._operation[0]),
            self.access.payload.memory.eq(self._operation[5]),
        ]

    def _go(self, m: Module, state: object) -> None:
        m.d.sync += [self._state.eq(state), self._place.eq(0)]

    def _finish(self, m: Module, status: object, words: object) -> None:
        m.d.sync += [self._status.eq(status), self._words.eq(words), self._index.eq(0)]
        self._go(m, State.REPLY_HEAD)

    def _receive(self, m: Module) -> None:
        received, byte = self.received, self.received.payload
        waited = Signal(range(self._identity.timeout_bits + 1))
        head = Cat(self._operation, self._tag, self._count, self._address)

        def take(last: int) -> Value:
            """Accepts a byte of a part of the frame, or times out; true for the last byte of the part."""
            m.d.comb += received.ready.eq(1)
            with m.If(received.valid):
                m.d.sync += [self._place.eq(self._place + 1), waited.eq(0)]
            with m.Elif(waited == self._identity.timeout_bits):
                m.d.sync += self.lost.eq(1)
                self._finish(m, Status.TIMEOUT, 0)
            with m.Elif(self.tick):
                m.d.sync += waited.eq(waited + 1)
            return received.valid & (self._place == last)

        with m.Case(State.HUNT):
            m.d.comb += [received.ready.eq(1), self._crc.start.eq(1)]
            m.d.sync += [waited.eq(0), self._index.eq(0)]
            with m.If(received.valid):
                with m.If(byte == SYNC_REQUEST):
                    self._go(m, State.HEAD)
                with m.Else():
                    m.d.sync += self.lost.eq(1)
        with m.Case(State.HEAD):
            last = take(6)
            with m.If(received.valid):
                m.d.sync += head.eq(Cat(head[8:], byte))
            with m.If(last):
                # The head lacks its last byte here, so its fields are one byte above their final position.
                carries = head[8] & (head[24:32] != 0)
                with m.If(carries):
                    self._go(m, State.DATA)
                with m.Else():
                    self._go(m, State.CRC)
        with m.Case(State.DATA):
            last = take(3)
            m.d.comb += self._write.en.eq(last)
            with m.If(received.valid):
                m.d.sync += self._word.eq(self._shifted)
            with m.If(last):
                m.d.sync += [self._index.eq(self._index + 1), self._place.eq(0)]
                with m.If(self._index + 1 == self._count):
                    self._go(m, State.CRC)
        with m.Case(State.CRC):
            last = take(3)
            m.d.sync += self._index.eq(0)
            with m.If(last):
                self._go(m, State.CHECK)

    def _execute(self, m: Module) -> None:
        operation, access, answer = self._operation, self.access, self.answer
        is_access = Cat(operation == o for o in ACCESSES).any()
        last = self._index + 1 == self._count
        with m.Case(State.CHECK):
            with m.If(~self._crc.match_detected):
                m.d.sync += self.lost.eq(1)
                self._finish(m, Status.BAD_CRC, 0)
            with m.Elif(operation == Operation.IDENTIFY):
                m.d.sync += self.lost.eq(0)
                self._go(m, State.IDENTIFY)
            with m.Elif(self.lost):
                self._finish(m, Status.LOST, 0)
            with m.Elif(operation == Operation.RESET):
                self._go(m, State.RESET)
            with m.Elif(is_access & (self._count != 0) & (self._address[:2] == 0)):
                self._go(m, State.FETCH)
            with m.Else():
                self._finish(m, Status.BAD_REQUEST, 0)
        with m.Case(State.IDENTIFY):
            m.d.comb += self._write.en.eq(1)
            m.d.sync += self._index.eq(self._index + 1)
            with m.If(self._index == len(self._identity) - 1):
                self._finish(m, Status.OK, len(self._identity))
        with m.Case(State.RESET):
            m.d.comb += self.reset.eq(1)
            m.d.sync += self._place.eq(self._place + 1)
            with m.If(self._place == RESET_CYCLES - 1):
                self._finish(m, Status.OK, 0)
        with m.Case(State.FETCH):
            self._go(m, State.ACCESS)
        with m.Case(State.ACCESS):
            m.d.comb += access.valid.eq(1)
            with m.If(access.ready):
                self._go(m, State.ANSWER)
        with m.Case(State.ANSWER):
            failed = answer.payload.resp != Resp.OKAY
            m.d.comb += [answer.ready.eq(1), self._write.en.eq(answer.valid)]
            with m.If(answer.valid):
                m.d.sync += self._index.eq(self._index + 1)
                with m.If(operation != Operation.WRITE_CSR_FIXED):
                    m.d.sync += self._address.eq(self._address + 4)
                with m.If(failed):
                    m.d.comb += self._write.addr.eq(0)
                    status = Mux(answer.payload.resp == Resp.DECERR, Status.DECERR, Status.SLVERR)
                    self._finish(m, status, 1)
                with m.Elif(last):
                    self._finish(m, Status.OK, Mux(operation[0], 0, self._count))
                with m.Else():
                    self._go(m, State.FETCH)

    def _reply(self, m: Module) -> None:
        sent = self.sent

        def give(last: int) -> Value:
            """Offers a byte of a part of the frame; true when the last byte leaves."""
            m.d.comb += sent.valid.eq(1)
            with m.If(sent.ready):
                m.d.sync += self._place.eq(self._place + 1)
            return sent.ready & (self._place == last)

        with m.Case(State.REPLY_HEAD):
            last = give(3)
            m.d.comb += self._crc.start.eq(self._place == 0)
            with m.If(last):
                with m.If(self._words == 0):
                    self._go(m, State.REPLY_CRC)
                with m.Else():
                    self._go(m, State.REPLY_FETCH)
        with m.Case(State.REPLY_FETCH):
            m.d.sync += [self._place.eq(1), self._word.eq(self._read.data)]
            with m.If(self._place == 1):
                self._go(m, State.REPLY_DATA)
        with m.Case(State.REPLY_DATA):
            last = give(3)
            with m.If(sent.ready):
                m.d.sync += self._word.eq(self._shifted)
            with m.If(last):
                m.d.sync += self._index.eq(self._index + 1)
                with m.If(self._index + 1 == self._words):
                    self._go(m, State.REPLY_CRC)
                with m.Else():
                    self._go(m, State.REPLY_FETCH)
        with m.Case(State.REPLY_CRC):
            last = give(3)
            with m.If(last):
                self._go(m, State.HUNT)
