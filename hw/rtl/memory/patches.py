"""The steps of a `load_b_conv`: which image row, kernel rows, channel, beat, kernel element comes next.

Both halves of the loader walk them (docs/machine.md, "Patches"), as both walk the rows of other loads.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import log2

_PREFIX = "conv_"

#: Geometry of the patches: the `conv_*` parameters, except what only concerns addresses.
PatchShape = data.StructLayout(
    {
        name.removeprefix(_PREFIX): p.bits
        for name, p in isa.PARAMETERS.items()
        if name.startswith(_PREFIX) and name != "conv_line"
    }
)

#: Operands that must not be zero, of those of `PatchShape`.
NONZERO = (
    *("height", "width", "out_rows", "out_cols"),
    *(f"{what}_{edge}" for what in ("kernel", "stride", "dilation") for edge in "hw"),
)

#: Pixels of an image row, counted from the start of a memory word.
PIXEL_BITS = isa.SIZE_BITS + 1
#: The sum of two such.
END_BITS = isa.SIZE_BITS + 2
#: Output rows before the first one and behind the last: kernel_h*dilation_h at most before.
ROW_BITS = isa.SIZE_BITS + 1
DIVIDE_STEPS = isa.KERNEL_BITS


class Divider(Component):
    """Divides two numbers of `KERNEL_BITS` bits, one bit of the quotient (`bit`, highest first) per step.

    **Timing.** `quotient` and `remainder` are right after `DIVIDE_STEPS` cycles in which `step` is 1; in the
    first of these `first` is 1 too. The divisor must hold.
    """

    step: In(1)
    first: In(1)
    dividend: In(isa.KERNEL_BITS)
    divisor: In(isa.KERNEL_BITS)
    bit: Out(1)
    quotient: Out(isa.KERNEL_BITS)
    remainder: Out(isa.KERNEL_BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Mux(self.first, self.dividend, self.quotient)[: isa.KERNEL_BITS]
        partial = Signal(isa.KERNEL_BITS + 1)
        m.d.comb += [
            partial.eq(Cat(left[-1], Mux(self.first, 0, self.remainder))),
            self.bit.eq(partial >= self.divisor),
        ]
        with m.If(self.step):
            m.d.sync += [
                self.quotient.eq(Cat(self.bit, left[:-1])),
                self.remainder.eq(Mux(self.bit, partial - self.divisor, partial)),
            ]
        return m


class Countdown:
    """A count of what is left, and whether this is one, both in registers: much follows from the latter."""

    def __init__(self, bits: int, name: str):
        self.left, self.one = Signal(bits, name=name), Signal(name=f"{name}_one")

    def load(self, value: Value, one: Value | None = None) -> list[Any]:
        """Begin with a number; `one` says whether it is 1 where that is known sooner."""
        return [self.left.eq(value), self.one.eq(value == 1 if one is None else one)]

    def step(self) -> list[Any]:
        """One less."""
        return [self.left.eq(self.left - 1), self.one.eq(self.left == 2)]


class PatchWalker(Component):
    """Walks the steps of a `load_b_conv`; all outputs tell of the present one.

    `preparing`, `scanning` (for kernel rows that use the image row) and `placing` are the three kinds of
    steps, `number` counts those of the first kind, `found` tells that a scan step found a kernel row, the
    `uses`-th. `first_of_*` and `end_of_*` are about loops: a beat, an image row of a channel, an image row of
    all channels. Pixels are counted from the start of the memory word that holds pixel 0: the first that
    is read, the last that is read, the last that is used; `at_*` says that it is in the beat.

    **Timing.** `start` begins a new operation in the next cycle; `shape`, `outer`, `inner`, `align` must hold
    while `active`. A step ends with each cycle in which `advance` is 1.
    """

    def __init__(self, width: int, setup: int):
        assert setup >= DIVIDE_STEPS
        self._width, self._setup = width, setup
        shift = log2(width)
        super().__init__(
            {
                "start": In(1),
                "advance": In(1),
                "shape": In(PatchShape),
                "outer": In(isa.SIZE_BITS),
                "inner": In(isa.SIZE_BITS),
                "align": In(shift),
                "active": Out(1),
                "preparing": Out(1),
                "scanning": Out(1),
                "placing": Out(1),
                "number": Out(range(setup)),
                "dividing": Out(1),
                "quotient_bit": Out(1),
                "found": Out(1),
                "uses": Out(isa.KERNEL_BITS),
                "borrow": Out(1),
                "next_output_row": Out(1),
                "first_of_beat": Out(1),
                "first_of_row": Out(1),
                "end_of_columns": Out(1),
                "end_of_beat": Out(1),
                "end_of_row": Out(1),
                "end_of_line": Out(1),
                "last": Out(1),
                "line_in_memory": Out(1),
                "reads": Out(1),
                "at_first_read": Out(1),
                "at_last_read": Out(1),
                "at_last_used": Out(1),
                "beat": Out(PIXEL_BITS - shift),
                "first_read": Out(PIXEL_BITS),
                "last_read": Out(END_BITS),
                "last_used": Out(PIXEL_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape, shift = self.shape, log2(self._width)
        m.submodules.divider = divider = Divider()
        # Image rows left: in all; above those that are read, then (`self.line_in_memory`) of those.
        lines, part, channels = (Countdown(isa.SIZE_BITS, n) for n in ("lines", "part", "channels"))
        above = Signal()
        final = Signal()  # the last channel of the last image row
        kernel_rows, columns, uses_left = (
            Countdown(isa.KERNEL_BITS, n) for n in ("kernel_rows", "columns", "uses_left")
        )
        # y = line_row*stride_h + line_rest, and y - i*dilation_h = row*stride_h + rest of kernel row i.
        line_row, line_rest = Signal(isa.SIZE_BITS), Signal(isa.KERNEL_BITS)
        row, rest = Signal(signed(ROW_BITS)), Signal(isa.KERNEL_BITS)
        # Both less `out_rows`: whether a row is below that takes no comparison, for much follows from it.
        line_below, below = (Signal(signed(ROW_BITS + 1), name=n) for n in ("line_below", "below"))
        uses = Signal(isa.KERNEL_BITS)  # with the present step
        m.d.comb += [
            divider.step.eq(self.dividing & self.advance),
            divider.first.eq(self.number == 0),
            divider.dividend.eq(shape.dilation_h),
            divider.divisor.eq(shape.stride_h),
            self.quotient_bit.eq(divider.bit),
            self.active.eq(self.preparing | self.scanning | self.placing),
            self.dividing.eq(self.preparing & (self.number < DIVIDE_STEPS)),
            self.found.eq(self.scanning & (rest == 0) & ~row[-1] & below[-1]),
            uses.eq(self.uses + self.found),
            self.borrow.eq(rest < divider.remainder),
            self.next_output_row.eq(line_rest + 1 == shape.stride_h),
            self.at_first_read.eq(self.beat == self.first_read[shift:]),
            self.at_last_read.eq(self.beat == self.last_read[shift:]),
            self.reads.eq(
                self.line_in_memory
                & (self.beat >= self.first_read[shift:])
                & (self.beat <= self.last_read[shift:])
            ),
            self.first_of_row.eq(self.first_of_beat & (self.beat == 0)),
            self.end_of_columns.eq(self.placing & columns.one),
            self.end_of_beat.eq(self.end_of_columns & uses_left.one),
            self.end_of_row.eq(self.end_of_beat & self.at_last_used),
        ]
        scanned = self.scanning & kernel_rows.one
        useless = scanned & ~self.uses.any() & ~self.found
        m.d.comb += [
            self.end_of_line.eq((self.end_of_row & channels.one) | useless),
            self.last.eq((self.end_of_row & final) | (useless & lines.one)),
        ]

        begin_row = [self.beat.eq(0), self.at_last_used.eq(~self.last_used[shift:].any())]

        def begin_line(first_row: Value, first_below: Value, first_rest: Value, last_line: Value) -> None:
            """Begin to look for the kernel rows that use an image row."""
            m.d.sync += [
                self.scanning.eq(1),
                self.placing.eq(0),
                row.eq(first_row),
                below.eq(first_below),
                rest.eq(first_rest),
                *kernel_rows.load(shape.kernel_h),
                self.uses.eq(0),
                *channels.load(self.outer),
                final.eq(last_line & (self.outer == 1)),
                *begin_row,
            ]

        with m.If(self.advance):
            with m.If(self.preparing):
                m.d.sync += self.number.eq(self.number + 1)
                with m.Switch(self.number):
                    with m.Case(0):
                        m.d.sync += [
                            *lines.load(shape.height),
                            *part.load(shape.top),
                            above.eq(shape.top.any()),
                            self.line_in_memory.eq(0),
                            self.first_read.eq(shape.left + self.align),
                            self.last_used.eq(shape.width + self.align - 1),
                            line_row.eq(0),
                            line_below.eq(-shape.out_rows),
                            line_rest.eq(0),
                        ]
                    with m.Case(1):
                        m.d.sync += self.last_read.eq(self.first_read + self.inner - 1)
                        with m.If(~above):
                            m.d.sync += [*part.load(shape.rows), self.line_in_memory.eq(shape.rows.any())]
                    with m.Case(self._setup - 1):
                        m.d.sync += self.preparing.eq(0)
                        begin_line(line_row, line_below, line_rest, lines.one)
            with m.If(self.scanning):
                m.d.sync += [
                    rest.eq(rest - divider.remainder + Mux(self.borrow, shape.stride_h, 0)),
                    row.eq(row - divider.quotient - self.borrow),
                    below.eq(below - divider.quotient - self.borrow),
                    *kernel_rows.step(),
                    self.uses.eq(uses),
                    *uses_left.load(uses, Mux(self.found, self.uses == 0, self.uses == 1)),
                    *columns.load(shape.kernel_w),
                ]
                with m.If(scanned):
                    m.d.sync += [self.scanning.eq(0), self.placing.eq(1), self.first_of_beat.eq(1)]
            with m.If(self.placing):
                m.d.sync += [*columns.step(), self.first_of_beat.eq(self.end_of_beat)]
                with m.If(self.end_of_columns):
                    m.d.sync += [*columns.load(shape.kernel_w), *uses_left.step()]
                with m.If(self.end_of_beat):
                    m.d.sync += [*uses_left.load(self.uses), self.beat.eq(self.beat + 1)]
                    m.d.sync += self.at_last_used.eq(self.beat + 1 == self.last_used[shift:])
                with m.If(self.end_of_row):
                    m.d.sync += [*begin_row, *channels.step()]
                    m.d.sync += final.eq(lines.one & (channels.left == 2))
            with m.If(self.end_of_line):
                next_row = (line_row + self.next_output_row)[: isa.SIZE_BITS]
                next_below = line_below + self.next_output_row
                next_rest = Mux(self.next_output_row, 0, line_rest + 1)[: isa.KERNEL_BITS]
                m.d.sync += [
                    *lines.step(),
                    line_row.eq(next_row),
                    line_below.eq(next_below),
                    line_rest.eq(next_rest),
                    self.first_of_beat.eq(0),
                ]
                m.d.sync += part.step()
                with m.If(part.one):
                    m.d.sync += [above.eq(0), self.line_in_memory.eq(above & shape.rows.any())]
                    with m.If(above):
                        m.d.sync += part.load(shape.rows)
                begin_line(next_row, next_below, next_rest, lines.left == 2)
                with m.If(self.last):
                    m.d.sync += self.scanning.eq(0)
        with m.If(~self.preparing):
            m.d.sync += self.number.eq(0)
        with m.If(self.start):
            m.d.sync += self.preparing.eq(1)
        return m
