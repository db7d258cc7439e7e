"""Host side: control and status registers, program load, run control, watchdog."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import enum, stream
from amaranth.lib.wiring import Component, In, Out

from hw import csr, isa
from hw.config import ENGINES, MachineConfig
from hw.rtl.bits import log2, where
from hw.rtl.core.check import WordCheck
from hw.rtl.core.counters import WORD_BITS, RegisterMemory
from hw.rtl.core.registers import register_words
from hw.rtl.interfaces import ADDRESS_BITS, ErrorReport, HostRequest, warp_number, windows_layout


class State(enum.Enum):
    """States of a run."""

    IDLE = 0
    CLEAR = 1  # resets everything but programs and host settings; memories word by word
    LOAD = 2  # one round of turns, in which the warps fetch their first instructions
    RUN = 3
    STOP = 4  # after an error: waits for outstanding memory answers
    DONE = 5


class Host(Component):
    """Host registers of `hw.csr` behind a request stream, and the control of a run.

    `clear` resets warps and channels, and the engines some cycles later. Before a run it lasts until
    `clear_index` has addressed every word of the memories to be reset; one round of turns follows. `execute`
    lets the enabled warps run. It is still 1 in the cycle in which `error` ends `run`; what the warps do in
    that cycle has no effect.

    `quiet` means that no memory answers are outstanding. `finished` means that every warp has halted and has
    nothing pending; it may come late, because cycles are counted up to the last `event` of a warp. Any bit of
    `progress` (from warps, and from engines that work or complete) restarts the watchdog, whose error is
    `expired`. `error` reports an error of two cycles ago (`hw.rtl.core.errors`) and counts only while the run
    lasts. `counters` are the events of the previous cycle for the performance counters, warps first.

    **Timing.** docs/machine.md, "Host".
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        constants = csr.constants(config)
        self._memory = RegisterMemory(
            config, {csr.offset(config, name) // 4: value for name, value in constants.items()}
        )
        #: Number of cycles of `clear` before a run.
        self.clear_cycles = max(register_words(config), self._memory.round_cycles + 4)
        super().__init__(
            {
                "request": In(stream.Signature(HostRequest)),
                "response": Out(stream.Signature(32)),
                "clear": Out(1),
                "clear_index": Out(range(register_words(config))),
                "run": Out(1),
                "execute": Out(1),
                "stop": Out(1),
                "enable": Out(config.warps),
                "finished": In(1),
                "event": In(1),
                "quiet": In(1),
                "progress": In(1 + 3 * len(ENGINES)),
                "error": In(1),
                "error_report": In(ErrorReport),
                "expired": Out(1),
                "windows": Out(windows_layout(config)),
                "base": Out(ADDRESS_BITS),
                "program_write": Out(1),
                "program_warp": Out(warp_number(config)),
                "program_address": Out(log2(config.imem_words)),
                "program_data": Out(32),
                "counters": In(len(self._memory.events)),
                "cycle": Out(48),
                "done": Out(1),
                "failed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = registers = self._memory
        table = {r.name: r for r in csr.registers(self._config)}
        held, decoded, request = Signal(), Signal(), Signal(HostRequest)
        done, write, checks = Signal(), Signal(), Signal()
        # A request is registered, decoded in the cycle after it was taken, and executed in the next one once
        # the previous answer is gone. A read also waits for its word.
        m.d.comb += [
            self.request.ready.eq(~held),
            write.eq(decoded & request.write & ~self.response.valid & checks),
            registers.read.eq(decoded & ~request.write & ~self.response.valid),
            done.eq(write | registers.valid),
        ]
        with m.If(~held):
            m.d.sync += [held.eq(self.request.valid), request.eq(self.request.payload)]
        with m.If(done):
            m.d.sync += held.eq(0)
        number, inside = request.address[2 : 2 + WORD_BITS], Signal()
        here = Cat(request.address[:2], request.address[2 + WORD_BITS :]) == 0
        m.d.sync += [decoded.eq(held & ~done), inside.eq(here)]
        at = {name: Signal(name=f"at_{name.lower()}") for name in table}
        for name, register in table.items():
            m.d.sync += at[name].eq(here & (number == register.offset // 4))
        writes: dict[str, Value] = {}
        for name, register in table.items():
            if "w" in register.access:
                writes[name] = Signal(name=f"write_{name.lower()}")
                m.d.comb += writes[name].eq(write & at[name])
        state = Signal(State)
        watchdog = Signal(32, init=1 << 20)
        program_ok = self._program(m, writes, request.data, state, checks)
        starts, clears = (writes["CONTROL"] & request.data[bit] for bit in (csr.START, csr.CLEAR))
        error = self._run_control(m, state, starts, clears, program_ok, watchdog)
        reads = self._settings(m, writes, request.data, state, watchdog)
        reads |= {
            "STATUS": Cat((state != State.IDLE) & ~self.done, self.done, self.failed, program_ok, self.quiet),
            "ERROR": Cat(error.cause, error.warp, Value.cast(0).replicate(4), error.pc),
            "CYCLES_LOW": self.cycle[:32],
            "CYCLES_HIGH": self.cycle[32:],
        }
        ran = Signal()
        m.d.sync += ran.eq(self.run)
        m.d.comb += [
            registers.events.eq(where(ran, self.counters)),
            registers.count.eq(state == State.RUN),
            registers.clear.eq(state == State.CLEAR),
            registers.number.eq(number),
            registers.data.eq(request.data),
        ]
        # Registers that are not in this memory read as 0 in it.
        answer: Value = where(inside, registers.value)
        for name, read in reads.items():
            answer |= where(at[name], Value.cast(read))
        self._answer(m, done, where(~request.write, answer))
        return m

    def _answer(self, m: Module, done: Value, answer: Value) -> None:
        """Answers the request that is `done`."""
        with m.If(self.response.ready):
            m.d.sync += self.response.valid.eq(0)
        with m.If(done):
            m.d.sync += [self.response.valid.eq(1), self.response.payload.eq(answer)]

    def _program(
        self, m: Module, writes: dict[str, Value], value: Value, state: Value, checks: Signal
    ) -> Signal:
        """Program load: writes words to the program memory and through the CRC check, warp by warp.

        No request may execute until `checks` is 1, that is, until the check is ready for the next word.
        """
        words = log2(self._config.imem_words)
        warps = self._config.warps
        address, warp = Signal(words), Signal(32 - words)
        checked, ok, idle = Signal(warps), Signal(), Signal()
        whole, some = Signal(), Signal()  # since PROGRAM_ADDRESS: words start at pc 0; there are any
        m.submodules.check = check = WordCheck()
        write = writes["PROGRAM_DATA"] & idle
        m.d.comb += [
            idle.eq((state == State.IDLE) | self.done),
            check.start.eq(writes["PROGRAM_ADDRESS"]),
            check.valid.eq(write),
            check.data.eq(value),
            checks.eq(check.ready),
            self.program_address.eq(address),
            self.program_data.eq(value),
            ok.eq((checked | ~self.enable).all()),
        ]
        with m.If(writes["PROGRAM_ADDRESS"]):
            m.d.sync += [address.eq(value), warp.eq(value >> words), whole.eq(value[:words] == 0), some.eq(0)]
        with m.If(write):
            m.d.sync += [address.eq(address + 1), some.eq(1)]
        m.d.comb += [self.program_write.eq(write & (warp < warps)), self.program_warp.eq(warp)]
        for w in range(warps):
            with m.If(write & (warp == w)):
                m.d.sync += checked[w].eq(0)
            with m.Elif(writes["PROGRAM_CHECK"] & (warp == w)):
                m.d.sync += checked[w].eq((value == check.crc) & whole & some)
        return ok

    def _run_control(
        self, m: Module, state: Signal, starts: Value, clears: Value, program_ok: Value, watchdog: Value
    ) -> Signal:
        """The state machine of a run; returns the error register.

        An error is known two cycles late; the cycle count is then corrected.
        """
        error, failed = Signal(ErrorReport), Signal()
        running, told, happened = Signal(), Signal(), Signal()  # `running`: whether the state is RUN
        # Whether the state is IDLE or CLEAR. The machine stays in reset until a run starts, so that engines
        # do not continue what an error interrupted. It is a register because it drives the resets.
        clearing = Signal(init=1)
        count, following, latest = (Signal(len(self.cycle), name=n) for n in ("count", "following", "latest"))
        period = self._config.derived.period
        cleared, loaded = Signal(range(self.clear_cycles)), Signal(range(period))
        self._watch(m, state, watchdog, told)
        m.d.comb += [
            told.eq(running & self.error),
            self.execute.eq(running),
            self.clear.eq(clearing),
            self.clear_index.eq(cleared),
            self.run.eq(running & ~self.error),
            self.stop.eq(~self.run),
            self.done.eq(state == State.DONE),
            self.failed.eq(failed),
            self.cycle.eq(count),
            following.eq(count + Mux(told, -2, 1)),  # the error came two cycles ago
        ]
        m.d.sync += [cleared.eq(0), happened.eq(self.event)]
        with m.Switch(state):
            with m.Case(State.IDLE), m.If(starts):
                with m.If(program_ok):
                    m.d.sync += state.eq(State.CLEAR)
                with m.Else():
                    m.d.sync += [state.eq(State.DONE), clearing.eq(0), failed.eq(1), error.eq(0)]
                    m.d.sync += error.cause.eq(isa.Cause.CHECK_WORD)
            with m.Case(State.CLEAR):
                m.d.sync += [count.eq(0), cleared.eq(cleared + 1)]
                with m.If(cleared == self.clear_cycles - 1):
                    m.d.sync += [state.eq(State.LOAD), clearing.eq(0)]
            with m.Case(State.LOAD):
                m.d.sync += [loaded.eq(loaded + 1), latest.eq(0)]
                with m.If(loaded == period - 1):
                    m.d.sync += [state.eq(State.RUN), loaded.eq(0), running.eq(1)]
            with m.Case(State.RUN):
                m.d.sync += count.eq(following)
                with m.If(happened):
                    m.d.sync += latest.eq(count)
                with m.If(told):
                    m.d.sync += [failed.eq(1), error.eq(self.error_report), running.eq(0)]
                    m.d.sync += state.eq(Mux(self.quiet, State.DONE, State.STOP))
                with m.Elif(self.finished):
                    m.d.sync += [state.eq(State.DONE), count.eq(latest), running.eq(0)]
            with m.Case(State.STOP), m.If(self.quiet | self.expired):
                m.d.sync += state.eq(State.DONE)
        # Not while memory still owes answers, or the next run would take them for its own.
        with m.If(clears & self.done & self.quiet):
            m.d.sync += [state.eq(State.IDLE), clearing.eq(1), failed.eq(0), error.eq(0)]
        return error

    def _watch(self, m: Module, state: Value, watchdog: Value, told: Value) -> None:
        """The watchdog: expires when a run, or its end, makes no progress for too long.

        It takes a whole round of turns to see that no warp makes progress, so a run is allowed `period`
        cycles more.
        """
        period = self._config.derived.period
        moved, quiet_for = Signal(len(self.progress) + 1), Signal(signed(34))
        m.d.sync += [
            # Progress comes late in a cycle, from all over the machine, so it is registered first.
            moved.eq(Cat(self.progress, self.clear | (state == State.LOAD))),
            quiet_for.eq(Mux(told, 0, Mux(moved.any(), -period, quiet_for + 1))),
            self.expired.eq((watchdog != 0) & (quiet_for >= watchdog) & ~told),
        ]

    def _settings(
        self, m: Module, writes: dict[str, Value], value: Value, state: Value, watchdog: Signal
    ) -> dict[str, object]:
        """Registers that the host writes and reads back. All but the watchdog are locked during a run."""
        settable = (state == State.IDLE) | self.done
        with m.If(writes["ENABLE"] & settable):
            m.d.sync += self.enable.eq(value)
        with m.If(writes["WATCHDOG"]):
            m.d.sync += watchdog.eq(value)
        zeros = log2(csr.BASE_STEP)
        base = Signal(ADDRESS_BITS - zeros)
        with m.If(writes["BASE"] & settable):
            m.d.sync += base.eq(value[zeros:])
        m.d.comb += self.base.eq(base << zeros)
        reads: dict[str, object] = {"ENABLE": self.enable, "WATCHDOG": watchdog, "BASE": self.base}
        # Window bounds have no reset, because the memory from which the host reads them has none.
        bounds = []
        for i in range(self._config.windows):
            permit = Signal(2, name=f"permit{i}")
            with m.If(writes[f"WINDOW{i}_PERMIT"] & settable):
                m.d.sync += permit.eq(value)
            reads[f"WINDOW{i}_PERMIT"] = permit
            m.d.comb += [
                self.windows[i].read.eq(permit[csr.READ]),
                self.windows[i].write.eq(permit[csr.WRITE]),
            ]
            for name in ("first", "last"):
                write = writes[f"WINDOW{i}_{name.upper()}"] & settable
                bound = Signal(32, name=f"{name}{i}", reset_less=True)
                with m.If(write):
                    m.d.sync += bound.eq(value)
                m.d.comb += self.windows[i][name].eq(bound)
                bounds.append(write)
        m.d.comb += self._memory.write.eq(Cat(*bounds).any())
        return reads
