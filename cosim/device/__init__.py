"""Host library: drives a machine over UART, memory-mapped registers, or a simulated bus (docs/device.md)."""

from cosim.device.address import open_bus
from cosim.device.bus import Bus, BusError, UncertainError
from cosim.device.device import Device, DeviceSimulator, Status
from cosim.device.mmio import Area, MmioBus
from cosim.device.uart import UartBus

__all__ = [
    "Area",
    "Bus",
    "BusError",
    "Device",
    "DeviceSimulator",
    "MmioBus",
    "Status",
    "UartBus",
    "UncertainError",
    "open_bus",
]
