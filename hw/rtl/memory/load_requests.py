"""The request half of a loader: walks the rows of an operation and requests their words."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.rtl.bits import at_most, log2, place, reaches
from hw.rtl.interfaces import ErrorReport, ReadRequest, operation, report_of, windows_layout
from hw.rtl.memory.load_steps import forms_patches, loader_target, operation_layout, step_layout
from hw.rtl.memory.load_walker import LoadWalker
from hw.rtl.memory.patch_requests import VARIANT, PatchRequests
from hw.rtl.memory.row_places import RowPlaces

#: Flags of a step: it is a real step, it is the first of a row in memory, no word of its row has been
#: requested yet.
_ASKS = ("told", "checks", "starts")


class LoadRequests(Component):
    """Issues the memory requests of one operation at a time, in a pipeline of three stages.

    A beat, or a step of patches, is walked to; then the end of its row is computed; then the row is compared
    with the windows. From there it enters the request register, and the writer receives its `step`. The
    stages advance when the last one is empty or its content enters.

    **Timing.** Takes an operation in cycle s, at the earliest in the cycle after the last beat of the
    previous one enters. Its first beat enters the request register in s + 4 at the earliest and is presented
    one cycle later. One beat per cycle. The steps of `load_b_conv` pass through the request register like
    beats, most of them like fill beats. `error` reports a violation in the cycle in which its beat would
    enter; nothing enters from then on.
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
        # The current operation. For patches, its address advances to the current image row.
        self._op = op = Signal(self.operation.payload.shape(), name="op", reset_less=True)
        self._begin = begin = Signal(name="begin")  # it was taken in the previous cycle
        self._moves = moves = Signal(name="moves")  # the stages advance
        m.submodules.walker = self._walker = walker = LoadWalker(self._width)
        self._of_patches, walked = Const(0, 1), walker.active
        if self._forms:
            m.submodules.patches = self._patches = PatchRequests(self._shape, self._width)
            self._of_patches = op.variant == VARIANT
            walked = walker.active | self._patches.active
        # Whether the middle stage and the last stage hold something, whether the last one's content enters,
        # and whether there was an error.
        middle, present, enters, over = (Signal(name=n) for n in ("middle", "present", "enters", "over"))
        take, idle = Signal(), Signal()
        # `stop` is a late input, so it is registered; an operation taken in its cycle requests nothing.
        halted = Signal(init=1)
        m.d.sync += halted.eq(self.stop)
        m.d.comb += [
            idle.eq(~(begin | walked | middle | present)),
            take.eq(self.operation.valid & idle & self.room & ~halted & ~over),
            self.operation.ready.eq(take),
            moves.eq(~present | enters),
        ]
        m.d.sync += begin.eq(take)
        with m.If(idle):
            m.d.sync += op.eq(self.operation.payload)
        with m.If(moves):
            m.d.sync += [middle.eq(walked), present.eq(middle)]
        self._tell_operation(m)
        step = self._step(m)
        inside, word = self._row(m)
        wrong, fails, report = self._wrong(m), Signal(), self.error_report
        m.d.comb += [
            fails.eq(wrong | (step.checks & ~inside)),
            self.error.eq(enters & fails),
            *report_of(report, Mux(wrong, isa.Cause.OPERAND, isa.Cause.WINDOW), op),
            self.step.valid.eq(enters & step.told),
            *[self.step.payload[name].eq(step[name]) for name, _ in self.step.payload.shape()],
        ]
        with m.If(self.error):
            m.d.sync += over.eq(1)
        self._request(m, present & ~over, enters, fails, step, word)
        return m

    def _tell_operation(self, m: Module) -> None:
        """Sends the operation to the writer. A refused operation is stopped before the writer acts on it."""
        op, shape, t = self._op, self._shape, self.taken.payload
        columns, banks = shape.columns, log2(shape.banks)
        reach = place(op.load_pitch, columns)
        # Both halves need the pitch one cycle later.
        m.d.sync += [
            self.taken.valid.eq(self._begin),
            t.pitch.eq(Cat(op.load_pitch[:banks], Mux(reach[-1], columns >> banks, reach[banks:]))),
        ]
        m.d.comb += [
            t.fill.eq(op.load_fill),
            t.lanes_first.eq(op.variant != 0),
            t.warp.eq(op.warp),
            t.pc.eq(op.pc),
        ]
        if self._forms:
            m.d.comb += t.stride.eq(Mux(self._of_patches, op.conv_stride_w, 1))

    def _wrong(self, m: Module) -> Signal:
        """Whether the operation is refused, in time for its first beat."""
        op, shape = self._op, self._shape
        reach, empty, conflict, wrong = Signal(isa.SIZE_BITS + 1), Signal(), Signal(), Signal(name="wrong")
        pitch = op.load_pitch[: log2(shape.banks)] != shape.lanes % shape.banks
        m.d.comb += conflict.eq(op.variant[0] & ~at_most(reach, shape.lanes) & pitch)
        m.d.sync += [
            reach.eq(op.inner + op.load_pad_inner),
            empty.eq((op.outer == 0) | (op.inner == 0)),
            wrong.eq(empty | conflict),
        ]
        if self._forms:
            m.d.sync += wrong.eq(empty | Mux(self._of_patches, self._patches.wrong, conflict))
        return wrong

    def _row(self, m: Module) -> tuple[Signal, Signal]:
        """Whether the row in the last stage lies in a window, and the number of its first word."""
        op, walker, shift = self._op, self._walker, log2(self._width)
        first = Signal(32, name="first")  # of the row being walked
        loads, follows = self._begin, walker.new_row
        if self._forms:
            patches = self._patches
            loads, follows = loads | patches.deciding, follows | patches.deciding | patches.end_of_row
            with m.If(self._moves & patches.leaves_line):
                m.d.sync += op.memory.eq(op.memory + op.conv_line)
        with m.If(self._begin | (self._moves & follows)):
            m.d.sync += first.eq(Mux(loads, op.memory, first) + Mux(loads, 0, op.load_stride))
        span = Signal(isa.SIZE_BITS)
        row, last = Signal(32, name="row"), Signal(33, name="row_last")
        inside, word = Signal(name="inside"), Signal(32 - shift, name="word")
        within = [reaches(row, w.first) & reaches(w.last, last[:32]) & w.read for w in self.windows]
        m.d.comb += span.eq(op.inner - 1)
        with m.If(self._moves):
            m.d.sync += [
                row.eq(first),
                last.eq(first + span),
                inside.eq(Cat(within).any() & ~last[32]),
                word.eq(row[shift:]),
            ]
        return inside, word

    def _step(self, m: Module) -> Value:
        """The step in the last stage: its request flags, and what the writer does with it."""
        op, walker, shape = self._op, self._walker, self._shape
        lanes_first, of_patches = self.taken.payload.lanes_first, self._of_patches
        m.submodules.places = places = RowPlaces(shape, self._width)
        target = place(op.target, shape.columns)
        m.d.comb += [
            walker.begin.eq(self._begin & ~of_patches),
            walker.advance.eq(self._moves),
            walker.rows.low.eq(op.memory[: log2(self._width)]),
            walker.rows.step.eq(op.load_stride[: log2(self._width)]),
            walker.rows.outer.eq(op.outer),
            walker.rows.inner.eq(op.inner),
            walker.rows.pad_outer.eq(op.load_pad_outer),
            walker.rows.pad_inner.eq(op.load_pad_inner),
            places.begin.eq(self._begin),
            places.target.eq(target),
            places.align.eq(walker.rows.low),
            places.pitch.eq(self.taken.payload.pitch),
            places.lanes_first.eq(lanes_first),
            places.advance.eq(self._moves),
            places.end.eq(walker.end),
            places.new_row.eq(walker.new_row),
            places.next_align.eq(walker.next_align),
        ]
        walked = {
            "told": walker.active,
            "checks": walker.first_of_row & walker.in_memory,
            "starts": walker.first_of_row,
            "last": walker.last,
            "reads": walker.in_memory,
            "write_from": walker.first,
            "write_to": walker.end,
            "start": places.start,
            "block": places.block,
            "lane": places.lane,
        }
        layout = data.StructLayout({name: Value.cast(value).shape() for name, value in walked.items()})
        middle_step, last_step = Signal(layout), Signal(layout)
        with m.If(self._moves):
            m.d.sync += [
                last_step.eq(middle_step),
                *[middle_step[n].eq(value) for n, value in walked.items()],
            ]
        if not self._forms:
            return last_step
        patches = self._patches
        m.d.comb += [
            patches.begin.eq(self._begin & of_patches),
            patches.operation.eq(op),
            patches.target.eq(target),
            patches.pitch.eq(self.taken.payload.pitch),
            patches.advance.eq(self._moves),
        ]
        return self._chosen(m, last_step)

    def _chosen(self, m: Module, row: Value) -> Value:
        """Selects the step of a row or of patches."""
        shape = self.step.payload.shape()
        step = Signal(data.StructLayout(dict.fromkeys(_ASKS, 1) | dict(shape.members)), name="step_chosen")
        of_rows: dict[str, Value] = {name: row[name] for name in row.shape().members}
        of_rows |= {"skip": Const(0), "read_from": Const(0), "used_to": Const(self._width)}
        of_rows["read_to"] = Mux(row.reads, self._width, 0)
        for name in step.shape().members:
            of_row = of_rows[name]
            of_patches = self._patches.place[name] if name != "lane" else of_row
            m.d.comb += step[name].eq(Mux(self._of_patches, of_patches, of_row))
        return step

    def _request(
        self, m: Module, present: Value, enters: Signal, fails: Value, step: Value, word: Value
    ) -> None:
        """The request register: steps enter it, and leave at once or when memory accepts their request.

        A step with an error enters too, but is not requested. The content after a stop is don't-care, because
        nothing is requested.
        """
        shift = log2(self._width)
        # `asks`: a beat that memory has not accepted yet; `passes`: a step without a request. Both are
        # registers, because the stages depend on the memory's `ready`, which is a late input.
        asks, passes, address, free = Signal(), Signal(), Signal(32 - shift), Signal()
        valid = Signal()
        m.d.comb += [
            self.request.valid.eq(asks),
            self.request.payload.eq(address << shift),
            free.eq(~asks | self.request.ready),
            enters.eq(present & free & self.step_room),
            valid.eq(enters & ~fails & ~self.stop),
            self.busy.eq(passes | (asks & self.request.ready)),
            self.stall_memory.eq(asks & ~self.request.ready),
        ]
        with m.If(free):
            m.d.sync += [asks.eq(valid & step.reads), passes.eq(valid & ~step.reads)]
        with m.If(enters & step.reads):
            m.d.sync += address.eq(Mux(step.starts, word, address) + ~step.starts)
