"""The whole machine: warps, channels, issue, engines, buffers, host registers."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    Const,
    DomainRenamer,
    Instance,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw import csr, isa
from hw.config import ENGINES, PORTS, MachineConfig
from hw.rtl.bits import log2
from hw.rtl.cgra.grid import Grid
from hw.rtl.cgra_port import CgraPort
from hw.rtl.core.channels import Channels
from hw.rtl.core.errors import Errors
from hw.rtl.core.host import Host
from hw.rtl.core.issue import Issue
from hw.rtl.core.program import ProgramMemory
from hw.rtl.core.sequencer import Sequencer
from hw.rtl.gemm.engine import Gemm
from hw.rtl.interfaces import (
    ADDRESS_BITS,
    PC_BITS,
    HostRequest,
    ReadPort,
    WritePort,
    warp_number,
)
from hw.rtl.memory.accumulator import Accumulator
from hw.rtl.memory.buffer import BankedBuffer
from hw.rtl.memory.loader import Loader
from hw.rtl.memory.storer import Storer

LOADERS = ("load_a", "load_b", "load_c")
#: Cycles after which nothing changes any more in an idle CGRA.
SETTLED = 16
Engine = Loader | Gemm | Storer | CgraPort


class Machine(Component):
    """The core, with streams at its ports (docs/ports.md); the bus tops wrap it.

    **Timing.** docs/machine.md. `trace_*` show the events of the cycle `cycle`; `trace_output*`, the stores
    of the CGRA, have one entry per element of `config.store_pes`. They are for simulation: without `trace`
    the machine lacks these ports and is otherwise the same. `gated` stops the clock of the CGRA while it is
    idle, through the cell `clock_gate`, which makes simulation faster.
    """

    def __init__(self, config: MachineConfig, *, trace: bool = True, gated: bool = False):
        self.config = config
        self._gated = gated
        ports: dict[str, object] = {
            "host_request": In(stream.Signature(HostRequest)),
            "host_response": Out(stream.Signature(32)),
        }
        for name in PORTS:
            kind = WritePort if name == "store" else ReadPort
            port = kind(config.port_bytes(name)).members
            ports |= {f"{name}_{part}": member for part, member in port.items()}
        ports |= {**dict.fromkeys(("running", "done", "error"), Out(1)), "cycle": Out(48)}
        events = ("trace_issue", "trace_void", "trace_complete", "trace_signal")
        widths = dict.fromkeys(events, config.warps) | {"trace_pc": 16 * config.warps}
        if stores := len(config.store_pes):
            widths |= {"trace_output": stores}
            widths |= dict.fromkeys(("trace_output_address", "trace_output_value"), 32 * stores)
        self._trace = {name: Signal(width, name=f"{name}_now") for name, width in widths.items()}
        self._shown = tuple(widths) if trace else ()
        super().__init__(ports | {name: Out(widths[name]) for name in self._shown})  # type: ignore[arg-type]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.d.comb += [getattr(self, name).eq(self._trace[name]) for name in self._shown]
        m.submodules.host = host = Host(c)
        connect(m, flipped(self.host_request), host.request)
        connect(m, host.response, flipped(self.host_response))

        self._resets(m, host)
        engines = self._engines(m, host)
        warps = self._warps(m, host, engines)
        self._errors(m, host, warps, engines)
        m.d.comb += [
            self.running.eq(host.run),
            self.done.eq(host.done),
            self.error.eq(host.failed),
            self.cycle.eq(host.cycle),
            host.finished.eq((warps.through | ~host.enable).all()),
            host.event.eq(warps.issued | warps.fire | warps.complete.any()),
            host.quiet.eq(Cat(e.control.quiet for e in engines.values()).all()),
            host.progress.eq(
                Cat(
                    *[e.control.progress for e in engines.values()],
                    # Whether an error counts as progress is don't-care.
                    warps.moves & host.run,
                    *[e.control.complete & host.run for e in engines.values()],
                )
            ),
        ]
        return m

    def _resets(self, m: Module, host: Host) -> None:
        """Clock domains with the same clock, reset by the host's `clear`, each one cycle after the previous.

        A third of all registers have this reset, so each domain has one register to drive it. Warps are
        released first, `period` cycles before the run. Signals from `sync` to these domains must go through a
        port, because Amaranth's simulator clocks the domains one delta later.
        """
        names = ("warps", "engines", "loaders", "cgra")
        assert self.config.derived.period > len(names), "the last release comes before the run"
        resets: list[Value] = [host.clear]
        for name in names[1:]:
            resets.append(Signal(init=1, name=f"reset_{name}"))
            m.d.sync += resets[-1].eq(resets[-2])
        for name, reset in zip(names, resets, strict=True):
            m.domains += ClockDomain(name, local=True)
            m.d.comb += [ClockSignal(name).eq(ClockSignal()), ResetSignal(name).eq(reset)]

    def _engines(self, m: Module, host: Host) -> dict[str, Engine]:
        """Engines, buffers and memory ports."""
        c = self.config
        loaders = {name: Loader(c, name) for name in LOADERS}
        gemm, storer, acc = Gemm(c), Storer(c), Accumulator(c)
        buffers = {
            "load_a": BankedBuffer(c.derived.buffer_a),
            "load_b": BankedBuffer(c.derived.buffer_b),
            "load_c": BankedBuffer(c.derived.scratch, words=c.cgra is not None),
        }
        for name, loader in loaders.items():
            m.submodules[name] = DomainRenamer("loaders")(loader)
            m.submodules[f"{name}_target"] = buffers[name]
            connect(m, loader.write, buffers[name].write)
            _placed(m, loader.memory.request, getattr(self, f"{name}_request"), host.base)
            connect(m, flipped(getattr(self, f"{name}_response")), loader.memory.response)
            m.d.comb += loader.windows.eq(host.windows)
        m.submodules.gemm = DomainRenamer("engines")(gemm)
        m.submodules.store = DomainRenamer("engines")(storer)
        m.submodules.accumulator = DomainRenamer("engines")(acc)
        connect(m, gemm.buffer_a, buffers["load_a"].read)
        connect(m, gemm.buffer_b, buffers["load_b"].read)
        connect(m, gemm.drain, acc.drain)
        connect(m, storer.acc, acc.read)
        connect(m, storer.scratch, buffers["load_c"].read)
        _placed(m, storer.memory.request, self.store_request, host.base)
        connect(m, flipped(self.store_response), storer.memory.response)
        m.d.comb += storer.windows.eq(host.windows)
        engines: dict[str, Engine] = {**loaders, "gemm": gemm}
        if c.cgra is not None:
            engines["cgra"] = self._grid(m, host, storer, acc, buffers["load_c"])
        engines["store"] = storer
        return engines

    def _grid(
        self,
        m: Module,
        host: Host,
        storer: Storer,
        acc: Accumulator,
        scratch: BankedBuffer,
    ) -> CgraPort:
        """The CGRA and the output buffer."""
        c = self.config
        grid, out = Grid(c), BankedBuffer(c.derived.out, words=True)
        m.submodules.cgra = DomainRenamer("grid" if self._gated else "cgra")(grid)
        if self._gated:
            self._gate(m, ResetSignal("cgra"), grid.port.control.operation.valid | grid.port.control.busy)
        m.submodules.output_buffer = out
        connect(m, grid.port.acc, acc.rows)
        connect(m, grid.port.scratch, scratch.words)
        connect(m, grid.port.out_read, out.words)
        connect(m, grid.port.out_write, out.write)
        connect(m, storer.out, out.read)
        for i in range(len(c.store_pes)):
            store = grid.port.stores[i]
            m.d.comb += [
                self._trace["trace_output"][i].eq(store.valid & self.running),
                self._trace["trace_output_address"].word_select(i, 32).eq(store.address),
                self._trace["trace_output_value"].word_select(i, 32).eq(store.value),
            ]
        return grid.port

    def _gate(self, m: Module, clear: Value, works: Value) -> None:
        """The gated clock of the CGRA; it stops some cycles after the last with a reset or with `works`."""
        m.domains.grid = ClockDomain("grid")
        left = Signal(range(SETTLED + 1), init=SETTLED)
        with m.If(clear | works):
            m.d.sync += left.eq(SETTLED)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        m.submodules.clock_gate = Instance(
            "clock_gate",
            i_clk=ClockSignal(),
            i_enable=clear | works | (left != 0) | ResetSignal(),
            o_gated=ClockSignal("grid"),
        )
        m.d.comb += ResetSignal("grid").eq(clear)

    def _warps(self, m: Module, host: Host, engines: dict[str, Engine]) -> Sequencer:
        """The warps with their programs, the channels between them, and the queues to the engines."""
        c = self.config
        warps, issue, channels, program = Sequencer(c), Issue(c), Channels(c), ProgramMemory(c)
        m.submodules.warps = DomainRenamer("warps")(warps)
        m.submodules.issue = DomainRenamer("warps")(issue)
        m.submodules.channels = DomainRenamer("warps")(channels)
        m.submodules.program = program
        for name, engine in engines.items():
            connect(m, getattr(issue, name), engine.control.operation)
        connect(m, warps.issue, issue.issue)
        m.d.comb += [
            issue.clear.eq(host.clear),
            issue.clear_index.eq(host.clear_index),
            warps.room.eq(issue.room),
            warps.clear.eq(host.clear),
            warps.clear_index.eq(host.clear_index),
            warps.run.eq(host.execute),
            warps.enable.eq(host.enable),
            program.warp.eq(warps.fetch_warp),
            program.pc.eq(warps.fetch_pc),
            warps.word.eq(program.word),
            program.write.eq(host.program_write),
            program.write_warp.eq(host.program_warp),
            program.write_pc.eq(host.program_address),
            program.data.eq(host.program_data),
            channels.ask.eq(warps.ask),
            warps.token.eq(channels.token),
            channels.fire.eq(warps.fire),
            channels.fire_channel.eq(warps.fire_channel),
            channels.take.eq(warps.take),
        ]
        for w in range(c.warps):
            turn = Signal(name=f"turn{w}")
            m.d.comb += [
                turn.eq(warps.turn == w),
                warps.complete[w].eq(
                    Cat(e.control.complete & (e.control.complete_warp == w) for e in engines.values()).any()
                ),
                self._trace["trace_issue"][w].eq(turn & warps.issued & host.run),
                self._trace["trace_void"][w].eq(turn & warps.void & host.run),
                self._trace["trace_complete"][w].eq(warps.complete[w] & host.run),
                self._trace["trace_signal"][w].eq(turn & warps.fire & host.run),
                self._trace["trace_pc"].word_select(w, 16).eq(warps.pc),
            ]
        self._channels = channels
        self._count(m, host, warps, engines)
        return warps

    def _count(self, m: Module, host: Host, warps: Sequencer, engines: dict[str, Engine]) -> None:
        """Connects events of warps and engines to the performance counters, one cycle later."""
        turn, happened = Signal.like(warps.turn), Signal(len(csr.WARP_COUNTERS))
        m.d.sync += [
            turn.eq(warps.turn),
            happened.eq(Cat(warps.issued, warps.stall_channel, warps.stall_engine)),
        ]
        of_warps = [(turn == w) & event for w in range(self.config.warps) for event in happened]
        events: list[Value] = []
        for name in ENGINES:
            if name in engines:
                control = engines[name].control
                events += [control.complete, control.busy, control.stall_memory, control.stall_bank]
                request = getattr(self, f"{name}_request", None)
                events.append(Const(0) if request is None else request.valid & request.ready)
            else:
                events += [Const(0)] * len(csr.ENGINE_COUNTERS)
        of_engines = Signal(len(events))
        m.d.sync += of_engines.eq(Cat(*events))
        m.d.comb += host.counters.eq(Cat(*of_warps, of_engines))

    def _errors(self, m: Module, host: Host, warps: Sequencer, engines: dict[str, Engine]) -> None:
        """Connects the error sources: warps, engines, then the watchdog, which names a stuck warp."""
        overflow, controls = self._channels.overflow, [engine.control for engine in engines.values()]
        m.submodules.errors = errors = Errors(len(controls) + 2)
        of_warps, of_watchdog = errors.reports[0], errors.reports[len(controls) + 1]
        stuck, pc = self._stuck(m, host, warps)
        m.d.comb += [
            errors.happens.eq(Cat(warps.error, *[c.error for c in controls], host.expired)),
            errors.late.eq(overflow),
            of_warps.cause.eq(Mux(warps.error, warps.cause, isa.Cause.CHANNEL_OVERFLOW)),
            of_warps.warp.eq(warps.turn),
            of_warps.pc.eq(Mux(warps.error, warps.pc, warps.fire_pc)),
            of_watchdog.cause.eq(isa.Cause.WATCHDOG),
            of_watchdog.warp.eq(stuck),
            of_watchdog.pc.eq(pc),
            host.error.eq(errors.error),
            host.error_report.eq(errors.report),
        ]
        for i, control in enumerate(controls, 1):
            # The engine that failed stops one cycle before the others.
            m.d.comb += [
                errors.reports[i].eq(control.error_report),
                control.stop.eq(host.stop | errors.failed[i]),
            ]

    def _stuck(self, m: Module, host: Host, warps: Sequencer) -> tuple[Signal, Signal]:
        """The lowest-numbered enabled warp that is not through, and its pc in its last turn."""
        stuck = Signal(warp_number(self.config))
        pc = Signal(PC_BITS, reset_less=True)
        for w in reversed(range(self.config.warps)):
            with m.If(~warps.through[w] & host.enable[w]):
                m.d.comb += stuck.eq(w)
        with m.If((warps.turn == stuck) & ~warps.idle):
            m.d.sync += pc.eq(warps.pc)
        return stuck, pc


def _placed(m: Module, request: Any, port: Any, base: Value) -> None:
    """Connects an engine's requests to a port of the machine and adds `base` to their addresses."""
    zeros = log2(csr.BASE_STEP)
    asked = Value.cast(request.payload)  # the address is in the low bits
    high = (asked[zeros:ADDRESS_BITS] + base[zeros:])[: ADDRESS_BITS - zeros]
    m.d.comb += [
        port.valid.eq(request.valid),
        request.ready.eq(port.ready),
        Value.cast(port.payload).eq(Cat(asked[:zeros], high, asked[ADDRESS_BITS:])),
    ]
