"""The answering half of a loader: walks the rows again and puts every byte where it belongs."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.bits import log2, low, range_mask, rotate_left
from hw.config import MachineConfig
from hw.interfaces import INNER_BITS, WARP_BITS, ErrorReport, read_response
from hw.memory.buffer import BankedWrite, address_bits
from hw.memory.load_requests import descriptor, forms_patches, loader_target
from hw.memory.patch_places import PatchPlaces, column_bits
from hw.memory.strided_bytes import StridedBytes


@dataclass(frozen=True)
class _Beat:
    """Values of the beat that `LoadWriter` processes in this cycle."""

    step: Value
    data: Value
    mask: Value
    lanes_first: Value
    rotation: Value
    lane: Value
    column: Value
    within: Value
    base: Value
    blocks: list[Signal]
    last: Value
    failed: Value
    warp: Value
    pc: Value


class LoadWriter(Component):
    """The answering half of a loader: places bytes into the banks.

    **Timing.** An answer in cycle y is written in y + 2, readable in y + 3; if it was the operation's last
    beat, `complete` is 1 in y + 3. Fill beats follow their predecessor in the next cycle.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._width = config.port_bytes(port)
        self._shape = loader_target(config, port)
        self._descriptor, self._patches = descriptor(port), forms_patches(port)
        self._bits = column_bits(self._shape, self._width) if self._patches else INNER_BITS
        super().__init__(
            {
                "taken": In(stream.Signature(self._descriptor)),
                "response": In(stream.Signature(read_response(self._width))),
                "write": Out(BankedWrite(self._shape)),
                "stop": In(1),
                "complete": Out(1),
                "complete_warp": Out(WARP_BITS),
                "error": Out(1),
                "error_report": Out(ErrorReport),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, shape = self._width, self._shape
        shift, lane_bits, bank_bits = log2(width), log2(shape.lanes), log2(shape.banks)
        bits = self._bits
        d = Signal(self._descriptor)
        active, filling, tail = Signal(), Signal(), Signal()
        rows, tails = Signal(isa.SIZE_BITS), Signal(isa.SIZE_BITS)
        row_low = Signal(shift)  # memory alignment of the current row
        first, left = Signal(shift), Signal(isa.SIZE_BITS + 2)  # valid bytes of the beat: [first, left)
        lane = Signal(max(1, lane_bits))
        base = Signal(bits)  # column of element 0 of the row
        column = Signal(bits)  # depth-first form: column of byte 0 of the beat
        position = Signal(bank_bits)  # lanes-first form: lane index of byte 0, modulo the banks
        block = Signal(bits)  # lanes-first form: column of the block of byte 0

        in_memory, step = Signal(), Signal()
        m.d.comb += [
            in_memory.eq(~filling & ~tail),
            step.eq(active & ~self.stop & (~in_memory | self.response.valid)),
            self.response.ready.eq(self.stop | (active & in_memory)),
        ]
        segment_done, row_done, op_done = Signal(), Signal(), Signal()
        has_fill = in_memory & (d.pad_inner != 0)
        m.d.comb += [
            segment_done.eq(left <= width),
            row_done.eq(segment_done & ~has_fill),
            op_done.eq(step & row_done & Mux(tail, tails == 1, (rows == 1) & (tails == 0))),
        ]
        # Blocks that a beat of successive lanes can touch; a buffer of one lane has no such form.
        spread = max(1, width // shape.lanes) if lane_bits else 0
        blocks = [Signal(bits, name=f"block{i}") for i in range(spread + 1)]
        m.d.comb += [value.eq(block + i * d.pitch) for i, value in enumerate(blocks)]
        within = low(position, lane_bits)

        def start_row(row_base: Value, next_lane: Value, align: Value, length: Value, pitch: Value) -> None:
            """Point at the first beat of a row whose byte 0 is `align` bytes into it."""
            ahead = (align + (shape.lanes - 1)) >> lane_bits  # blocks before that of element 0
            m.d.sync += [
                base.eq(row_base),
                lane.eq(next_lane),
                row_low.eq(align),
                first.eq(align),
                left.eq(length + align),
                column.eq(row_base - align),
                position.eq(-align),
                block.eq(row_base - ahead * pitch),
            ]

        with m.If(step):
            m.d.sync += [
                first.eq(0),
                left.eq(left - width),
                column.eq(column + width),
                position.eq(position + width),
            ]
            if lane_bits and width >= shape.lanes:
                m.d.sync += block.eq(blocks[spread])
            elif lane_bits:
                m.d.sync += block.eq(Mux(within + width >= shape.lanes, blocks[1], block))
            with m.If(segment_done & has_fill):
                past = (within + left[: shift + 1]) >> lane_bits
                m.d.sync += [
                    filling.eq(1),
                    left.eq(d.pad_inner),
                    column.eq(base + d.inner),
                    position.eq(d.inner),
                    block.eq(Array(blocks)[past]),
                ]
            with m.Elif(row_done):
                wrap = (lane == shape.lanes - 1) & ~d.lanes_first
                next_lane = Mux(d.lanes_first, 0, lane + 1) if lane_bits else Const(0)
                jump = Mux(d.lanes_first, 1, Mux(wrap, d.pitch, 0))
                to_tail = tail | (rows == 1)
                m.d.sync += [filling.eq(0), tail.eq(to_tail)]
                with m.If(tail):
                    m.d.sync += tails.eq(tails - 1)
                with m.Else():
                    m.d.sync += rows.eq(rows - 1)
                start_row(
                    (base + jump)[:bits],
                    next_lane[: len(lane)],
                    Mux(to_tail, 0, (row_low + d.step)[:shift]),
                    Mux(to_tail, d.inner + d.pad_inner, d.inner),
                    d.pitch,
                )

        new = self.taken.payload
        m.d.comb += self.taken.ready.eq(~active | op_done)
        with m.If(self.taken.ready):
            m.d.sync += active.eq(self.taken.valid)
            with m.If(self.taken.valid):
                m.d.sync += [
                    d.eq(new),
                    filling.eq(0),
                    tail.eq(0),
                    rows.eq(new.outer),
                    tails.eq(new.pad_outer),
                ]
                start_row(new.target, Const(0, len(lane)), new.low[:shift], new.inner, new.pitch)

        source = self.response.payload
        word, mask = Signal(8 * width), Signal(width)
        moves, ends, awaited = Signal(), Signal(), Signal()
        m.d.comb += [
            word.eq(Mux(in_memory, source.data, d.fill.replicate(width))),
            mask.eq(range_mask(first, left, width)),
            moves.eq(step),  # a beat goes into the pipeline
            ends.eq(op_done),
            awaited.eq(in_memory),
        ]
        beat = _Beat(
            step=moves,
            data=word,
            mask=mask,
            lanes_first=d.lanes_first,
            rotation=Mux(d.lanes_first, position + base, lane + column)[:bank_bits],
            lane=lane,
            column=column,
            within=within,
            base=base,
            blocks=blocks,
            last=ends,
            failed=moves & awaited & source.error,
            warp=d.warp,
            pc=d.pc,
        )
        self._place(m, beat)
        if not self._patches:
            return m

        # `load_b_conv`: beside the walker of rows, which stays at rest, one of steps is a step ahead and sets
        # the registers of the lanes-first form. Plain loads pass through the choice of bytes unchanged.
        m.submodules.places = places = PatchPlaces(shape, width, bits)
        m.submodules.strided = strided = StridedBytes(width)
        place = places.place
        present, final, fresh, reads = (
            Signal(name=f"patch_{n}") for n in ("present", "final", "fresh", "reads")
        )
        read_from, read_to, write_from, write_to = (
            Signal(shift + 1, name=n) for n in ("read_from", "read_to", "write_from", "write_to")
        )
        skip, stride = Signal(isa.KERNEL_BITS), Signal(isa.KERNEL_BITS)
        filled, kept = Signal(8 * width), Signal(8 * width)  # the beat; as it was in the step before
        from_memory, waits, patch_step = Signal(width), Signal(), Signal()
        start = self.taken.ready & self.taken.valid
        m.d.comb += [
            places.start.eq(start & new.patches),
            places.advance.eq(~present | patch_step),
            places.shape.eq(d.geometry),
            places.outer.eq(d.outer),
            places.inner.eq(d.inner),
            places.align.eq(d.low),
            places.target.eq(d.target),
            places.pitch.eq(d.pitch),
            waits.eq(present & fresh & reads),
            patch_step.eq(present & ~self.stop & (~waits | self.response.valid)),
            self.response.ready.eq(self.stop | (active & in_memory) | waits),
            self.taken.ready.eq((~active & ~present & ~places.active) | op_done | (patch_step & final)),
            from_memory.eq(range_mask(read_from, read_to, width) & in_memory.replicate(width)),
            filled.eq(Cat(Mux(from_memory[i], source.data.word_select(i, 8), d.fill) for i in range(width))),
            strided.data.eq(Mux(fresh, filled, kept)),
            strided.valid.eq(range_mask(first, left, width)),
            strided.skip.eq(skip),
            strided.stride.eq(stride),
            word.eq(strided.chosen),
            mask.eq(strided.chosen_valid & range_mask(write_from, write_to, width)),
            moves.eq(step | patch_step),
            ends.eq(op_done | (patch_step & final)),
            awaited.eq(Mux(present, waits, in_memory)),
        ]
        with m.If(patch_step):
            m.d.sync += [kept.eq(strided.data), present.eq(0)]
        with m.If(places.valid & places.advance):
            m.d.sync += [
                present.eq(1),
                final.eq(place.last),
                fresh.eq(place.first_of_beat),
                reads.eq(place.reads),
                read_from.eq(place.read_from),
                read_to.eq(place.read_to),
                first.eq(0),
                left.eq(place.used_to),
                skip.eq(place.skip),
                write_from.eq(place.write_from),
                write_to.eq(place.write_to),
                position.eq(place.position),
                base.eq(place.base),
                block.eq(place.block),
            ]
        with m.If(start):
            m.d.sync += [
                active.eq(~new.patches),
                fresh.eq(1),
                read_from.eq(0),
                read_to.eq(width),
                skip.eq(0),
                stride.eq(Mux(new.patches, new.geometry.stride_w, 1)),
                write_from.eq(0),
                write_to.eq(width),
            ]
        return m

    def _place(self, m: Module, beat: _Beat) -> None:
        """Two pipeline stages: keep the beat; rotate it and find each bank's address."""
        width, shape = self._width, self._shape
        lane_bits, bank_bits = log2(shape.lanes), log2(shape.banks)
        high_bits = self._bits - bank_bits
        limit = shape.columns // shape.banks

        valid, last = Signal(), Signal()
        kept, mask, lanes_first = Signal(8 * width), Signal(width), Signal()
        rotation, lane, column = Signal(bank_bits), Signal(len(beat.lane)), Signal(self._bits)
        within, base_low = Signal(max(1, lane_bits)), Signal(max(1, lane_bits))
        highs = [Signal(high_bits, name=f"high{i}") for i in range(len(beat.blocks))]
        who = Signal(ErrorReport)
        failed, bad = Signal(), Signal()
        m.d.sync += [valid.eq(beat.step), last.eq(beat.last), failed.eq(beat.failed)]
        with m.If(beat.step):
            m.d.sync += [
                kept.eq(beat.data),
                mask.eq(beat.mask),
                lanes_first.eq(beat.lanes_first),
                rotation.eq(beat.rotation),
                lane.eq(beat.lane),
                column.eq(beat.column),
                within.eq(beat.within),
                base_low.eq(low(beat.base, lane_bits)),
                who.warp.eq(beat.warp),
                who.pc.eq(beat.pc),
                *[h.eq(b[bank_bits:]) for h, b in zip(highs, beat.blocks, strict=True)],
            ]

        pad = shape.banks - width
        rotated = rotate_left(m, Cat(kept, Const(0, 8 * pad)), rotation)
        enables = rotate_left(m, Cat(mask, Const(0, pad)), rotation, unit=1)
        outside = []
        with m.If(valid):
            m.d.sync += self.write.data.eq(rotated)
        for b in range(shape.banks):
            high, address = (
                Signal(high_bits, name=f"bank{b}_high"),
                Signal(lane_bits + high_bits, name=f"a{b}"),
            )
            turned = (Const(b, bank_bits) - lane)[:bank_bits]  # the column modulo the banks
            m.d.comb += high.eq(column[bank_bits:] + (turned < column[:bank_bits]))
            m.d.comb += address.eq(Cat(turned[:lane_bits], high))
            if lane_bits:
                with m.If(lanes_first):
                    byte = (Const(b, bank_bits) - rotation)[:bank_bits]
                    m.d.comb += [
                        high.eq(Array(highs)[(within + byte) >> lane_bits]),
                        address.eq(Cat(base_low, high)),
                    ]
            outside.append(enables[b] & (high >= limit))
            with m.If(valid):
                m.d.sync += self.write.address[b].eq(address[: address_bits(shape)])

        wrong, done = Signal(), Signal(2)
        m.d.comb += wrong.eq(valid & Cat(*outside).any())
        m.d.sync += self.write.enable.eq(Mux(valid & ~wrong & ~bad & ~failed & ~self.stop, enables, 0))
        with m.If(wrong | failed):
            m.d.sync += bad.eq(1)
        fine = valid & last & ~wrong & ~bad & ~failed & ~self.stop
        warps = [Signal(WARP_BITS, name=f"warp{i}") for i in range(2)]
        m.d.sync += [
            done.eq(Cat(fine, done[0])),
            warps[0].eq(who.warp),
            warps[1].eq(warps[0]),
        ]
        m.d.comb += [
            self.complete.eq(done[1]),
            self.complete_warp.eq(warps[1]),
            self.error.eq(wrong | failed),
            self.error_report.warp.eq(who.warp),
            self.error_report.pc.eq(who.pc),
            self.error_report.cause.eq(Mux(failed, isa.Cause.BUS, isa.Cause.BUFFER_RANGE)),
        ]
