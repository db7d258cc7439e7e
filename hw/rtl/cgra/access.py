"""The memory port of a processing element: turns an index into an access, and extracts the loaded value."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.fabric.bitstream import ACC, ELEMENTS, OUT, SCRATCH
from hw.fabric.layout import ARRAYS
from hw.rtl.bits import log2, where
from hw.rtl.cgra.units import WIDTH, any_of, later, shown

#: Element types of arrays, by number.
INT32, INT8, UINT8 = range(len(ELEMENTS))
BASE_BITS = 24
ARRAY_BITS = (ARRAYS - 1).bit_length()

#: The first word of an array in a bitstream, without its unused bits.
ArrayPlace = data.StructLayout({"base": BASE_BITS, "space": 2, "element": 2})


def space_bytes(config: MachineConfig) -> tuple[int, int, int]:
    """Sizes in bytes of the spaces, by number."""
    return config.acc_bytes, config.scratch_bytes, config.out_bytes


def address_bits(config: MachineConfig) -> int:
    """Width of a byte address in the largest space."""
    return (max(space_bytes(config)) - 1).bit_length()


def length_bits(config: MachineConfig) -> int:
    """Width of the length of an array within any space."""
    return max(space_bytes(config)).bit_length()


def access_layout(config: MachineConfig) -> data.StructLayout:
    """A load, or a store of `data`, of one element at a byte address of one of the three spaces.

    `whole`: the element is a word; `signed`: it is a signed byte. With several lanes, `wide`: the access is
    of all lanes, the first at that address, and `mask` selects the lanes that take part (for a store that is
    not wide, lane 0).
    """
    lanes = config.cgra.lanes if config.cgra is not None else 1
    members = {
        **dict.fromkeys(("valid", "store", "acc", "scratch", "out", "whole", "signed"), 1),
        "address": address_bits(config),
        "data": WIDTH * lanes,
    }
    return data.StructLayout(members | ({"wide": 1, "mask": lanes} if lanes > 1 else {}))


def arrived_layout(lanes: int) -> data.StructLayout:
    """What the banks return to a port: the word of an element, in `acc` or in `other`.

    The two are separate because a row of the accumulator is wide; they are merged after a register. `lowest`
    and `signs` select, one-hot, the byte of the word that is the element's lowest and the one with its sign;
    `whole` says that the element is a word. All are 0 if there is no load.

    With several lanes there is one word per lane, and a single element may be in any of them. `mask` selects
    the lanes that get a value. For a `wide` access of bytes, `part` selects, one-hot, which of four parts of
    all words they are, and `signed` says whether they are signed.
    """
    members = {"acc": WIDTH * lanes, "other": WIDTH * lanes}
    members |= {"lowest": WIDTH // 8, "signs": WIDTH // 8, "whole": 1}
    of_lanes = {"wide": 1, "signed": 1, "part": WIDTH // 8, "mask": lanes}
    return data.StructLayout(members | (of_lanes if lanes > 1 else {}))


#: A write to an array: the parts that take `data` (`kind`: space and element type).
ArrayWrite = data.StructLayout({"base": 1, "kind": 1, "length": 1, "number": ARRAY_BITS, "data": WIDTH})


class ArrayTable(Component):
    """The arrays of a configuration, with as many low bits of base and length as requested.

    **Timing.** A write in cycle t is readable from t + 1 on; reading is combinational.
    """

    def __init__(self, base_bits: int = BASE_BITS, length_bits: int = WIDTH) -> None:
        super().__init__(
            {
                "write": In(ArrayWrite),
                "number": In(ARRAY_BITS),
                "base": Out(base_bits),
                "space": Out(2),
                "element": Out(2),
                "length": Out(length_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = ArrayPlace(self.write.data[: ArrayPlace.size])
        kind = Signal(4)
        for name, enable, value, target in (
            ("base", self.write.base, word.base, self.base),
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
        m.d.comb += [self.space.eq(kind[:2]), self.element.eq(kind[2:])]
        return m


class MemoryPort(Component):
    """Turns index, value and array of a step into an access, holds it while it waits, and returns loads.

    `load` latches the array and `store` of the next step, and, with several lanes, `wide`: whether the access
    is of all lanes. `happens` says for each lane that the step that ends has an access, `outside` that this
    access is out of range. An access that remains `open` is shown again (`waiting`), and no step may end
    meanwhile. In a pipelined fabric `new` is the access regardless of one that waits; otherwise it equals
    `access`. `arrived` is the data of a load served in the previous cycle, else 0; `fresh` says that there is
    one. `shows` means that no access of any port is open. `moves` without `advance` discards pending loads.

    **Timing.** `access` and `outside` are combinational from `happens`, `index` and `value`. `y` holds the
    value of a step's load from its arrival to the end of the next step. In a pipelined fabric accesses are
    made one step later, in its first cycle with `shows`, and `y` comes one more step later.
    """

    def __init__(self, config: MachineConfig, lanes: int = 1, pipelined: bool = False):
        self._config, self._lanes, self._pipelined = config, lanes, pipelined
        most = config.cgra.lanes if config.cgra is not None else 1
        self._arrived = arrived_layout(most)
        super().__init__(
            {
                "load": In(1),
                "store": In(1),
                "array": In(ARRAY_BITS),
                **({"wide": In(1)} if lanes > 1 else {}),
                "happens": In(lanes),
                "index": In(WIDTH),
                "value": In(WIDTH * lanes),
                "write": In(ArrayWrite),
                "arrays": In(range(ARRAYS + 1)),
                "advance": In(1),
                "moves": In(1),
                "shows": In(1),
                "access": Out(access_layout(config)),
                "new": Out(access_layout(config)),
                "outside": Out(1),
                "open": In(1),
                "waiting": Out(1),
                "fresh": In(1),
                "arrived": In(self._arrived),
                "y": Out(WIDTH * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        access, waits, kept = self.access, self.waiting, Signal(access_layout(self._config))
        m.d.sync += waits.eq(self.open)
        following, forbidden, length = self._array(m)
        offset = Mux(following.whole, self.index << 2, self.index)[: len(access.address)]
        happens, mask, beyond = self._reach(following, length)
        outside = forbidden | beyond
        if self._pipelined:
            late = Signal(kept.shape(), reset_less=True)
            with m.If(self.advance):
                m.d.sync += [
                    late.eq(following),
                    late.address.eq(following.address + offset),
                    late.data.eq(self.value),
                    *([late.mask.eq(mask)] if mask is not None else []),
                ]
            happens = shown(m, self.shows, "happens", happens)
            outside = later(m, self.advance, "outside", outside)
            m.d.comb += [self.new.eq(late), access.eq(Mux(waits, kept, late))]
        else:
            present = Signal(kept.shape())
            m.d.comb += [
                present.eq(Mux(waits, kept, following)),
                access.eq(present),
                # The kept address of a waiting access already includes the offset; it only passes the adder.
                access.address.eq(present.address + Mux(waits, 0, offset)),
                access.data.eq(Mux(waits, kept.data, self.value)),
                *([access.mask.eq(Mux(waits, kept.mask, mask))] if mask is not None else []),
                self.new.eq(access),
            ]
        with m.If(self.shows if self._pipelined else self.advance):
            m.d.sync += kept.eq(access)
        m.d.comb += [access.valid.eq(happens | waits), self.outside.eq(happens & outside)]
        # A value that arrives before the step can end is kept. It is merged into `other`, which comes from
        # fewer banks than the accumulator's words.
        layout = self._arrived
        stayed, stays, loaded, coming = Signal(layout), Signal(), Signal(layout), Signal(layout)
        m.d.sync += stays.eq(~self.moves & (stays | self.fresh))
        with m.If(self.fresh):
            m.d.sync += stayed.eq(self.arrived)
        kept_word = where(stays, stayed.acc | stayed.other)
        m.d.comb += [
            coming.acc.eq(self.arrived.acc),
            coming.other.eq(self.arrived.other | kept_word),
            *[
                coming[name].eq(self.arrived[name] | where(stays, stayed[name]))
                for name in layout.members
                if name not in ("acc", "other")
            ],
        ]
        if self._pipelined:
            # The path from a block RAM to other PEs is too long for one cycle.
            with m.If(self.moves):
                m.d.sync += loaded.eq(coming)
        else:
            m.d.comb += loaded.eq(coming)
        m.d.comb += self.y.eq(self._loaded(m, loaded))
        return m

    def _reach(
        self, following: data.View[data.StructLayout], length: Value
    ) -> tuple[Value, Value | None, Value]:
        """Whether there is an access, its mask (None in a one-lane CGRA), and whether it is out of range."""
        index, happens, mask, apart = self.index, self.happens[0], None, Const(0, 1)
        if "mask" in following.shape().members:
            single = Mux(following.store, 1, (1 << len(following.mask)) - 1)
            mask = single
        if self._lanes > 1:
            low = log2(self._lanes)
            # A wide access must start at a multiple of the number of lanes.
            apart = following.wide & index[:low].any()
            index = Cat(index[:low] | following.wide.replicate(low), index[low:])
            happens = Mux(following.wide, self.happens.any(), happens)
            mask = Mux(following.wide, self.happens, mask)
        beyond = index[len(length) :].any() | (index[: len(length)] >= length)
        return happens, mask, beyond | apart if self._lanes > 1 else beyond

    def _loaded(self, m: Module, loaded: data.View[data.StructLayout]) -> Value:
        """The value of a load, extracted from the words that the banks returned."""
        words = [
            loaded.acc.word_select(i, WIDTH) | loaded.other.word_select(i, WIDTH)
            for i in range(len(loaded.acc) // WIDTH)
        ]
        word = any_of(words)
        parts = [word.word_select(i, 8) for i in range(WIDTH // 8)]
        sign = Cat(mine & part[7] for mine, part in zip(loaded.signs, parts, strict=True)).any()
        lowest = any_of(where(mine, part) for mine, part in zip(loaded.lowest, parts, strict=True))
        rest = where(loaded.whole, word[8:]) | sign.replicate(WIDTH - 8)
        single = Cat(lowest, rest)
        if self._lanes == 1:
            return single
        value = Signal(WIDTH, name="single")
        m.d.comb += value.eq(single)
        block, lanes = Cat(*words), []
        for lane in range(self._lanes):
            own = [block.word_select(part * self._lanes + lane, 8) for part in range(WIDTH // 8)]
            byte = any_of(where(mine, part) for mine, part in zip(loaded.part, own, strict=True))
            wide = Cat(byte, (loaded.signed & byte[7]).replicate(WIDTH - 8)) | where(
                loaded.whole, words[lane]
            )
            lanes.append(where(loaded.mask[lane], Mux(loaded.wide, wide, value)))
        return Cat(*lanes)

    def _array(self, m: Module) -> tuple[data.View[data.StructLayout], Signal, Signal]:
        """For the next step: its access to element 0, whether it is a forbidden store, the array's length.

        An array that the configuration does not have has length 0.
        """
        following = Signal(access_layout(self._config))
        m.submodules.table = table = ArrayTable(address_bits(self._config), length_bits(self._config))
        forbidden, length = Signal(), Signal(length_bits(self._config))
        m.d.comb += [table.write.eq(self.write), table.number.eq(self.array)]
        with m.If(self.load):
            m.d.sync += [
                following.store.eq(self.store),
                following.acc.eq(table.space == ACC),
                following.scratch.eq(table.space == SCRATCH),
                following.out.eq(table.space == OUT),
                following.whole.eq(table.element == INT32),
                following.signed.eq(table.element == INT8),
                following.address.eq(table.base),
                forbidden.eq(self._forbidden(table)),
                length.eq(Mux(self.array < self.arrays, table.length, 0)),
            ]
        if self._lanes > 1:
            with m.If(self.load):
                m.d.sync += following.wide.eq(self.wide)
        return following, forbidden, length

    def _forbidden(self, table: ArrayTable) -> Value:
        """Whether it is a store to a read-only space, or a wide access to an array with an unaligned base."""
        readonly = self.store & (table.space != OUT)
        if self._lanes == 1:
            return readonly
        low = log2(self._lanes)
        between = Mux(table.element == INT32, table.base[: low + 2], table.base[:low])
        return readonly | (self.wide & between.any())
