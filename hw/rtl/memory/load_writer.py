"""The answering half of a loader: walks the rows again and puts every byte where it belongs."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from hw import isa
from hw.config import MachineConfig
from hw.rtl.bits import from_mask, log2, lookup, low, place, place_bits, range_mask, rotate_left
from hw.rtl.interfaces import WARP_BITS, ErrorReport, read_response
from hw.rtl.memory.buffer import BankedWrite
from hw.rtl.memory.load_requests import descriptor, forms_patches, loader_target
from hw.rtl.memory.patch_places import PatchPlaces, block_bits
from hw.rtl.memory.row_walker import RowWalker
from hw.rtl.memory.strided_bytes import StridedBytes


class LoadWriter(Component):
    """The answering half of a loader: places bytes into the banks.

    **Timing.** An answer in cycle y is written in y + 2, readable in y + 3; if it was the operation's last
    beat, `complete` is 1 in y + 3. Fill beats follow their predecessor in the next cycle.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._width = config.port_bytes(port)
        self._shape = loader_target(config, port)
        self._descriptor, self._patches = descriptor(config, port), forms_patches(config, port)
        self._spread = max(1, self._width // self._shape.lanes)  # blocks that a beat can touch, less one
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
        m.submodules.walker = walker = RowWalker(width)
        d = self._d = Signal(self._descriptor)
        by_lanes = self._by_lanes = d.lanes_first if lane_bits else Const(0, 1)
        # Element 0 of the row lies in column `base`; in depth-first form all of the row in lane `lane`.
        base, lane = Signal(place_bits(shape.columns)), Signal(max(1, lane_bits))
        # Byte j of the beat lies `(start + j) div lanes` blocks behind the one in column `block`, in lane
        # `(start + j) mod lanes`. In depth-first form it lies in column `start + j` of a group of columns,
        # as many as there are banks, and `block` is any column of the group.
        start = Signal(signed(max(shift, bank_bits) + 1))
        block = Signal(block_bits(shape, width))
        self._lane, self._start, self._block = lane, start, block
        pitch = Signal(len(d.pitch))
        m.d.comb += pitch.eq(Mux(by_lanes, d.pitch, shape.banks))
        blocks = self._blocks = [block] + [
            Signal(len(block), name=f"block{i + 1}") for i in range(self._spread)
        ]
        m.d.comb += [value.eq(block + i * pitch) for i, value in enumerate(blocks) if i]

        step = Signal()
        m.d.comb += [
            # What moves on behind a stop does not matter, for nothing is written.
            walker.advance.eq(~walker.in_memory | self.response.valid),
            step.eq(walker.active & walker.advance),
            self.response.ready.eq(self.stop | (walker.active & walker.in_memory)),
        ]

        def start_row(row_base: Value, next_lane: Value, align: Value, lanes_first: Value) -> None:
            """Point at the first beat of a row whose byte 0 is `align` bytes into it."""
            m.d.sync += [
                base.eq(row_base),
                block.eq(row_base),
                start.eq(Mux(lanes_first, 0, row_base[:bank_bits]) - align),
                lane.eq(next_lane),
            ]

        behind = Signal(shape=signed(len(start) + 1))
        m.d.comb += behind.eq(start + walker.end)
        far = len(behind)
        steps = Mux(by_lanes, behind[lane_bits:far], behind[bank_bits:far])
        with m.If(step):
            m.d.sync += [
                start.eq(Mux(by_lanes, low(behind, lane_bits), low(behind, bank_bits))),
                block.eq(Array(blocks)[steps[: bits_for(self._spread)]]),
            ]
        with m.If(step & walker.new_row):
            wrap = (lane == shape.lanes - 1) if lane_bits else Const(1, 1)
            next_lane = Mux(by_lanes, 0, lane + 1)[: len(lane)] if lane_bits else Const(0, 1)
            next_base = Signal(len(base))
            jump = Mux(by_lanes, 1, Mux(wrap, d.pitch, 0))
            m.d.comb += next_base.eq(place(base + jump, shape.columns))
            start_row(next_base, next_lane, walker.next_align, by_lanes)

        new, begins, op_done = self.taken.payload, Signal(), Signal()
        m.d.comb += [
            op_done.eq(step & walker.last),
            self.taken.ready.eq(~walker.active | op_done),
            begins.eq(self.taken.ready & self.taken.valid),
            walker.start.eq(begins),
            walker.rows.eq(new.rows),
        ]
        # What it needs is loaded whenever one could begin: nothing waits for whether it does.
        with m.If(self.taken.ready):
            m.d.sync += d.eq(new)
            start_row(
                new.target, Const(0, len(lane)), new.rows.low, new.lanes_first if lane_bits else Const(0, 1)
            )

        source = self.response.payload
        word, mask = Signal(8 * width), Signal(width)
        moves, ends, awaited = Signal(), Signal(), Signal()
        m.d.comb += [
            word.eq(Mux(walker.in_memory, source.data, d.fill.replicate(width))),
            mask.eq(range_mask(walker.first, walker.end, width)),
            moves.eq(step),  # a beat goes into the pipeline
            ends.eq(op_done),
            awaited.eq(walker.in_memory),
        ]
        if self._patches:
            self._form_patches(m, walker, begins, word, mask, moves, ends, awaited)
        self._place(m, moves, word, mask, ends, moves & awaited & source.error)
        return m

    def _form_patches(
        self,
        m: Module,
        walker: RowWalker,
        begins: Value,
        word: Signal,
        mask: Signal,
        moves: Signal,
        ends: Signal,
        awaited: Signal,
    ) -> None:
        """`load_b_conv`: a walker of steps beside that of rows, which stays at rest.

        It is a step ahead and sets the registers of the lanes-first form. Plain loads pass through the choice
        of bytes unchanged.
        """
        width, d, new = self._width, self._d, self.taken.payload
        count = log2(width) + 1
        m.submodules.places = places = PatchPlaces(self._shape, width)
        m.submodules.strided = strided = StridedBytes(width)
        where, source = places.place, self.response.payload
        present, final, fresh, reads = (
            Signal(name=f"patch_{n}") for n in ("present", "final", "fresh", "reads")
        )
        read_from, read_to, used_to, write_from, write_to = (
            Signal(count, name=n) for n in ("read_from", "read_to", "used_to", "write_from", "write_to")
        )
        skip = Signal(isa.KERNEL_BITS)
        filled, kept = Signal(8 * width), Signal(8 * width)  # the beat; as it was in the step before
        from_memory, waits, patch_step = Signal(width), Signal(), Signal()
        step, op_done = walker.active & walker.advance, walker.advance & walker.last
        m.d.comb += [
            walker.start.eq(begins & ~new.patches),
            places.start.eq(begins & new.patches),
            places.advance.eq(~present | patch_step),
            places.shape.eq(d.geometry),
            places.outer.eq(d.rows.outer),
            places.inner.eq(d.rows.inner),
            places.align.eq(d.rows.low),
            places.target.eq(d.target),
            places.pitch.eq(d.pitch),
            waits.eq(present & fresh & reads),
            patch_step.eq(present & (~waits | self.response.valid)),
            self.response.ready.eq(self.stop | (walker.active & walker.in_memory) | waits),
            self.taken.ready.eq(
                (~walker.active & ~present & ~places.active) | op_done | (patch_step & final)
            ),
            from_memory.eq(
                Mux(d.patches, range_mask(read_from, read_to, width), walker.in_memory.replicate(width))
            ),
            filled.eq(Cat(Mux(from_memory[i], source.data.word_select(i, 8), d.fill) for i in range(width))),
            strided.data.eq(Mux(fresh, filled, kept)),
            strided.valid.eq(~from_mask(used_to, width)),
            strided.skip.eq(skip),
            strided.stride.eq(Mux(d.patches, d.geometry.stride_w, 1)),
            word.eq(strided.chosen),
            mask.eq(
                Mux(
                    d.patches,
                    strided.chosen_valid & range_mask(write_from, write_to, width),
                    range_mask(walker.first, walker.end, width),
                )
            ),
            moves.eq(step | patch_step),
            ends.eq(op_done | (patch_step & final)),
            awaited.eq(Mux(present, waits, walker.in_memory)),
        ]
        with m.If(patch_step):
            m.d.sync += [kept.eq(strided.data), present.eq(0)]
        with m.If(places.valid & places.advance):
            m.d.sync += [
                present.eq(1),
                final.eq(where.last),
                fresh.eq(where.first_of_beat),
                reads.eq(where.reads),
                read_from.eq(where.read_from),
                read_to.eq(where.read_to),
                used_to.eq(where.used_to),
                skip.eq(where.skip),
                write_from.eq(where.write_from),
                write_to.eq(where.write_to),
                self._start.eq(where.start),
                self._block.eq(where.block),
            ]
        with m.If(self.taken.ready):
            m.d.sync += [fresh.eq(1), skip.eq(0)]

    def _place(
        self, m: Module, moves: Value, word: Value, enabled: Value, ends: Value, failing: Value
    ) -> None:
        """Two pipeline stages: keep the beat that `moves`; rotate it and find each bank's address."""
        width, shape, d = self._width, self._shape, self._d
        lane_bits, bank_bits, column_bits = log2(shape.lanes), log2(shape.banks), log2(shape.columns)
        start, block, lane = self._start, self._block, self._lane

        # Which of the blocks, or whether the next group of columns, is each byte's.
        bits = bits_for(self._spread)
        numbers = range(1 << len(start))  # of `start` as a number of as many bits
        by_lanes = [
            lookup(start.as_unsigned(), [(n + j) >> lane_bits & (1 << bits) - 1 for n in numbers], bits)
            for j in range(width)
        ]
        by_columns = [
            lookup(start.as_unsigned(), [(n + j) >> bank_bits & 1 for n in numbers], bits)
            for j in range(width)
        ]
        which = [Mux(self._by_lanes, *pair) for pair in zip(by_lanes, by_columns, strict=True)]

        valid, last = Signal(), Signal()
        kept, mask, lanes_first = Signal(8 * width, reset_less=True), Signal(width), Signal()
        rotation, lane1, block_low = Signal(bank_bits), Signal(len(lane)), Signal(max(1, lane_bits))
        highs = [Signal(column_bits - bank_bits, name=f"high{i}") for i in range(self._spread + 1)]
        beyond = Signal(self._spread + 1)
        picks = [Signal(bits, name=f"pick{j}") for j in range(width)]
        who = Signal(ErrorReport)
        failed, bad = Signal(), Signal()
        m.d.sync += [valid.eq(moves), last.eq(ends), failed.eq(failing)]
        with m.If(moves):
            m.d.sync += [
                kept.eq(word),
                mask.eq(enabled),
                lanes_first.eq(self._by_lanes),
                rotation.eq(start + Mux(self._by_lanes, block[:bank_bits], lane if lane_bits else 0)),
                lane1.eq(lane),
                block_low.eq(low(block, lane_bits)),
                beyond.eq(Cat(b[column_bits:].any() for b in self._blocks)),
                who.warp.eq(d.warp),
                who.pc.eq(d.pc),
                *[h.eq(b[bank_bits:column_bits]) for h, b in zip(highs, self._blocks, strict=True)],
                *[p.eq(w) for p, w in zip(picks, which, strict=True)],
            ]

        pad = shape.banks - width
        rotated = rotate_left(m, Cat(kept, Const(0, 8 * pad)), rotation)
        notes = Cat(*(Cat(mask[j], picks[j]) for j in range(width)), Const(0, (1 + bits) * pad))
        turned = rotate_left(m, notes, rotation, unit=1 + bits)
        enables = Cat(turned.word_select(b, 1 + bits)[0] for b in range(shape.banks))
        outside = [mask[j] & Array(beyond)[picks[j]] for j in range(width)]
        with m.If(valid):
            m.d.sync += self.write.data.eq(rotated)
        for b in range(shape.banks):
            high = Array(highs)[turned.word_select(b, 1 + bits)[1:]]
            if lane_bits:
                lanes = range(shape.lanes)
                depth_first = lookup(lane1, [(b - n) % shape.lanes for n in lanes], lane_bits)
                address = Cat(Mux(lanes_first, block_low, depth_first), high)
            else:
                address = high
            with m.If(valid):
                m.d.sync += self.write.address[b].eq(address)

        wrong, done = Signal(), Signal(2)
        m.d.comb += wrong.eq(valid & Cat(outside).any())
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
