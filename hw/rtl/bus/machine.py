"""The machine with AXI4: registers as an AXI4-Lite slave, memory ports as an AXI4 master."""

from __future__ import annotations

import functools

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from hw.config import PORTS, MachineConfig
from hw.errors import InputError
from hw.rtl.bits import log2
from hw.rtl.bus.axi import Axi, AxiLite, AxiRead, AxiWrite, connect_named, named_ports
from hw.rtl.bus.lite import LiteSlave
from hw.rtl.bus.reader import ReadMaster
from hw.rtl.bus.writer import WriteMaster
from hw.rtl.machine import LOADERS, Machine

#: Width of a port's ID on the bus, which is its index in `hw.config.PORTS`.
ID_BITS = log2(len(PORTS))
#: Maximum number of transfers in a burst, by default.
BEATS = 16


def check_beats(beats: int) -> None:
    """Raises `InputError` unless a burst may have this many transfers."""
    if not 1 <= beats <= 256:
        raise InputError(f"the transfers of a burst must be 1 to 256, not {beats}")


def bus_bytes(config: MachineConfig) -> int:
    """Data width of the bus in bytes: that of the widest port."""
    return max(config.port_bytes(port) for port in PORTS)


def memory_buses(config: MachineConfig, separate: bool) -> dict[str, Signature]:
    """The masters by name: `m_axi` for all ports, or one per port, as wide as that port."""
    if not separate:
        return {"m_axi": Axi(bus_bytes(config), ID_BITS)}
    widths = {name: config.port_bytes(name) for name in PORTS}
    reads: dict[str, Signature] = {f"m_axi_{name}": AxiRead(widths[name], ID_BITS) for name in LOADERS}
    return reads | {"m_axi_store": AxiWrite(widths["store"], ID_BITS)}


class AxiCore(Component):
    """The machine with its registers (`csr`) and its memory (`memory_buses`) as bundles of streams.

    **Timing.** docs/bus.md, "The slave" and "The master".
    """

    def __init__(self, config: MachineConfig, beats: int = BEATS, *, separate: bool = False):
        self.config, self._beats, self._separate = config, beats, separate
        buses = {name: Out(bus) for name, bus in memory_buses(config, separate).items()}
        flags = {"running": Out(1), "done": Out(1), "error": Out(1)}
        super().__init__({"csr": In(AxiLite())} | buses | flags)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.machine = machine = Machine(c)
        m.submodules.lite = lite = LiteSlave(c)
        connect(m, flipped(self.csr), lite.bus)
        connect(m, lite.request, machine.host_request)
        connect(m, machine.host_response, lite.response)
        for name in LOADERS if self._separate else ("",):
            loaders = (name,) if name else LOADERS
            self._reader(m, machine, loaders, f"m_axi_{name}".rstrip("_"))
        self._writer(m, machine, "m_axi_store" if self._separate else "m_axi")
        m.d.comb += [
            self.running.eq(machine.running),
            self.done.eq(machine.done),
            self.error.eq(machine.error),
        ]
        return m

    def _reader(self, m: Module, machine: Machine, loaders: tuple[str, ...], name: str) -> None:
        bus = getattr(self, name)
        ports = tuple(self.config.port_bytes(loader) for loader in loaders)
        reader = ReadMaster(ports, bus.signature.width, self._beats, ID_BITS)
        m.submodules[f"{name}_reader"] = reader
        for i, loader in enumerate(loaders):
            port = getattr(reader, f"port{i}")
            connect(m, getattr(machine, f"{loader}_request"), port.request)
            connect(m, port.response, getattr(machine, f"{loader}_response"))
        connect(m, reader.bus.ar, flipped(bus.ar))
        connect(m, flipped(bus.r), reader.bus.r)

    def _writer(self, m: Module, machine: Machine, name: str) -> None:
        bus, identity = getattr(self, name), 0 if self._separate else PORTS.index("store")
        width = bus.signature.width
        writer = WriteMaster(self.config.store_bytes, width, self._beats, ID_BITS, identity)
        m.submodules[f"{name}_writer"] = writer
        connect(m, machine.store_request, writer.port.request)
        connect(m, writer.port.response, machine.store_response)
        connect(m, writer.bus.aw, flipped(bus.aw))
        connect(m, writer.bus.w, flipped(bus.w))
        connect(m, flipped(bus.b), writer.bus.b)


class AxiMachine(Component):
    """The top `heald_axi` with the standard port names of AXI (docs/bus.md).

    `irq` is 1 while the machine is done or has stopped on an error. `beats` is the maximum number of
    transfers in a burst. With `separate`, each memory port has its own master.

    **Timing.** As `AxiCore`, on the clock `aclk`. `aresetn` is synchronous.
    """

    def __init__(self, config: MachineConfig, beats: int = BEATS, *, separate: bool = False):
        self._core = functools.partial(AxiCore, config, beats, separate=separate)
        self._buses = memory_buses(config, separate)
        ports: dict[str, object] = {"aclk": In(1), "aresetn": In(1), "irq": Out(1)}
        ports |= named_ports("s_axil", AxiLite(), master=False)
        for name, bus in self._buses.items():
            ports |= named_ports(name, bus, master=True)
        super().__init__(ports)  # type: ignore[arg-type]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = ClockDomain()
        m.submodules.core = core = self._core()
        m.d.comb += [
            ClockSignal().eq(self.aclk),
            ResetSignal().eq(~self.aresetn),
            self.irq.eq(core.done | core.error),
        ]
        connect_named(m, self, "s_axil", AxiLite(), core.csr, master=False)
        for name, bus in self._buses.items():
            connect_named(m, self, name, bus, getattr(core, name), master=True)
        return m
