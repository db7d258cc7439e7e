"""The host side: control and status registers, program load, run control, watchdog."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, stream
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import Component, In, Out

from hw import csr, isa
from hw.bits import log2
from hw.config import ENGINES, MachineConfig
from hw.interfaces import ErrorReport, HostRequest, windows_layout


class State(enum.Enum):
    """Where a run stands."""

    IDLE = 0
    CLEAR = 1  # one cycle in which everything but programs and host settings is reset
    RUN = 2
    STOP = 3  # after an error: waits for what is outstanding at memory
    DONE = 4


class Host(Component):
    """Registers of `hw.csr` behind a stream of requests, and the state of a run.

    `clear` resets warps, engines and channels. `quiet` tells that nothing is outstanding at memory,
    `finished` that every warp is through, `progress` feeds the watchdog. `counters` are the event inputs of
    the performance counters, warps first.

    **Timing.** A request is answered in the next cycle. After a start the machine runs from the second
    cycle after the request.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        counters = len(csr.WARP_COUNTERS) * config.warps + len(csr.ENGINE_COUNTERS) * len(ENGINES)
        self._counters = counters
        super().__init__(
            {
                "request": In(stream.Signature(HostRequest)),
                "response": Out(stream.Signature(32)),
                "clear": Out(1),
                "run": Out(1),
                "stop": Out(1),
                "enable": Out(config.warps),
                "finished": In(1),
                "quiet": In(1),
                "progress": In(1),
                "error": In(1),
                "error_report": In(ErrorReport),
                "stuck_report": In(ErrorReport),
                "windows": Out(windows_layout(config)),
                "program_write": Out(config.warps),
                "program_address": Out(log2(config.imem_words)),
                "program_data": Out(32),
                "counters": In(counters),
                "cycle": Out(48),
                "done": Out(1),
                "failed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request = self.request.payload
        writes: dict[str, Value] = {}
        table = {r.name: r for r in csr.registers(self._config)}
        accept = Signal()
        m.d.comb += [
            self.request.ready.eq(~self.response.valid | self.response.ready),
            accept.eq(self.request.valid & self.request.ready),
        ]
        for name, register in table.items():
            if "w" in register.access:
                writes[name] = Signal(name=f"write_{name.lower()}")
                m.d.comb += writes[name].eq(accept & request.write & (request.address == register.offset))
        state = Signal(State)
        watchdog = Signal(32, init=1 << 20)
        program_ok = self._program(m, writes, request.data, state)
        error = self._run_control(m, writes, request.data, state, watchdog, program_ok)
        reads = self._settings(m, writes, request.data, state, watchdog)
        reads |= self._counts(m, state, table)
        reads |= {
            "ID": csr.IDENTIFICATION,
            "VERSION": csr.VERSION,
            "HASH_LOW": int(self._config.hash[8:], 16),
            "HASH_HIGH": int(self._config.hash[:8], 16),
            "STATUS": Cat(
                (state == State.RUN) | (state == State.STOP), self.done, self.failed, program_ok, self.quiet
            ),
            "ERROR": Cat(error.cause, error.warp, Value.cast(0).replicate(4), error.pc),
            "CYCLES_LOW": self.cycle[:32],
            "CYCLES_HIGH": self.cycle[32:],
        }
        for name, number in csr.capabilities(self._config).items():
            reads[f"CONFIG_{name.upper()}"] = number

        with m.If(self.response.ready):
            m.d.sync += self.response.valid.eq(0)
        with m.If(accept):
            m.d.sync += [self.response.valid.eq(1), self.response.payload.eq(0)]
            with m.Switch(request.address):
                for name, value in reads.items():
                    with m.Case(table[name].offset):
                        m.d.sync += self.response.payload.eq(value)
        return m

    def _program(self, m: Module, writes: dict[str, Value], value: Value, state: Value) -> Signal:
        """Program load: words go to the warps' memories and through the check, warp by warp."""
        words = log2(self._config.imem_words)
        warps = self._config.warps
        address, warp = Signal(words), Signal(32 - words)
        checked, ok, idle = Signal(warps), Signal(), Signal()
        whole, some = Signal(), Signal()  # the words since PROGRAM_ADDRESS: from pc 0 on; any
        m.submodules.check = check = CRC32_ETHERNET(data_width=32).create()
        write = writes["PROGRAM_DATA"] & idle
        m.d.comb += [
            idle.eq((state == State.IDLE) | (state == State.DONE)),
            check.start.eq(writes["PROGRAM_ADDRESS"]),
            check.valid.eq(write),
            check.data.eq(value),
            self.program_address.eq(address),
            self.program_data.eq(value),
            ok.eq((checked | ~self.enable).all()),
        ]
        with m.If(writes["PROGRAM_ADDRESS"]):
            m.d.sync += [address.eq(value), warp.eq(value >> words), whole.eq(value[:words] == 0), some.eq(0)]
        with m.If(write):
            m.d.sync += [address.eq(address + 1), some.eq(1)]
        for w in range(warps):
            m.d.comb += self.program_write[w].eq(write & (warp == w))
            with m.If(self.program_write[w]):
                m.d.sync += checked[w].eq(0)
            with m.Elif(writes["PROGRAM_CHECK"] & (warp == w)):
                m.d.sync += checked[w].eq((value == check.crc) & whole & some)
        return ok

    def _run_control(
        self,
        m: Module,
        writes: dict[str, Value],
        value: Value,
        state: Signal,
        watchdog: Value,
        program_ok: Value,
    ) -> Signal:
        """The state machine of a run and its watchdog; returns the error register."""
        error = Signal(ErrorReport)
        quiet_for = Signal(32)
        expired = Signal()
        m.d.comb += [
            # In reset until a run: what an error left in the engines must not go on afterwards.
            self.clear.eq((state == State.IDLE) | (state == State.CLEAR)),
            self.run.eq(state == State.RUN),
            self.stop.eq(state != State.RUN),
            self.done.eq(state == State.DONE),
            expired.eq((watchdog != 0) & (quiet_for >= watchdog)),
        ]
        m.d.sync += quiet_for.eq(Mux(self.progress, 0, quiet_for + 1))
        with m.Switch(state):
            with m.Case(State.IDLE):
                m.d.sync += quiet_for.eq(0)
                with m.If(writes["CONTROL"] & value[csr.START]):
                    with m.If(program_ok):
                        m.d.sync += state.eq(State.CLEAR)
                    with m.Else():
                        m.d.sync += [state.eq(State.DONE), self.failed.eq(1), error.eq(0)]
                        m.d.sync += error.cause.eq(isa.Cause.CHECK_WORD)
            with m.Case(State.CLEAR):
                m.d.sync += [state.eq(State.RUN), quiet_for.eq(0), self.cycle.eq(0)]
            with m.Case(State.RUN):
                with m.If(self.error | expired):
                    m.d.sync += [state.eq(State.STOP), self.failed.eq(1), quiet_for.eq(0)]
                    m.d.sync += error.eq(Mux(self.error, self.error_report, self.stuck_report))
                with m.Elif(self.finished):
                    m.d.sync += state.eq(State.DONE)
                with m.Else():
                    m.d.sync += self.cycle.eq(self.cycle + 1)
            with m.Case(State.STOP), m.If(self.quiet | expired):
                m.d.sync += state.eq(State.DONE)
        # Not while memory still owes answers: the next run would take them for its own.
        with m.If(writes["CONTROL"] & value[csr.CLEAR] & (state == State.DONE) & self.quiet):
            m.d.sync += [state.eq(State.IDLE), self.failed.eq(0), error.eq(0)]
        return error

    def _settings(
        self, m: Module, writes: dict[str, Value], value: Value, state: Value, watchdog: Signal
    ) -> dict[str, object]:
        """Registers that the host writes and reads back; warps and windows stay as they are during a run."""
        settable = (state == State.IDLE) | (state == State.DONE)
        with m.If(writes["ENABLE"] & settable):
            m.d.sync += self.enable.eq(value)
        with m.If(writes["WATCHDOG"]):
            m.d.sync += watchdog.eq(value)
        reads: dict[str, object] = {"ENABLE": self.enable, "WATCHDOG": watchdog}
        for i in range(self._config.windows):
            window = self.windows[i]
            fields = {
                "FIRST": window.first,
                "LAST": window.last,
                "PERMIT": Cat(window.read, window.write),
            }
            for name, target in fields.items():
                register = f"WINDOW{i}_{name}"
                with m.If(writes[register] & settable):
                    m.d.sync += Value.cast(target).eq(value)
                reads[register] = target
        return reads

    def _counts(self, m: Module, state: Value, table: dict[str, csr.Register]) -> dict[str, object]:
        """Performance counters: reset by a start, frozen when the run ends."""
        names = [f"WARP{w}_{n.upper()}" for w in range(self._config.warps) for n in csr.WARP_COUNTERS]
        names += [f"{e.upper()}_{n.upper()}" for e in ENGINES for n in csr.ENGINE_COUNTERS]
        reads: dict[str, object] = {}
        for i, name in enumerate(names):
            counter = Signal(32, name=f"counter_{name.lower()}")
            with m.If(state == State.CLEAR):
                m.d.sync += counter.eq(0)
            with m.Elif((state == State.RUN) & self.counters[i]):
                m.d.sync += counter.eq(counter + 1)
            reads[name] = counter
        assert set(reads) <= set(table)
        return reads
