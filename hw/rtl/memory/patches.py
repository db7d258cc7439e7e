"""The steps of a `load_b_conv`: walks image rows, kernel rows, channels, beats and kernel elements.

Source: docs/machine.md, "Patches".
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import difference, log2

_PREFIX = "conv_"

#: Geometry of the patches: the `conv_*` parameters, except the one that only affects addresses.
PatchShape = data.StructLayout(
    {
        name.removeprefix(_PREFIX): p.bits
        for name, p in isa.PARAMETERS.items()
        if name.startswith(_PREFIX) and name != "conv_line"
    }
)

#: Members of `PatchShape` that must not be zero.
NONZERO = (
    *("height", "width", "out_rows", "out_cols"),
    *(f"{what}_{edge}" for what in ("kernel", "stride", "dilation") for edge in "hw"),
)

#: Width of a pixel number in an image row, counted from the start of a memory word.
PIXEL_BITS = isa.SIZE_BITS + 1
#: Width of the sum of two pixel numbers.
END_BITS = isa.SIZE_BITS + 2
#: Width of an output row, including those before the first one (at most kernel_h*dilation_h) and after the
#: last.
ROW_BITS = isa.SIZE_BITS + 1
DIVIDE_STEPS = isa.KERNEL_BITS


class Divider(Component):
    """Divides a `bits`-bit number by one of `KERNEL_BITS`, one bit of the quotient per step.

    `bit` is the current quotient bit; the highest comes first.

    **Timing.** `quotient` and `remainder` are valid after `bits` cycles in which `step` is 1 and `number`
    counts from 0; from then on they hold. The divisor must hold.
    """

    def __init__(self, bits: int):
        self._bits = bits
        super().__init__(
            {
                "step": In(1),
                "number": In(range(DIVIDE_STEPS)),
                "dividend": In(bits),
                "divisor": In(isa.KERNEL_BITS),
                "bit": Out(1),
                "quotient": Out(bits),
                "remainder": Out(bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, bits = self.number == 0, self._bits
        left = Mux(first, self.dividend, self.quotient)[:bits]
        partial, rest = Signal(bits + 1), Signal(signed(max(bits + 1, isa.KERNEL_BITS) + 1))
        m.d.comb += [
            partial.eq(Cat(left[-1], Mux(first, 0, self.remainder))),
            rest.eq(partial - self.divisor),
            self.bit.eq(~rest[-1]),
        ]
        with m.If(self.step & (self.number < bits)):
            m.d.sync += [
                self.quotient.eq(Cat(self.bit, left[:-1])),
                self.remainder.eq(Mux(self.bit, rest, partial)),
            ]
        return m


class Countdown:
    """A loop counter: the steps left after the current one, minus one, so that `one` is the sign."""

    def __init__(self, bits: int, name: str):
        self._left = Signal(signed(bits + 1), name=name)
        self.one = self._left[-1]

    def count(self, m: Module, goes: Value, begins: Value, steps: Value) -> None:
        """When `goes`, loads `steps` with `begins` or else counts down; one adder does both."""
        base = Mux(begins, Cat(steps, 0).as_signed(), self._left)
        with m.If(goes):
            m.d.sync += self._left.eq(base + Cat(~begins, 1).as_signed())


class PatchWalker(Component):
    """Walks the steps of a `load_b_conv`; all outputs describe the current step.

    The kinds of steps are `preparing`, `scanning` (for kernel rows that use the image row), `settling`,
    `deciding` and `placing`; `number` counts the first kind. `found`, in a scan step or right after the last
    one, means that the previous scan step found a kernel row; `used` and `twice` mean that at least one or
    two were found before it. In the step `deciding`, `used` says whether any kernel row uses the image row.

    `first_of_*` and `end_of_*` refer to loops: a beat, an image row of one channel (`row`), an image row of
    all channels (`line`). Pixels are counted from the start of the memory word that holds pixel 0: the first
    one read, the last one read, the last one used; `at_*` means that it is in this beat. `span` is the number
    of pixels of an image row minus one.

    **Timing.** `start` begins a new operation in the next cycle; `shape`, `outer`, `span`, `align` must hold
    while `active`. A step ends in each cycle in which `advance` is 1.
    """

    def __init__(self, width: int, setup: int):
        assert setup > DIVIDE_STEPS
        self._width, self._setup = width, setup
        shift = log2(width)
        super().__init__(
            {
                "start": In(1),
                "advance": In(1),
                "shape": In(PatchShape),
                "outer": In(isa.SIZE_BITS),
                "span": In(isa.SIZE_BITS),
                "align": In(shift),
                "active": Out(1),
                "preparing": Out(1),
                "scanning": Out(1),
                "settling": Out(1),
                "deciding": Out(1),
                "placing": Out(1),
                "number": Out(range(setup)),
                "dividing": Out(1),
                "quotient_bit": Out(1),
                "found": Out(1),
                "used": Out(1),
                "twice": Out(1),
                "borrow": Out(1),
                "next_output_row": Out(1),
                "first_of_beat": Out(1),
                "first_of_row": Out(1),
                "end_of_columns": Out(1),
                "end_of_beat": Out(1),
                "end_of_row": Out(1),
                "end_of_line": Out(1),
                "begins_line": Out(1),
                "last": Out(1),
                "line_in_memory": Out(1),
                "reads": Out(1),
                "at_first_read": Out(1),
                "at_last_read": Out(1),
                "at_last_used": Out(1),
                "first_read": Out(PIXEL_BITS),
                "last_read": Out(END_BITS),
                "last_used": Out(PIXEL_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Image rows left: of the image; and of those above memory, then (`line_in_memory`) of those in
        # memory.
        self._lines, self._part, self._channels = (
            Countdown(isa.SIZE_BITS, n) for n in ("lines", "part", "channels")
        )
        self._kernel_rows, self._columns, self._uses_left = (
            Countdown(isa.KERNEL_BITS, n) for n in ("kernel_rows", "columns", "uses_left")
        )
        self._above = Signal(name="above")
        self._uses = Signal(isa.KERNEL_BITS, name="uses")  # number of kernel rows found
        m.d.comb += self.active.eq(
            self.preparing | self.scanning | self.settling | self.deciding | self.placing
        )
        self._find_rows(m)
        self._find_beats(m)
        with m.If(self.advance):
            self._step(m)
            self._count(m)
        with m.If(~self.preparing):
            m.d.sync += self.number.eq(0)
        with m.If(self.start):
            m.d.sync += [self.preparing.eq(1), self.dividing.eq(1)]
        return m

    def _step(self, m: Module) -> None:
        """State changes of each kind of step, except counters; where several apply, the last one wins."""
        shape = self.shape
        with m.If(self.preparing):
            m.d.sync += self.number.eq(self.number + 1)
            with m.If(self.number == DIVIDE_STEPS - 1):
                m.d.sync += self.dividing.eq(0)
            with m.If(self.number == 0):
                m.d.sync += [self._above.eq(shape.top.any()), self.line_in_memory.eq(0)]
            with m.If((self.number == 1) & ~self._above):
                m.d.sync += self.line_in_memory.eq(shape.rows.any())
            with m.If(self.number == self._setup - 1):
                m.d.sync += self.preparing.eq(0)
        with m.If(self.found):
            m.d.sync += [self._uses.eq(self._uses + 1), self.used.eq(1), self.twice.eq(self.used)]
        with m.If(self.scanning & self._kernel_rows.one):
            m.d.sync += [self.scanning.eq(0), self.settling.eq(1)]
        with m.If(self.settling):
            m.d.sync += [self.settling.eq(0), self.deciding.eq(1)]
        with m.If(self.deciding):
            m.d.sync += [self.deciding.eq(0), self.placing.eq(self.used), self.first_of_beat.eq(self.used)]
        with m.If(self.placing):
            m.d.sync += self.first_of_beat.eq(self.end_of_beat)
        with m.If(self.end_of_line):
            m.d.sync += self.first_of_beat.eq(0)
            with m.If(self._part.one):
                m.d.sync += [self._above.eq(0), self.line_in_memory.eq(self._above & shape.rows.any())]
        with m.If(self.begins_line):
            m.d.sync += [
                self.scanning.eq(~self.last),
                self.placing.eq(0),
                self._uses.eq(0),
                self.used.eq(0),
                self.twice.eq(0),
            ]

    def _count(self, m: Module) -> None:
        """The loop counters. Start values are selected before it is known whether a loop advances."""
        shape, part, begins = self.shape, self._part, self.preparing & (self.number == 0)
        below = self.preparing & (self.number == 1) & ~self._above
        self._lines.count(m, begins | self.end_of_line, self.preparing, shape.height)
        rows = Mux(begins, shape.top, shape.rows)
        part.count(m, begins | below | self.end_of_line, self.preparing | (part.one & self._above), rows)
        self._kernel_rows.count(m, self.scanning | self.begins_line, ~self.scanning, shape.kernel_h)
        for loop, goes, steps in (
            (self._channels, self.end_of_row | self.begins_line, self.outer),
            (self._uses_left, self.deciding | self.end_of_columns, self._uses),
            (self._columns, self.deciding | self.placing, shape.kernel_w),
        ):
            loop.count(m, goes, ~self.placing | loop.one, steps)

    def _find_rows(self, m: Module) -> None:
        """Finds the kernel rows i that use the image row y: y - i*dilation_h = row*stride_h, with rest 0."""
        shape = self.shape
        m.submodules.divider = divider = Divider(isa.KERNEL_BITS)
        line_row, line_rest = Signal(isa.SIZE_BITS), Signal(isa.KERNEL_BITS)  # of kernel row 0
        row, rest = Signal(signed(ROW_BITS)), Signal(isa.KERNEL_BITS)
        less = Signal(signed(isa.KERNEL_BITS + 1))
        next_row, next_rest = Signal(isa.SIZE_BITS), Signal(isa.KERNEL_BITS)
        useless = self.deciding & ~self.used
        m.d.comb += [
            divider.step.eq(self.dividing & self.advance),
            divider.number.eq(self.number),
            divider.dividend.eq(shape.dilation_h),
            divider.divisor.eq(shape.stride_h),
            self.quotient_bit.eq(divider.bit),
            less.eq(rest - divider.remainder),
            self.borrow.eq(less[-1]),
            self.end_of_line.eq((self.end_of_row & self._channels.one) | useless),
            self.last.eq(self.end_of_line & self._lines.one),
            self.begins_line.eq(self.end_of_line | (self.preparing & (self.number == self._setup - 1))),
            next_row.eq(Mux(self.preparing, 0, line_row + self.next_output_row)),
            next_rest.eq(Mux(self.preparing | self.next_output_row, 0, line_rest + 1)),
        ]
        with m.If(self.advance):
            m.d.sync += [
                self.found.eq(self.scanning & (rest == 0) & ~row[-1] & (row[:-1] < shape.out_rows)),
                self.next_output_row.eq(line_rest + 1 == shape.stride_h),
            ]
            with m.If(self.begins_line):
                m.d.sync += [line_row.eq(next_row), line_rest.eq(next_rest)]
                m.d.sync += [row.eq(next_row), rest.eq(next_rest)]
            with m.Elif(self.scanning):
                m.d.sync += [
                    rest.eq(less + Mux(self.borrow, shape.stride_h, 0)),
                    row.eq(difference(row, divider.quotient, self.borrow)),
                ]

    def _find_beats(self, m: Module) -> None:
        """The position of the beat in the image row."""
        shift, align = log2(self._width), Signal(signed(log2(self._width) + 1))
        first, last, used = (n[shift:] for n in (self.first_read, self.last_read, self.last_used))
        following = Signal(PIXEL_BITS - shift)  # the number of the next beat
        begun = Signal()  # the previous beat holds pixels that are read, but not the last one
        within = self.at_first_read | begun
        first_beat = Signal()
        m.d.comb += [
            align.eq(self.align - 1),
            self.reads.eq(self.line_in_memory & within),
            self.first_of_row.eq(self.first_of_beat & first_beat),
            self.end_of_columns.eq(self.placing & self._columns.one),
            self.end_of_beat.eq(self.end_of_columns & self._uses_left.one),
            self.end_of_row.eq(self.end_of_beat & self.at_last_used),
        ]
        with m.If(self.advance & self.preparing):
            m.d.sync += [
                self.first_read.eq(self.shape.left + self.align),
                self.last_read.eq(self.first_read + self.span),
                self.last_used.eq(self.shape.width + align),
            ]
        with m.If(self.advance & (self.end_of_beat | self.begins_line)):
            m.d.sync += [
                following.eq(following + 1),
                first_beat.eq(0),
                self.at_first_read.eq(following == first),
                self.at_last_read.eq(following == last),
                self.at_last_used.eq(following == used),
                begun.eq(within & ~self.at_last_read),
            ]
            with m.If(self.begins_line | self.end_of_row):
                m.d.sync += [
                    following.eq(1),
                    first_beat.eq(1),
                    self.at_first_read.eq(first == 0),
                    self.at_last_read.eq(last == 0),
                    self.at_last_used.eq(used == 0),
                    begun.eq(0),
                ]
