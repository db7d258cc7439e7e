"""The CGRA as one component: control, processing elements, ports."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, Out, connect, flipped

from hw.config import MachineConfig
from hw.fabric import Unit
from hw.rtl.cgra.access import ArrayWrite
from hw.rtl.cgra.control import Control
from hw.rtl.cgra.pe import ProcessingElement
from hw.rtl.cgra.ports import Ports
from hw.rtl.cgra.units import WIDTH
from hw.rtl.cgra_port import CgraPort


class Grid(Component):
    """The CGRA of a machine that has one (`config.cgra`).

    **Timing.** docs/cgra.md.
    """

    def __init__(self, config: MachineConfig):
        assert config.cgra is not None
        self._config, self._fabric = config, config.cgra
        super().__init__({"port": Out(CgraPort(config))})
        self.pes = [ProcessingElement(config, config.cgra, number) for number in range(config.cgra.size)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fabric, port = self._fabric, self.port
        m.submodules.control = control = Control(self._config, fabric)
        with_memory = fabric.having(Unit.MEMORY)
        lanes = [fabric.kinds[number].lanes for number in with_memory]
        m.submodules.ports = ports = Ports(self._config, lanes, fabric.pipelined)
        pes = self.pes
        word, entry = self._entry(m, control)
        array_write = Signal(ArrayWrite)
        m.d.sync += array_write.eq(control.array_write)
        for number, pe in enumerate(pes):
            m.submodules[f"pe{number}"] = pe
            self._configure(m, control, number, pe, word, entry)
            m.d.comb += [pe.write_at.eq(entry.at), pe.data.eq(entry.data)]
            for name in ("context", "read", "moment", "load", "advance", "shows", "rests"):
                m.d.comb += getattr(pe, name).eq(getattr(control, name))
            m.d.comb += pe.links_in.eq(Cat(self._link(pes, link) for link in fabric.incoming[number]))
        for i, number in enumerate(with_memory):
            pe = pes[number]
            m.d.comb += [
                pe.array_write.eq(array_write),
                pe.arrays.eq(control.arrays),
                ports.access[i].eq(pe.access),
                ports.new[i].eq(pe.new),
                pe.open.eq(ports.open[i]),
                pe.fresh.eq(ports.fresh[i]),
                pe.arrived.eq(ports.arrived[i]),
            ]
        m.d.comb += [shown.eq(store) for shown, store in zip(port.stores, ports.stores, strict=True)]
        outside = Signal()
        m.d.comb += [
            outside.eq(Cat(pe.outside for pe in pes).any()),
            control.outside.eq(outside),
            control.waiting.eq(ports.waiting),
            ports.hold.eq(outside | control.stopped),
        ]
        connect(m, control.control, flipped(port.control))
        connect(m, ports.acc, flipped(port.acc))
        connect(m, ports.out_read, flipped(port.out_read))
        connect(m, ports.out_write, flipped(port.out_write))
        # A configuration is loaded only while no step executes, so the two readers never collide.
        for reader in (control.scratch, ports.scratch):
            m.d.comb += [reader.data.eq(port.scratch.data), reader.held.eq(port.scratch.held)]
        m.d.comb += [
            port.scratch.enable.eq(control.scratch.enable | ports.scratch.enable),
            port.scratch.address.as_value().eq(
                control.scratch.address.as_value() | ports.scratch.address.as_value()
            ),
        ]
        return m

    def _link(self, pes: list[ProcessingElement], link: int) -> Value:
        """The register of a link."""
        source = self._fabric.links[link].source
        lanes = [self._fabric.link_lanes(other) for other in self._fabric.outgoing[source]]
        place = self._fabric.outgoing[source].index(link)
        low = sum(lanes[:place])
        return pes[source].links_out[WIDTH * low : WIDTH * (low + lanes[place])]

    @staticmethod
    def _entry(m: Module, control: Control) -> tuple[Signal, data.View[data.StructLayout]]:
        """Registers the words that loader and patches write into entries; returns which words those are.

        The memories are far from the control, so they are written through a register.
        """
        placed, patch = control.placed, control.patch
        word = Signal(1 << len(placed.word))
        layout = {"at": len(placed.context), "address": len(placed.address), "data": WIDTH}
        entry = Signal(data.StructLayout(layout), reset_less=True)
        with m.If(placed.entry):
            m.d.comb += word.eq(1 << placed.word)
        patched = patch.const | patch.init
        m.d.sync += [
            entry.at.eq(Mux(patched, patch.context, placed.context)),
            entry.address.eq(placed.address),
            entry.data.eq(Mux(patched, patch.data, placed.data)),
        ]
        return word, entry

    @staticmethod
    def _configure(
        m: Module,
        control: Control,
        number: int,
        pe: ProcessingElement,
        word: Signal,
        entry: data.View[data.StructLayout],
    ) -> None:
        """Connects what loader and patches write into a PE; `word` marks the words of an entry placed now."""
        placed, patch = control.placed, control.patch
        const, mine = pe.layout.field_words, Signal(name=f"mine{number}")
        patched, write = Signal(2, name=f"patched{number}"), Signal(len(pe.write), name=f"write{number}")
        m.d.comb += mine.eq(placed.pe == number)
        with m.If(patch.pe == number):
            m.d.comb += patched.eq(Cat(patch.const, patch.init))
        m.d.sync += write.eq(Mux(mine, word, 0) | (patched << const))
        m.d.comb += pe.write.eq(write)
        if Unit.TABLE in pe.kind.units:
            begin, enable = Signal(name=f"begin{number}"), Signal(name=f"enable{number}")
            m.d.sync += [begin.eq(placed.head & mine), enable.eq(placed.table & mine)]
            m.d.comb += [
                pe.table_clear.eq(control.clear),
                pe.table_write.begin.eq(begin),
                pe.table_write.enable.eq(enable),
                pe.table_write.address.eq(entry.address),
                pe.table_write.data.eq(entry.data),
            ]
