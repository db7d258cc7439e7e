"""The course of a launch: taking, loading, patching, checking arrays, stepping, completing."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, enum, memory
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.fabric import Fabric
from hw.fabric.layout import ARRAYS, FIRST, PATCHES
from hw.grid.access import INT32, UINT8, ArrayTable, ArrayWrite, space_bytes
from hw.grid.context import context_bits
from hw.grid.loader import BASE, CONST, INIT, LENGTH, Loader, Patch, pe_bits, placed_layout
from hw.grid.pe import moment_layout
from hw.grid.units import WIDTH
from hw.interfaces import EngineControl, operation
from hw.memory.buffer import WordRead


class State(enum.Enum):
    """Where a launch stands."""

    IDLE = 0
    LOAD = 1
    PATCH = 2
    CHECK = 3
    RUN = 4
    DONE = 5


def patch_layout(fabric: Fabric) -> data.StructLayout:
    """A patch of an entry that is done in this cycle."""
    return data.StructLayout(
        {"const": 1, "init": 1, "pe": pe_bits(fabric), "context": context_bits(fabric), "data": WIDTH}
    )


class Control(Component):
    """Runs `cgra` operations.

    `placed`, `patch` and `array_write` configure the PEs, `clear` goes before a new configuration. `settled`
    says that the accesses of the step are done, `outside` that one of them must not be; `advance` ends the
    step.

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
                "context": Out(context_bits(fabric)),
                "moment": Out(moment_layout(fabric)),
                "running": Out(1),
                "advance": Out(1),
                "settled": In(1),
                "outside": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = self.control
        op = control.operation.payload
        m.submodules.loader = loader = Loader(self._config, self._fabric)
        settings = loader.settings
        d = Signal(operation("cgra"))
        state = Signal(State)
        loaded = Signal()
        take, keep, configured = Signal(), Signal(), Signal()
        idle = state == State.IDLE
        m.d.comb += [
            take.eq(idle & control.operation.valid & ~control.stop),
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
            self.running.eq(state == State.RUN),
            # The cycle f of the contract.
            configured.eq((take & keep & loaded) | (loader.verdict & ~loader.bad)),
        ]
        with m.If(take):
            m.d.sync += d.eq(op)
        with m.If(loader.begin):
            m.d.sync += loaded.eq(0)
        with m.Elif(loader.verdict & ~loader.bad):
            m.d.sync += loaded.eq(1)

        iterations = Mux(idle, op.iterations, d.iterations)
        last_patch = self._patches(m, loader, idle, d, configured)
        last_array, misplaced = self._arrays(m, settings, state == State.CHECK)
        last_step = self._steps(m, settings, iterations)

        begin = Signal()  # the next cycle may be that of the first step
        with m.Switch(state):
            with m.Case(State.IDLE, State.LOAD):
                with m.If(loader.begin):
                    m.d.sync += state.eq(State.LOAD)
                with m.If(loader.error | (loader.verdict & loader.bad)):
                    m.d.sync += state.eq(State.IDLE)
                with m.If(configured):
                    with m.If(settings.patches != 0):
                        m.d.sync += state.eq(State.PATCH)
                    with m.Elif(settings.arrays != 0):
                        m.d.sync += state.eq(State.CHECK)
                    with m.Else():
                        m.d.comb += begin.eq(1)
            with m.Case(State.PATCH), m.If(last_patch):
                with m.If(settings.arrays != 0):
                    m.d.sync += state.eq(State.CHECK)
                with m.Else():
                    m.d.comb += begin.eq(1)
            with m.Case(State.CHECK):
                with m.If(misplaced):
                    m.d.sync += state.eq(State.IDLE)
                with m.Elif(last_array):
                    m.d.comb += begin.eq(1)
            with m.Case(State.RUN):
                with m.If(self.outside):
                    m.d.sync += state.eq(State.IDLE)
                with m.Elif(self.advance & last_step):
                    m.d.sync += state.eq(State.DONE)
            with m.Case(State.DONE):
                m.d.sync += state.eq(State.IDLE)
        with m.If(begin):
            m.d.sync += state.eq(Mux(iterations == 0, State.DONE, State.RUN))
        m.d.comb += [
            self.read.eq(begin | self.advance),
            self.advance.eq(self.running & self.settled & ~self.outside & ~control.stop),
        ]
        self._report(m, state, d, take & keep & ~loaded, loader, misplaced)
        return m

    def _patches(self, m: Module, loader: Loader, idle: Value, d: Value, configured: Value) -> Value:
        """Patches, the first in the cycle before its time, so that the last is done when contexts are read.

        Whether the patch of this cycle is the last.
        """
        op, placed, settings = self.control.operation.payload, loader.placed, loader.settings
        m.submodules.patches = patches = memory.Memory(shape=WIDTH, depth=PATCHES, init=[])
        write, read = patches.write_port(), patches.read_port(domain="comb")
        at, patching = Signal(range(PATCHES + 1)), Signal()
        patch = Signal(Patch)
        names = ["live0", "live1", *(f"cgra_{i}" for i in range(12))]
        scalars = Array([*(Mux(idle, op[name], d[name]) for name in names), 0, 0])
        scalar, what = Signal(WIDTH), Signal(4)
        m.d.comb += [
            write.en.eq(placed.patch),
            write.addr.eq(placed.item),
            write.data.eq(placed.data),
            read.addr.eq(at),
            patch.eq(read.data),
            scalar.eq(scalars[patch.scalar]),
            patching.eq((configured | (at != 0)) & (at != settings.patches)),
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
        with m.If(patching):
            m.d.sync += at.eq(at + 1)
        last = Signal()
        m.d.comb += last.eq((at != 0) & (at == settings.patches))
        with m.If(last):
            m.d.sync += at.eq(0)
        return last

    def _arrays(self, m: Module, settings: Value, checking: Value) -> tuple[Value, Value]:
        """One array per cycle: whether it is the last, and whether it lies where it cannot."""
        m.submodules.arrays = table = ArrayTable()
        number = Signal(range(ARRAYS))
        last, misplaced = Signal(), Signal()
        place, length = table.place, table.length
        whole = place.element == INT32
        end = Signal(WIDTH + 3)
        inside = Signal()
        m.d.comb += [
            table.write.eq(self.array_write),
            table.number.eq(number),
            last.eq(number == settings.arrays - 1),
            end.eq(place.base + Mux(whole, length << 2, length)),
        ]
        with m.Switch(place.space):
            for space, size in enumerate(space_bytes(self._config)):
                with m.Case(space):
                    m.d.comb += inside.eq(end <= size)
        m.d.comb += misplaced.eq(
            checking & (~inside | (place.element > UINT8) | (whole & (place.base[:2] != 0)))
        )
        with m.If(checking):
            m.d.sync += number.eq(Mux(last, 0, number + 1))
        return last, misplaced

    def _steps(self, m: Module, settings: Value, iterations: Value) -> Value:
        """Context and iteration of the next step; whether this one is the last."""
        fabric, moment = self._fabric, self.moment
        context, left = Signal(context_bits(fabric)), Signal(WIDTH)
        # Whether the last iteration has begun, and how many steps come after this one then.
        ending, rest = Signal(), Signal(len(settings.depth))
        most = {"ahead": fabric.stages + FIRST, "beyond": fabric.stages - 1}
        wraps = context == settings.ii - 1
        with m.If(self.advance):
            m.d.sync += context.eq(self.context)
            with m.If(ending):
                m.d.sync += rest.eq(rest - 1)
            with m.If(wraps):
                with m.If(moment.ahead != most["ahead"]):
                    m.d.sync += moment.ahead.eq(moment.ahead + 1)
                with m.If(~moment.over):
                    m.d.sync += [left.eq(left - 1), moment.over.eq(left == 1)]
                with m.Elif(moment.beyond != most["beyond"]):
                    m.d.sync += moment.beyond.eq(moment.beyond + 1)
                with m.If(left == 2):
                    m.d.sync += ending.eq(1)
        with m.If(~self.running):
            m.d.sync += [
                context.eq(0),
                left.eq(iterations),
                ending.eq(iterations == 1),
                rest.eq(settings.depth - 1),
                moment.eq(0),
            ]
        m.d.comb += self.context.eq(Mux(self.running & ~wraps, context + 1, 0))
        last = Signal()
        m.d.comb += last.eq(ending & (rest == 0))
        return last

    def _report(
        self, m: Module, state: Value, d: Value, missing: Value, loader: Loader, misplaced: Value
    ) -> None:
        """Completion, errors, counters."""
        control, report = self.control, self.control.error_report
        op = control.operation.payload
        refused = loader.error | (loader.verdict & loader.bad)
        outside = self.running & self.outside
        m.d.comb += [
            control.complete.eq(state == State.DONE),
            control.complete_warp.eq(d.warp),
            control.quiet.eq(1),
            control.busy.eq(state != State.IDLE),
            control.progress.eq(state != State.IDLE),
            control.stall_bank.eq(self.running & ~self.advance),
            control.error.eq((missing | refused | misplaced | outside) & ~control.stop),
            report.warp.eq(Mux(missing, op.warp, d.warp)),
            report.pc.eq(Mux(missing, op.pc, d.pc)),
            report.cause.eq(
                Mux(
                    outside,
                    isa.Cause.GRID_RANGE,
                    Mux(misplaced, isa.Cause.OPERAND, isa.Cause.BITSTREAM),
                )
            ),
        ]
