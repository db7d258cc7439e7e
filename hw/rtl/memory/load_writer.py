"""The response half of a loader: writes every byte to its place in the buffer."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.rtl.bits import from_mask, log2, lookup, low, range_mask, rotate_left, where
from hw.rtl.interfaces import PC_BITS, WARP_BITS, ErrorReport, read_response
from hw.rtl.memory.buffer import BankedWrite
from hw.rtl.memory.load_steps import forms_patches, loader_target, operation_layout, step_layout
from hw.rtl.memory.strided_bytes import StridedBytes


class LoadWriter(Component):
    """Places the bytes of memory answers and fill beats into the banks of the buffer.

    Three pipeline stages: a step and its answer arrive; the bytes and their destination are registered; the
    bytes are rotated, and the address of each bank is selected.

    **Timing.** An answer in cycle y is written in y + 3, readable in y + 4; if it was the operation's last
    beat, `complete` is 1 in y + 4. A step that awaits no answer follows its predecessor in the next cycle. An
    operation must be offered no later than its first step.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._width = config.port_bytes(port)
        self._shape = shape = loader_target(config, port)
        self._patches = forms_patches(config, port)
        self._operation, self._step = operation_layout(config, port), step_layout(config, port)
        # A run is as many positions as a block has with lanes first. Depth first, a block is a group of
        # columns with one run or more: it has as many positions as there are banks.
        self._run = shape.lanes if shape.lanes > 1 else shape.banks
        self._spread = max(1, self._width // self._run)  # runs and blocks that a beat can touch, minus one
        super().__init__(
            {
                "operation": In(stream.Signature(self._operation)),
                "step": In(stream.Signature(self._step)),
                "response": In(stream.Signature(read_response(self._width))),
                "write": Out(BankedWrite(shape)),
                "stop": In(1),
                "complete": Out(1),
                "complete_warp": Out(WARP_BITS),
                "error": Out(1),
                "error_report": Out(ErrorReport),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        d, held = Signal(self._operation), Signal()
        moves, ends = Signal(), Signal()
        arrived = self._arrive(m, moves)
        m.d.comb += [ends.eq(moves & arrived.last), self.operation.ready.eq(~held | ends)]
        with m.If(self.operation.ready):
            m.d.sync += [d.eq(self.operation.payload), held.eq(self.operation.valid)]

        word, mask = self._patch_bytes(m, d, arrived) if self._patches else self._row_bytes(arrived)
        kept = self._keep(m, d, arrived, moves, word, mask)
        valid, last, failed = Signal(), Signal(), Signal()
        m.d.sync += [
            valid.eq(moves),
            last.eq(ends),
            failed.eq(moves & arrived.reads & arrived.error),
        ]
        wrong, bad = Signal(), Signal()
        fine = valid & ~wrong & ~bad & ~failed & ~self.stop
        m.d.comb += wrong.eq(valid & self._outside(kept))
        with m.If(wrong | failed):
            m.d.sync += bad.eq(1)
        self._write(m, kept, valid, fine)
        self._report(m, kept, fine & last, wrong, failed)
        return m

    def _arrive(self, m: Module, moves: Signal) -> Signal:
        """The first stage: takes a step and the word that it awaits; turns its byte ranges into masks."""
        width, step, source = self._width, self.step.payload, self.response.payload
        values = {
            "error": source.error,
            "mask": range_mask(step.write_from, step.write_to, width),
            **{name: step[name] for name in ("last", "reads", "start", "block", "lane")},
        }
        if self._patches:
            values |= {
                "from_memory": range_mask(step.read_from, step.read_to, width),
                "pixels": ~from_mask(step.used_to, width),
                "skip": step.skip,
            }
        shapes = {name: Value.cast(value).shape() for name, value in values.items()} | {"data": 8 * width}
        arrived = Signal(data.StructLayout(shapes), reset_less=True)
        comes, awaits = Signal(), Signal()
        m.d.comb += [
            awaits.eq(self.step.valid & step.reads),
            comes.eq(self.step.valid & (~step.reads | self.response.valid)),
            self.step.ready.eq(comes),
            # Answers after a stop are accepted and dropped.
            self.response.ready.eq(self.stop | awaits),
        ]
        m.d.sync += [moves.eq(comes), *[arrived[name].eq(value) for name, value in values.items()]]
        with m.If(awaits):  # a beat of patches is kept for its later steps
            m.d.sync += arrived.data.eq(source.data)
        return arrived

    def _row_bytes(self, arrived: Value) -> tuple[Value, Value]:
        """The bytes of a beat from memory, or 0 for a fill beat, and the mask of bytes to write."""
        return where(arrived.reads, arrived.data), arrived.mask

    def _patch_bytes(self, m: Module, d: Value, arrived: Value) -> tuple[Value, Value]:
        """As `_row_bytes`, for a beat that may have several steps and writes every stride-th byte."""
        width = self._width
        m.submodules.strided = strided = StridedBytes(width)
        answered = [arrived.data.word_select(i, 8) for i in range(width)]
        m.d.comb += [
            strided.data.eq(Cat(Mux(arrived.from_memory[i], answered[i], d.fill) for i in range(width))),
            strided.valid.eq(arrived.pixels),
            strided.skip.eq(arrived.skip),
            strided.stride.eq(d.stride),
        ]
        return strided.chosen, strided.chosen_valid & arrived.mask

    def _kept_layout(self) -> data.StructLayout:
        """The second stage: the bytes, which of them are written, and where they go.

        `highs` are the high bits of the bank addresses at which the blocks begin that a beat can touch.
        Position 0 of the first block goes to bank `origin`, byte 0 of the beat to bank `rotation`; `odd` is
        the next bit of the sum that gives `rotation`. Of each run's number of bytes, those that `follows`
        marks belong to a later run than the first. `beyond` marks the runs, from that of byte 0 on, that lie
        beyond the buffer. The data written is `bytes` or `fill`; the other one is 0.
        """
        shape, blocks = self._shape, self._spread + 1
        high = log2(shape.columns) - log2(shape.banks)
        return data.StructLayout(
            {
                "bytes": 8 * self._width,
                "fill": 8,
                "mask": self._width,
                "lanes_first": 1,
                "origin": log2(shape.banks),
                "rotation": log2(shape.banks),
                "odd": 1,
                "highs": data.ArrayLayout(high, blocks),
                "follows": min(self._run, self._width),
                "beyond": blocks,
                "warp": WARP_BITS,
                "pc": PC_BITS,
            }
        )

    def _keep(self, m: Module, d: Value, step: Value, moves: Value, word: Value, mask: Value) -> Signal:
        """The second stage: registers the step that `moves` in `_kept_layout`."""
        shape = self._shape
        of_lane, of_bank, columns = log2(shape.lanes), log2(shape.banks), log2(shape.columns)
        of_run = log2(self._run)
        by_lanes = d.lanes_first if of_lane else Const(0, 1)
        pitch = Mux(by_lanes, d.pitch, shape.banks)
        blocks = [step.block] + [
            Signal(len(step.block), name=f"block{i}") for i in range(1, self._spread + 1)
        ]
        m.d.comb += [value.eq(step.block + i * pitch) for i, value in enumerate(blocks) if i]
        outside = Array(b[columns:].any() for b in blocks)
        within, run = step.start[:of_run], step.start.as_unsigned()[of_run:]  # the position of byte 0
        runs = [(run + i)[: len(run)] for i in range(self._spread + 1)]
        follows = [((1 << self._run) - 1) << self._run - n for n in range(self._run)]
        origin = Signal(of_bank)
        kept = Signal(self._kept_layout(), reset_less=True)
        m.d.comb += origin.eq(Mux(by_lanes, step.block, low(step.lane, of_lane)))
        with m.If(moves):
            m.d.sync += [
                kept.bytes.eq(word),
                # With patches, a beat may mix bytes of memory and fill: `word` then contains both.
                kept.fill.eq(0 if self._patches else where(~step.reads, d.fill)),
                kept.mask.eq(mask),
                kept.lanes_first.eq(by_lanes),
                kept.origin.eq(origin),
                Cat(kept.rotation, kept.odd).eq(step.start + origin),
                kept.highs.eq(Cat(b[of_bank:columns] for b in blocks)),
                kept.follows.eq(lookup(within, follows, len(kept.follows))),
                kept.beyond.eq(Cat(Mux(by_lanes, outside[r], outside[r[of_bank - of_run]]) for r in runs)),
                kept.warp.eq(d.warp),
                kept.pc.eq(d.pc),
            ]
        return kept

    def _outside(self, kept: Signal) -> Value:
        """Whether a byte to be written lies beyond the buffer."""
        places = [(j // self._run, j % self._run) for j in range(self._width)]
        beyond = [Mux(kept.follows[r], kept.beyond[i + 1], kept.beyond[i]) for i, r in places]
        return (Cat(beyond) & kept.mask).any()

    def _write(self, m: Module, kept: Signal, valid: Value, fine: Value) -> None:
        """The third stage: bytes in bank order, address and write enable of each bank."""
        banks, pad = self._shape.banks, self._shape.banks - self._width
        rotated = rotate_left(m, Cat(kept.bytes, Const(0, 8 * pad)), kept.rotation)
        rotated |= kept.fill.replicate(banks)
        enables = rotate_left(m, Cat(kept.mask, Const(0, pad)), kept.rotation, unit=1)
        m.d.sync += self.write.enable.eq(Mux(fine, enables, 0))
        with m.If(valid):
            m.d.sync += [self.write.data.eq(rotated), self.write.address.eq(Cat(self._addresses(kept)))]

    def _addresses(self, kept: Signal) -> list[Value]:
        """The address in each bank, of the byte that goes there.

        A bank lies `behind` banks behind the origin. So its byte has this position in the first block, or a
        position that is further by the number of banks if `again` is 1. After the last bank, bytes and
        positions continue at bank 0: so `again` changes in the banks before `rotation`, and in those before
        `origin`.
        """
        shape, found = self._shape, []
        banks, of_lane = shape.banks, log2(shape.lanes)
        again = from_mask(kept.rotation, banks) ^ from_mask(kept.origin, banks) ^ kept.odd.replicate(banks)
        for b in range(banks):
            behind = lookup(kept.origin, [(b - n) % banks for n in range(banks)], log2(banks))
            block = Mux(kept.lanes_first, Cat(behind[of_lane:], again[b]), again[b])
            address = Array(kept.highs)[block]
            if of_lane:
                column = Mux(kept.lanes_first, kept.origin[:of_lane], behind[:of_lane])
                address = Cat(column, address)
            found.append(address)
        return found

    def _report(self, m: Module, kept: Signal, done: Value, wrong: Value, failed: Value) -> None:
        """Reports completion two cycles after the second stage, errors in the same cycle."""
        ends, warps = Signal(2), [Signal(WARP_BITS, name=f"warp{i}") for i in range(2)]
        report = self.error_report
        m.d.sync += [ends.eq(Cat(done, ends[0])), warps[0].eq(kept.warp), warps[1].eq(warps[0])]
        m.d.comb += [
            self.complete.eq(ends[1]),
            self.complete_warp.eq(warps[1]),
            self.error.eq(wrong | failed),
            report.warp.eq(kept.warp),
            report.pc.eq(kept.pc),
            report.cause.eq(Mux(failed, isa.Cause.BUS, isa.Cause.BUFFER_RANGE)),
        ]
