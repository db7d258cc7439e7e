"""The asking half of a loader: walks the rows of an operation, requests their words, says where they go."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.rtl.bits import at_most, log2, place, place_bits
from hw.rtl.interfaces import ErrorReport, ReadRequest, operation, report_of, windows_layout
from hw.rtl.memory.load_steps import forms_patches, loader_target, operation_layout, step_layout
from hw.rtl.memory.patch_requests import VARIANT, PatchRequests, patch_requests, wrong_operands
from hw.rtl.memory.row_places import RowPlaces
from hw.rtl.memory.row_walker import RowWalker


class LoadRequests(Component):
    """The asking half of a loader.

    **Timing.** Takes an operation in cycle s; its first beat enters the request register in s + 1 at the
    earliest and is presented one cycle later. One beat per cycle, no bubble between operations. The steps of
    `load_b_conv` pass through the request register like beats, most of them like fill beats; what follows on
    it is taken one cycle behind its last step. A beat is told to the writer (`step`) in the cycle in which it
    enters, a step of `load_b_conv` in the next.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._config, self._port = config, port
        self._width = config.port_bytes(port)
        self._shape = loader_target(config, port)
        self._forms = forms_patches(config, port)
        super().__init__(
            {
                "operation": In(stream.Signature(operation(port))),
                "request": Out(stream.Signature(ReadRequest)),
                "taken": Out(stream.Signature(operation_layout(config, port), always_ready=True)),
                "step": Out(stream.Signature(step_layout(config, port), always_ready=True)),
                "room": In(1),  # for an operation
                "step_room": In(1),  # for a step
                "windows": In(windows_layout(config)),
                "stop": In(1),
                "error": Out(1),
                "error_report": Out(ErrorReport),
                "busy": Out(1),
                "stall_memory": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, op = self._width, self.operation.payload
        m.submodules.walker = self._walker = walker = RowWalker(width)
        # `load_b_conv` has a walker of its own, and that of rows stays at rest; request register, address of
        # the row and check of windows are shared. Of a loader without it all that it says is 0.
        self._patches = patches = patch_requests(self._shape, width).create()
        if self._forms:
            m.submodules.patches = self._patches = patches = PatchRequests(self._shape, width)
            m.d.comb += patches.operation.eq(op)
        self._first = first = Signal(32, name="first")  # first byte of the current row
        self._next_first = next_first = Signal(32, name="next_first")
        self._go = go = Signal(name="go")  # what is walked may move on
        # Taking an operation: nothing walks, or the last beat of plain rows just enters.
        idle, take = Signal(), Signal()
        new_row, renews = Signal(), Signal()  # `renews`: if there is another row, it is of an operation
        stride = Signal(32)
        m.d.comb += [
            walker.advance.eq(go),
            patches.go.eq(go),
            patches.first.eq(first),
            patches.stride.eq(stride),
            patches.next_first.eq(next_first),
            next_first.eq(patches.base + patches.gap if self._forms else first + stride),
            new_row.eq(go & ((walker.new_row & walker.more_rows) | patches.new_row)),
            renews.eq(~patches.active & (~walker.active | walker.last)),
            idle.eq(~patches.active & (~walker.active | (go & walker.last))),
            take.eq(self.operation.valid & idle & self.room & ~self.stop),
            self.operation.ready.eq(take),
        ]
        # What it needs is loaded whenever one could be taken: nothing waits for whether it is.
        with m.If(idle | new_row):
            m.d.sync += first.eq(Mux(renews, op.memory, next_first))
        with m.If(idle):
            m.d.sync += stride.eq(op.load_stride)
        refused = self._begin(m, take)
        fails = self._check(m, idle, take & refused)
        self._request(m, fails)
        self._tell(m, idle)
        return m

    def _begin(self, m: Module, take: Value) -> Value:
        """Begin what is taken, unless it is refused; tell the writer. Returns whether it would be refused."""
        op, walker, patches, shape = self.operation.payload, self._walker, self._patches, self._shape
        shift, columns, banks = log2(self._width), self._shape.columns, log2(self._shape.banks)
        of_patches, refused, begins = Signal(), Signal(), Signal()
        empty = (op.outer == 0) | (op.inner == 0)
        conflict = (
            op.variant[0]
            & ~at_most(op.inner + op.load_pad_inner, shape.lanes)
            & (op.load_pitch[:banks] != shape.lanes % shape.banks)
        )
        wrong = wrong_operands(op, shape, self._width) if self._forms else 0
        reach = place(op.load_pitch, columns)
        t, rows = self.taken.payload, walker.rows
        m.d.comb += [
            of_patches.eq(self._forms & (op.variant == VARIANT)),
            refused.eq(empty | Mux(of_patches, wrong, conflict)),
            begins.eq(take & ~refused),
            walker.start.eq(begins & ~of_patches),
            patches.start.eq(begins & of_patches),
            rows.low.eq(op.memory[:shift]),
            rows.step.eq(op.load_stride[:shift]),
            rows.outer.eq(op.outer),
            rows.inner.eq(op.inner),
            rows.pad_outer.eq(op.load_pad_outer),
            rows.pad_inner.eq(op.load_pad_inner),
            # One that is refused stops everything before the writer does anything.
            self.taken.valid.eq(take),
            t.pitch.eq(Cat(op.load_pitch[:banks], Mux(reach[-1], columns >> banks, reach[banks:]))),
            t.fill.eq(op.load_fill),
            t.lanes_first.eq(op.variant != 0),
            t.warp.eq(op.warp),
            t.pc.eq(op.pc),
        ]
        if self._forms:
            m.d.comb += t.stride.eq(Mux(of_patches, op.conv_stride_w, 1))
        return refused

    def _check(self, m: Module, idle: Value, bad: Value) -> Value:
        """Whether a row begins in no window, or patches are too large; reports this, or what is `bad`."""
        op, walker, patches, first = self.operation.payload, self._walker, self._patches, self._first
        who, span = Signal(ErrorReport), Signal(isa.SIZE_BITS)  # span: inner - 1
        with m.If(idle):
            m.d.sync += [span.eq(op.inner - 1), who.warp.eq(op.warp), who.pc.eq(op.pc)]
        last, inside, outside, fails = Signal(33), Signal(), Signal(), Signal()
        within = [(first >= w.first) & (last[:32] <= w.last) & w.read for w in self.windows]
        m.d.comb += [
            last.eq(first + span),
            inside.eq(Cat(within).any() & ~last[32]),
            patches.inside.eq(inside),
            patches.span.eq(span),
            outside.eq(walker.active & walker.in_memory & walker.first_of_row & ~inside),
            fails.eq(outside | patches.outside | patches.wrong),
            self.error.eq(bad | fails),
        ]
        report = self.error_report
        with m.If(fails):
            cause = Mux(patches.wrong, isa.Cause.OPERAND, isa.Cause.WINDOW)
            m.d.comb += report_of(report, cause, who)
        with m.Else():
            m.d.comb += report_of(report, isa.Cause.OPERAND, op)
        return fails

    def _request(self, m: Module, fails: Value) -> None:
        """The request register: beats and steps enter, and leave where they ask nothing or memory accepts.

        A row that fails moves on too, but is not requested: everything stops in the next cycle. What moves on
        behind a stop does not matter, for nothing is requested.
        """
        walker, patches, shift = self._walker, self._patches, log2(self._width)
        valid, is_fill, address = Signal(), Signal(), Signal(32 - shift)
        free, enter, reads, starts = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.request.valid.eq(valid & ~is_fill),
            self.request.payload.eq(address << shift),
            free.eq(~valid | is_fill | self.request.ready),
            self._go.eq(free & self.step_room),
            self.busy.eq(valid & (is_fill | self.request.ready)),
            self.stall_memory.eq(valid & ~is_fill & ~self.request.ready),
            enter.eq(self._go & (walker.active | patches.active)),
            reads.eq(Mux(patches.active, patches.reads, walker.in_memory)),
            starts.eq(Mux(patches.active, patches.first_read, walker.first_of_row)),
        ]
        with m.If(free):
            m.d.sync += [valid.eq(enter & ~fails & ~self.stop), is_fill.eq(~reads)]
        with m.If(enter & reads):
            m.d.sync += address.eq(Mux(starts, self._first[shift:], address + 1))

    def _tell(self, m: Module, idle: Value) -> None:
        """What the writer does with each beat, and with each step of patches."""
        op, walker, patches, shape = self.operation.payload, self._walker, self._patches, self._shape
        column = place_bits(shape.columns)
        target, pitch, lanes_first = Signal(column), Signal(column), Signal()
        new_target = place(op.target, shape.columns)
        with m.If(idle):
            m.d.sync += [
                target.eq(new_target),
                pitch.eq(self.taken.payload.pitch),
                lanes_first.eq(self.taken.payload.lanes_first),
            ]
        m.submodules.places = places = RowPlaces(shape, self._width)
        m.d.comb += [
            places.renews.eq(idle),
            places.target.eq(new_target),
            places.align.eq(walker.rows.low),
            places.new_lanes_first.eq(self.taken.payload.lanes_first),
            places.pitch.eq(pitch),
            places.lanes_first.eq(lanes_first),
            places.advance.eq(walker.active & self._go),
            places.end.eq(walker.end),
            places.new_row.eq(walker.new_row),
            places.next_align.eq(walker.next_align),
            patches.target.eq(target),
            patches.pitch.eq(pitch),
        ]
        beat = {
            "last": walker.last,
            "reads": walker.in_memory,
            "write_from": walker.first,
            "write_to": walker.end,
            "start": places.start,
            "block": places.block,
            "lane": places.lane,
        }
        if self._forms:
            beat |= {"fresh": Const(1), "skip": Const(0), "read_from": Const(0)}
            beat |= {"read_to": Mux(walker.in_memory, self._width, 0), "used_to": Const(self._width)}
        step = self.step.payload
        for name, value in beat.items():
            of_patches: Value = getattr(patches.place, name) if name != "lane" else value
            m.d.comb += step[name].eq(Mux(patches.placed, of_patches, value))
        m.d.comb += self.step.valid.eq((walker.active & self._go) | patches.placed)
