"""The accumulator: banks of int32 rows with in-place addition and lower-priority readers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out, Signature

from hw.config import MachineConfig
from hw.rtl.bits import log2
from hw.rtl.memory.buffer import NO_COLLISIONS


class DrainPort(Signature):
    """The array's port: one row per cycle, written to a word or added to it.

    A `valid` row occupies its bank; without `write` it has no other effect.
    """

    def __init__(self, config: MachineConfig):
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(log2(config.derived.acc_words)),
                "add": Out(1),
                "data": Out(32 * config.cols),
            }
        )


class AccumulatorRead(Signature):
    """The storer's port: one word per cycle; `ready` is 0 while the array uses the bank."""

    def __init__(self, config: MachineConfig):
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "address": Out(log2(config.derived.acc_words)),
                "data": In(32 * config.cols),
            }
        )


class BankedRowRead(Signature):
    """One row per bank and cycle, each with its own address, from banks that are not `held`.

    `address` is the address within the bank. Data is valid in the next cycle only.
    """

    def __init__(self, config: MachineConfig):
        super().__init__(
            {
                "held": In(config.acc_banks),
                "enable": Out(config.acc_banks),
                "address": Out(data.ArrayLayout(log2(config.derived.acc_bank_words), config.acc_banks)),
                "data": In(32 * config.cols * config.acc_banks),
            }
        )


class Accumulator(Component):
    """`acc_banks` memories of int32 rows, one or more, each with one read and one write port.

    A drained row reads its word in the cycle in which it is valid, is added to it in the next and written in
    the third. A row that is not added reads 0 instead of its word. The array always has priority; `read`
    proceeds when its bank is free. A machine with a CGRA has a third reader, `rows`, which uses the remaining
    banks.

    **Timing.** A row drained in cycle t is readable from t + 3 on. Data of a read accepted in cycle t is
    valid in t + 1 only. Drains to the same word must be at least three cycles apart; the array's control
    ensures this.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        ports = {"drain": In(DrainPort(config)), "read": In(AccumulatorRead(config))}
        super().__init__(ports | ({"rows": In(BankedRowRead(config))} if config.cgra else {}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        inner = log2(c.derived.acc_bank_words)
        outer = log2(c.acc_banks)
        width = 32 * c.cols

        row, total = Signal(width), Signal(width)
        stage1, stage2 = Signal(), Signal()
        address1, address2 = Signal(inner + outer), Signal(inner + outer)
        drain_bank = self.drain.address[inner:]
        read_bank = self.read.address[inner:]
        read_bank1 = Signal.like(read_bank) if outer else read_bank

        def means(bank: Value, number: int) -> Value:
            return bank == number if outer else Const(1)

        same = drain_bank == read_bank if outer else Const(1)
        m.d.comb += self.read.ready.eq(~(self.drain.valid & same))
        m.d.sync += [
            stage1.eq(self.drain.valid & self.drain.write),
            address1.eq(self.drain.address),
            stage2.eq(stage1),
            address2.eq(address1),
        ]
        if outer:
            m.d.sync += read_bank1.eq(read_bank)
        with m.If(self.drain.valid):
            m.d.sync += row.eq(self.drain.data)

        outputs = []
        for b in range(c.acc_banks):
            bank = memory.Memory(
                shape=Shape(width), depth=c.derived.acc_bank_words, init=[], attrs=NO_COLLISIONS
            )
            m.submodules[f"bank{b}"] = bank
            # With `output`, a read port of block RAM, which can be set to 0 instead of to the word read.
            write, read = bank.write_port(), bank.read_port(domain="comb")
            output = Signal(width, name=f"output{b}", reset_less=True)
            draining = self.drain.valid & means(drain_bank, b)
            reading = self.read.valid & means(read_bank, b)
            address = Mux(draining, self.drain.address[:inner], self.read.address[:inner])
            enable = draining | reading
            if c.cgra:
                m.d.comb += self.rows.held[b].eq(enable)
                address = Mux(enable, address, self.rows.address[b])
                enable = enable | self.rows.enable[b]
            m.d.comb += [
                read.addr.eq(address),
                write.en.eq(stage2 & means(address2[inner:], b)),
                write.addr.eq(address2[:inner]),
                write.data.eq(total),
            ]
            with m.If(draining & ~self.drain.add):
                m.d.sync += output.eq(0)
            with m.Elif(enable):
                m.d.sync += output.eq(read.data)
            outputs.append(output)
        if c.cgra:
            m.d.comb += self.rows.data.eq(Cat(*outputs))

        old = Signal(width)
        for target, bank in ((old, address1[inner:]), (self.read.data, read_bank1)):
            m.d.comb += target.eq(outputs[0])
            for b, output in enumerate(outputs[1:], 1):
                with m.If(bank == b):
                    m.d.comb += target.eq(output)
        sums = [(old.word_select(i, 32) + row.word_select(i, 32))[:32] for i in range(c.cols)]
        with m.If(stage1):
            m.d.sync += total.eq(Cat(*sums))
        return m
