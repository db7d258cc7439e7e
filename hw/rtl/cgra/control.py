"""The control of a launch: taking, loading, patching, checking arrays, stepping, completing."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.fabric import Fabric
from hw.fabric.layout import ARRAYS, FIRST, PATCHES
from hw.rtl.bits import log2
from hw.rtl.cgra.access import INT32, UINT8, ArrayTable, ArrayWrite, space_bytes
from hw.rtl.cgra.ahead import moment_layout
from hw.rtl.cgra.context import context_bits
from hw.rtl.cgra.loader import BASE, CONST, INIT, LENGTH, Loader, Patch, pe_bits, placed_layout
from hw.rtl.cgra.units import BLOCK_RAM, WIDTH
from hw.rtl.interfaces import EngineControl, operation
from hw.rtl.memory.buffer import WordRead


def patch_layout(fabric: Fabric) -> data.StructLayout:
    """A patch of an entry that is applied in this cycle."""
    return data.StructLayout(
        {"const": 1, "init": 1, "pe": pe_bits(fabric), "context": context_bits(fabric), "data": WIDTH}
    )


class Control(Component):
    """Runs `cgra` operations: loads and patches configurations, and steps through the contexts.

    `placed`, `patch` and `array_write` configure the PEs, through a register. `clear` precedes a new
    configuration. `advance` ends a step, when no access of an earlier one is `waiting`; `outside` says that
    an access of the step is out of range, `stopped` that nothing more may be stored. `load` latches what the
    next step needs; `read` fetches the context of the step after it (in a pipelined fabric, of the one after
    that); `moment` describes the next step. `rests` says that no step executes. In a pipelined fabric the
    accesses of a step are made in the next cycle in which `shows` is 1.

    **Timing.** docs/cgra.md, "The `cgra` operation".
    """

    def __init__(self, config: MachineConfig, fabric: Fabric):
        self._config, self._fabric = config, fabric
        super().__init__(
            {
                "control": Out(EngineControl("cgra")),
                "scratch": Out(WordRead(config.derived.scratch)),
                "placed": Out(placed_layout(fabric)),
                "patch": Out(patch_layout(fabric)),
                "array_write": Out(ArrayWrite),
                "arrays": Out(range(ARRAYS + 1)),
                "clear": Out(1),
                "read": Out(1),
                "load": Out(1),
                "context": Out(context_bits(fabric)),
                "moment": Out(moment_layout(fabric)),
                "advance": Out(1),
                "shows": Out(1),
                "rests": Out(1),
                "stopped": Out(1),
                "waiting": In(1),
                "outside": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = self.control
        op = control.operation.payload
        m.submodules.loader = loader = Loader(self._config, self._fabric)
        settings = loader.settings
        d = Signal(operation("cgra"), reset_less=True)
        # State of a launch, one-hot; loading has no bit of its own.
        idle, patching, checking = Signal(init=1), Signal(), Signal()
        running, done, shown, loaded = Signal(), Signal(), Signal(), Signal()
        # The previous cycle found an error; that error was in the place of an array.
        failed, displaced = Signal(), Signal()
        take, keep, configured = Signal(), Signal(), Signal()
        # `stop` is late, so it is registered. A launch taken in that cycle gets no further; a step that
        # begins in it stores nothing and is the last one.
        halted = Signal(init=1)
        m.d.sync += halted.eq(control.stop)
        m.d.comb += [
            take.eq(idle & control.operation.valid & ~halted),
            keep.eq(op.bitstream == isa.KEEP_BITSTREAM),
            control.operation.ready.eq(take),
            loader.begin.eq(take & ~keep),
            loader.start.eq(op.bitstream),
            loader.stop.eq(control.stop),
            loader.scratch.data.eq(self.scratch.data),
            loader.scratch.held.eq(self.scratch.held),
            self.scratch.enable.eq(loader.scratch.enable),
            self.scratch.address.eq(loader.scratch.address),
            self.placed.eq(loader.placed),
            self.clear.eq(loader.begin),
            self.arrays.eq(settings.arrays),
            # Cycle f of the contract.
            configured.eq((take & keep & loaded) | (loader.verdict & ~loader.bad)),
        ]
        with m.If(take):
            m.d.sync += d.eq(op)
        with m.If(loader.begin):
            m.d.sync += loaded.eq(0)
        with m.Elif(loader.verdict & ~loader.bad):
            m.d.sync += loaded.eq(1)

        last_patch = self._patches(m, loader, d, patching)
        last_array, almost, misplaced = self._arrays(m, settings, checking)
        starting = checking & last_array
        early = starting | (checking & almost) if self._fabric.pipelined else starting
        wraps = self._fetch(m, settings, running | early)
        last_step, none = self._steps(m, settings, running, starting, take, wraps)
        refused, ended = Signal(), Signal()
        m.d.comb += [
            refused.eq(loader.error | (loader.verdict & loader.bad)),
            ended.eq((shown if self._fabric.pipelined else done) & ~self.waiting & ~failed),
            self.shows.eq(~self.waiting),
            self.rests.eq(~running),
        ]
        with m.If(loader.begin):
            m.d.sync += idle.eq(0)
        with m.If(configured):
            some = settings.patches != 0
            m.d.sync += [idle.eq(0), patching.eq(some), checking.eq(~some)]
        with m.If(patching & last_patch):
            m.d.sync += [patching.eq(0), checking.eq(1)]
        with m.If(starting):
            m.d.sync += [checking.eq(0), running.eq(~none), done.eq(none)]
        with m.If(self.advance & last_step):
            m.d.sync += [running.eq(0), done.eq(1)]
        with m.If(done & self.shows):
            m.d.sync += [done.eq(0), shown.eq(self._fabric.pipelined)]
        with m.If(ended):
            m.d.sync += shown.eq(0)
        with m.If(ended | failed | refused):
            m.d.sync += idle.eq(1)
        with m.If(failed):
            m.d.sync += [part.eq(0) for part in (checking, running, done, shown)]
        m.d.sync += [failed.eq(self.outside | (misplaced & ~failed)), displaced.eq(misplaced)]
        m.d.comb += [
            self.stopped.eq(failed | control.stop),
            self.advance.eq(running & ~self.waiting & ~failed & ~halted),
            self.load.eq(self.advance | ~running),
            self.read.eq(self.load),
        ]
        self._report(m, ~idle, d, take & keep & ~loaded, refused, failed, displaced, ended)
        return m

    def _patches(self, m: Module, loader: Loader, d: Value, patching: Value) -> Value:
        """Applies patches one after another; returns whether this cycle's patch is the last one."""
        placed, settings = loader.placed, loader.settings
        m.submodules.patches = patches = memory.Memory(shape=WIDTH, depth=PATCHES, init=[], attrs=BLOCK_RAM)
        write, read = patches.write_port(), patches.read_port()
        at, final, last = Signal(range(PATCHES)), Signal(range(PATCHES)), Signal()
        first, patch = Signal(Patch), Signal(Patch)
        scalars = Array([d["live0"], d["live1"], *(d[f"cgra_{i}"] for i in range(12)), 0, 0])
        scalar, what = Signal(WIDTH), Signal(4)
        # The current patch is in a register, and the memory reads the next one; while idle, that is patch 1.
        with m.If(placed.patch & (placed.item == 0)):
            m.d.sync += first.eq(placed.data)
        m.d.sync += [
            at.eq(Mux(patching & ~last, at + 1, 0)),
            final.eq(settings.patches - 1),
            patch.eq(Mux(patching & ~last, read.data, first)),
        ]
        m.d.comb += [
            last.eq(at == final),
            write.en.eq(placed.patch),
            write.addr.eq(placed.item),
            write.data.eq(placed.data),
            read.addr.eq(Mux(patching & ~last, at + 2, 1)),
            scalar.eq(scalars[patch.scalar]),
            what.eq(Mux(patching, 1 << patch.what[:2], 0)),
            self.patch.const.eq(what[CONST]),
            self.patch.init.eq(what[INIT]),
            self.patch.pe.eq(patch.pe),
            self.patch.context.eq(patch.at),
            self.patch.data.eq(scalar),
            self.array_write.base.eq(what[BASE] | (placed.array & ~placed.item[0])),
            self.array_write.kind.eq(placed.array & ~placed.item[0]),
            self.array_write.length.eq(what[LENGTH] | (placed.array & placed.item[0])),
            self.array_write.number.eq(Mux(placed.array, placed.item >> 1, patch.at)),
            self.array_write.data.eq(Mux(placed.array, placed.data, scalar)),
        ]
        return last

    def _arrays(self, m: Module, settings: Value, checking: Value) -> tuple[Value, Value, Value]:
        """Checks one array per cycle; returns whether it is the last, the last but one, and out of bounds.

        The checks take at least three cycles; meanwhile contexts are read that patches may have changed. High
        bits that no address in a space uses must be 0, and are not added. In a pipelined fabric arrays are
        checked one cycle after they are read.
        """
        m.submodules.arrays = table = ArrayTable()
        number, final = Signal(range(ARRAYS + 1)), Signal(range(ARRAYS + 1))
        following, last, almost, misplaced = Signal.like(number), Signal(), Signal(), Signal()
        least, late = isa.TIMING.grid_checks, self._fabric.pipelined
        m.d.sync += final.eq(Mux(settings.arrays < least, least - 1 + late, settings.arrays - 1 + late))
        m.d.comb += [
            table.write.eq(self.array_write),
            table.number.eq(number),
            following.eq(Mux(checking & ~last, number + 1, 0)),
        ]
        # Registers, because context addresses depend on them. `final` is known long before and is above 1.
        m.d.sync += [number.eq(following), last.eq(following == final), almost.eq(following + 1 == final)]
        base, length, whole = table.base, table.length, table.element == INT32
        bits = max(space_bytes(self._config)).bit_length()
        above = base[bits:].any() | length[bits:].any() | (whole & length[bits - 2 : bits].any())
        above |= (table.element > UINT8) | (whole & (base[:2] != 0))
        total = (base[:bits] + Mux(whole, length << 2, length)[:bits])[: bits + 1]
        looked: list[Value] = [checking & (number < settings.arrays), table.space, total, above]
        if late:
            read = looked
            looked = [Signal(value.shape(), name=f"looked{i}") for i, value in enumerate(read)]
            m.d.sync += [a.eq(b) for a, b in zip(looked, read, strict=True)]
        there, space, end, above = looked
        inside = Signal()
        with m.Switch(space):
            for number_of, size in enumerate(space_bytes(self._config)):
                bit = log2(size)
                with m.Case(number_of):
                    m.d.comb += inside.eq(~end[bit + 1 :].any() & ~(end[bit] & end[:bit].any()))
        m.d.comb += misplaced.eq(there & (~inside | above))
        return last, almost, misplaced

    def _fetch(self, m: Module, settings: Value, going: Value) -> Value:
        """Fetches contexts one after another; returns whether the one of the next step is the last context.

        Until `going` is 1, the first context is fetched. In a pipelined fabric entries pass another register
        on their way to the next step.
        """
        asked, final = Signal(len(self.context)), Signal(len(self.context))
        m.d.sync += final.eq(settings.ii - 1)
        m.d.comb += self.context.eq(Mux(going & (asked != final), asked + 1, 0))
        following = asked
        if self._fabric.pipelined:
            following = Signal(len(asked))
            with m.If(self.load):
                m.d.sync += following.eq(asked)
        with m.If(self.load):
            m.d.sync += asked.eq(self.context)
        return following == final

    def _steps(
        self, m: Module, settings: Value, running: Value, starting: Value, take: Value, wraps: Value
    ) -> tuple[Signal, Signal]:
        """Updates `moment`; returns whether the current step is the last, and whether there are no steps."""
        fabric, moment = self._fabric, self.moment
        iterations = self.control.operation.payload.iterations
        left, none = Signal(WIDTH), Signal()
        last, rest = Signal(), Signal(len(settings.depth))
        most = {"ahead": fabric.stages + FIRST, "beyond": fabric.stages - 1}
        ending, proceed = Signal(), Signal()
        m.d.comb += [
            proceed.eq(self.advance | starting),
            # The last iteration has begun.
            ending.eq(moment.over | (left == 1)),
        ]
        with m.If(proceed):
            m.d.sync += last.eq(ending & (rest == 0))
            with m.If(ending):
                m.d.sync += rest.eq(rest - 1)
            with m.If(wraps):
                with m.If(moment.ahead != most["ahead"]):
                    m.d.sync += moment.ahead.eq(moment.ahead + 1)
                with m.If(~moment.over):
                    m.d.sync += [left.eq(left - 1), moment.over.eq(ending)]
                with m.Elif(moment.beyond != most["beyond"]):
                    m.d.sync += moment.beyond.eq(moment.beyond + 1)
        with m.Elif(~running):
            m.d.sync += [rest.eq(settings.depth - 1), moment.eq(0)]
        with m.If(take):
            m.d.sync += [left.eq(iterations), none.eq(iterations == 0)]
        return last, none

    def _report(
        self,
        m: Module,
        busy: Value,
        d: Value,
        missing: Value,
        refused: Value,
        failed: Value,
        displaced: Value,
        ended: Value,
    ) -> None:
        """Completion, errors, counters."""
        control, report = self.control, self.control.error_report
        op = control.operation.payload
        late = Mux(displaced, isa.Cause.OPERAND, isa.Cause.GRID_RANGE)
        m.d.comb += [
            control.complete.eq(ended),
            control.complete_warp.eq(d.warp),
            control.quiet.eq(1),
            control.busy.eq(busy),
            # A launch that a stop ended stays busy; the watchdog must not count that as progress.
            control.progress.eq(busy & ~control.stop),
            control.stall_bank.eq(self.waiting),
            control.error.eq((missing | refused | failed) & ~control.stop),
            report.warp.eq(Mux(missing, op.warp, d.warp)),
            report.pc.eq(Mux(missing, op.pc, d.pc)),
            report.cause.eq(Mux(failed, late, isa.Cause.BITSTREAM)),
        ]
