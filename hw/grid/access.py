"""The memory port of a processing element: from an index to an access, and the loaded value."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.fabric.bitstream import ELEMENTS, OUT
from hw.fabric.layout import ARRAYS
from hw.grid.units import WIDTH

#: Elements of arrays by number.
INT32, INT8, UINT8 = range(len(ELEMENTS))
BASE_BITS = 24
ARRAY_BITS = (ARRAYS - 1).bit_length()

#: The first word of an array in a bitstream, but for its unused bits.
ArrayPlace = data.StructLayout({"base": BASE_BITS, "space": 2, "element": 2})


def space_bytes(config: MachineConfig) -> tuple[int, int, int]:
    """Bytes of the spaces by their numbers."""
    return config.acc_bytes, config.scratch_bytes, config.out_bytes


def address_bits(config: MachineConfig) -> int:
    """Bits of a byte address in the largest space."""
    return (max(space_bytes(config)) - 1).bit_length()


def access_layout(config: MachineConfig) -> data.StructLayout:
    """An access of a step: a load, or a store of `data`, of the element at a byte address of a space."""
    return data.StructLayout(
        {
            "valid": 1,
            "store": 1,
            "space": 2,
            "element": 2,
            "address": address_bits(config),
            "data": WIDTH,
        }
    )


#: A change of an array: which parts of it take `data` (`kind`: space and element).
ArrayWrite = data.StructLayout({"base": 1, "kind": 1, "length": 1, "number": ARRAY_BITS, "data": WIDTH})


class ArrayTable(Component):
    """The arrays of a configuration.

    **Timing.** What is written in cycle t is read from t + 1 on; reading is combinational.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write": In(ArrayWrite),
                "number": In(ARRAY_BITS),
                "place": Out(ArrayPlace),
                "length": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = ArrayPlace(self.write.data[: ArrayPlace.size])
        kind = Signal(4)
        for name, enable, value, target in (
            ("base", self.write.base, word.base, self.place.base),
            ("kind", self.write.kind, self.write.data[BASE_BITS : ArrayPlace.size], kind),
            ("length", self.write.length, self.write.data, self.length),
        ):
            part = memory.Memory(shape=len(target), depth=ARRAYS, init=[])
            m.submodules[name] = part
            write, read = part.write_port(), part.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(enable),
                write.addr.eq(self.write.number),
                write.data.eq(value),
                read.addr.eq(self.number),
                target.eq(read.data),
            ]
        m.d.comb += [self.place.space.eq(kind[:2]), self.place.element.eq(kind[2:])]
        return m


class MemoryPort(Component):
    """Makes the access of a step from index, value and array; keeps what loads bring.

    `happens` says that the step has an access, `arrays` how many arrays there are; `outside` that the access
    must not happen. `arrived` is the value of a load that was served in the cycle before (`fresh`).

    **Timing.** `access` and `outside` are combinational. The value of a load of a step that ends in cycle t
    is `y2` from t + 1 on until the next step has ended, whenever in its step it was served.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "happens": In(1),
                "store": In(1),
                "array": In(ARRAY_BITS),
                "index": In(WIDTH),
                "value": In(WIDTH),
                "write": In(ArrayWrite),
                "arrays": In(range(ARRAYS + 1)),
                "advance": In(1),
                "access": Out(access_layout(config)),
                "outside": Out(1),
                "fresh": In(1),
                "arrived": In(WIDTH),
                "y2": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table = table = ArrayTable()
        place = table.place
        offset = Mux(place.element == INT32, self.index << 2, self.index)
        known = self.array < self.arrays
        m.d.comb += [
            table.write.eq(self.write),
            table.number.eq(self.array),
            self.outside.eq(
                self.happens & (~known | (self.index >= table.length) | (self.store & (place.space != OUT)))
            ),
            self.access.valid.eq(self.happens),
            self.access.store.eq(self.store),
            self.access.space.eq(place.space),
            self.access.element.eq(place.element),
            self.access.address.eq(place.base + offset),
            self.access.data.eq(self.value),
        ]
        # A load that is served before its step ends arrives while `y2` is still that of the step before.
        first, loads = Signal(), Signal()
        current, following = Signal(WIDTH), Signal(WIDTH)
        m.d.sync += first.eq(self.advance)
        early = self.fresh & ~first
        with m.If(early):
            m.d.sync += following.eq(self.arrived)
        with m.If(self.advance):
            m.d.sync += [
                loads.eq(self.happens & ~self.store),
                current.eq(Mux(early, self.arrived, following)),
            ]
        with m.Elif(self.fresh & first):
            m.d.sync += current.eq(self.arrived)
        m.d.comb += self.y2.eq(Mux(loads, Mux(self.fresh & first, self.arrived, current), 0))
        return m
