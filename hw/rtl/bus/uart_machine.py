"""A complete system on one UART: the machine, block RAM as its memory, and the bridge."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, ResetInserter
from amaranth.lib.wiring import Component, In, Out, connect

from hw.config import MachineConfig
from hw.rtl.bus.arbiter import Arbiter
from hw.rtl.bus.bridge import UartBridge
from hw.rtl.bus.machine import BEATS, ID_BITS, AxiCore, bus_bytes
from hw.rtl.bus.protocol import PROTOCOL, RECEIVE_BYTES, Identity, Serial
from hw.rtl.bus.ram import AxiRam
from hw.rtl.bus.uart import divisor

#: Meaning of the outputs `led`, lowest bit first.
LEDS = ("running", "done", "error", "lost")


class UartMachine(Component):
    """The top `heald_uart`: ports `clk`, `rst` (synchronous), `uart_rx`, `uart_tx`, `led` (`LEDS`).

    Memory has `serial.memory_bytes` from address 0 on (`hw.rtl.bus.ram.check_size`); the clock must be able
    to produce the baud rate (`hw.rtl.bus.uart.divisor`).

    **Timing.** docs/bus.md, "`heald_uart`" and "UART protocol".
    """

    def __init__(self, config: MachineConfig, serial: Serial):
        sizes = (serial.memory_bytes, serial.clock_hz, serial.baud, serial.timeout_bits)
        self.identity = Identity(PROTOCOL, *sizes, RECEIVE_BYTES)
        self._config, self._cycles = config, divisor(serial.clock_hz, serial.baud)
        super().__init__({"uart_rx": In(1, init=1), "uart_tx": Out(1), "led": Out(len(LEDS))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = bus_bytes(self._config)
        core = AxiCore(self._config, BEATS)
        ram = AxiRam(self.identity.memory_bytes, width, ID_BITS + 1)
        arbiter = Arbiter(width, ID_BITS)
        m.submodules.bridge = bridge = UartBridge(width, ID_BITS, self._cycles, self.identity)
        m.submodules.core = ResetInserter(bridge.reset)(core)
        m.submodules.ram = ResetInserter(bridge.reset)(ram)
        m.submodules.arbiter = ResetInserter(bridge.reset)(arbiter)
        connect(m, bridge.csr, core.csr)
        connect(m, core.m_axi, arbiter.first)
        connect(m, bridge.memory, arbiter.second)
        connect(m, arbiter.bus, ram.bus)
        m.d.comb += [
            bridge.uart_rx.eq(self.uart_rx),
            self.uart_tx.eq(bridge.uart_tx),
            self.led.eq(Cat(core.running, core.done, core.error, bridge.lost)),
        ]
        return m
