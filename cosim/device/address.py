"""Addresses of machines as text: `uart:PORT[@BAUD]`, `mmio:CSR[@OFFSET],MEMORY[@OFFSET][+SIZE][=BASE]`."""

from __future__ import annotations

import re

from cosim.device.bus import Bus, BusError
from cosim.device.mmio import Area, MmioBus
from cosim.device.uart import BAUD, UartBus

FORMS = "uart:PORT[@BAUD] or mmio:CSR_FILE[@OFFSET],MEMORY_FILE[@OFFSET][+SIZE][=BASE]"
_AREA = re.compile(r"(?P<path>[^@+,=]+)(@(?P<offset>\w+))?(\+(?P<size>\w+))?")


def open_bus(text: str) -> Bus:
    """Open the bus at an address. Raises `BusError` for an invalid address, and if it cannot be opened."""
    kind, sign, rest = text.partition(":")
    if sign and rest and kind == "uart":
        port, at, baud = rest.rpartition("@")
        return UartBus(port, _number(text, baud)) if at else UartBus(rest, BAUD)
    if sign and kind == "mmio" and rest.count(",") == 1:
        csr, memory = rest.split(",")
        memory, based, base = memory.partition("=")
        return MmioBus(_area(text, csr), _area(text, memory), _number(text, base if based else "0"))
    raise _malformed(text)


def _area(text: str, part: str) -> Area:
    match = _AREA.fullmatch(part)
    if match is None:
        raise _malformed(text)
    size = match["size"]
    return Area(match["path"], _number(text, match["offset"] or "0"), _number(text, size) if size else None)


def _number(text: str, part: str) -> int:
    try:
        return int(part, 0)
    except ValueError:
        raise _malformed(text) from None


def _malformed(text: str) -> BusError:
    return BusError(f"a device must be {FORMS}, not {text!r}")
