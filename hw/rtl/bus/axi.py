"""AXI4 and AXI4-Lite as bundles of streams, and their standard port names for a top."""

from __future__ import annotations

import enum
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Member, Out, Signature

from hw.rtl.interfaces import ADDRESS_BITS

CSR_ADDRESS_BITS = 16
#: AxCACHE of the master: normal, modifiable, non-bufferable, so that a write response comes from the memory.
CACHE = 0b0010
#: Boundary in bytes that no burst may cross (AMBA AXI specification, "Address structure").
BOUNDARY = 4096


class Resp(enum.IntEnum):
    """Codes of xRESP."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Burst(enum.IntEnum):
    """Codes of AxBURST."""

    FIXED = 0
    INCR = 1
    WRAP = 2


def address_channel(id_bits: int) -> data.StructLayout:
    """Payload of AW and AR."""
    return data.StructLayout({"id": id_bits, "addr": ADDRESS_BITS, "len": 8, "size": 3, "burst": 2})


def answer_channel(id_bits: int) -> data.StructLayout:
    """Payload of B."""
    return data.StructLayout({"id": id_bits, "resp": 2})


class AxiRead(Signature):
    """The channels AR and R, seen from the master."""

    def __init__(self, width: int, id_bits: int):
        self.width, self.id_bits = width, id_bits
        answer = data.StructLayout({"id": id_bits, "data": 8 * width, "resp": 2, "last": 1})
        super().__init__(
            {
                "ar": Out(stream.Signature(address_channel(id_bits))),
                "r": In(stream.Signature(answer)),
            }
        )


class AxiWrite(Signature):
    """The channels AW, W and B, seen from the master."""

    def __init__(self, width: int, id_bits: int):
        self.width, self.id_bits = width, id_bits
        word = data.StructLayout({"data": 8 * width, "strb": width, "last": 1})
        super().__init__(
            {
                "aw": Out(stream.Signature(address_channel(id_bits))),
                "w": Out(stream.Signature(word)),
                "b": In(stream.Signature(answer_channel(id_bits))),
            }
        )


class Axi(Signature):
    """All five channels of AXI4, seen from the master: `width` bytes of data, 32-bit addresses."""

    def __init__(self, width: int, id_bits: int):
        self.width, self.id_bits = width, id_bits
        write, read = AxiWrite(width, id_bits).members, AxiRead(width, id_bits).members
        super().__init__(dict(write.items()) | dict(read.items()))


class AxiLite(Signature):
    """AXI4-Lite with 32-bit data and register addresses, seen from the master."""

    def __init__(self) -> None:
        address = data.StructLayout({"addr": CSR_ADDRESS_BITS})
        super().__init__(
            {
                "aw": Out(stream.Signature(address)),
                "w": Out(stream.Signature(data.StructLayout({"data": 32, "strb": 4}))),
                "b": In(stream.Signature(data.StructLayout({"resp": 2}))),
                "ar": Out(stream.Signature(address)),
                "r": In(stream.Signature(data.StructLayout({"data": 32, "resp": 2}))),
            }
        )


def named_ports(prefix: str, signature: Signature, *, master: bool) -> dict[str, Member]:
    """Ports of a top for the channels of `signature`: `PREFIX_awvalid`, `PREFIX_awaddr`, ..."""
    ports: dict[str, Member] = {}
    for channel, member in signature.members.items():
        forward = (member.flow == Out) == master  # whether the top is the source of the channel
        source, sink = (Out, In) if forward else (In, Out)
        ports[f"{prefix}_{channel}valid"] = source(1)
        ports[f"{prefix}_{channel}ready"] = sink(1)
        for field, inner in _payload(member).members.items():
            ports[f"{prefix}_{channel}{field}"] = source(inner)
        if channel in ("aw", "ar"):
            ports[f"{prefix}_{channel}prot"] = source(3)
            if isinstance(signature, Axi | AxiRead | AxiWrite):
                ports[f"{prefix}_{channel}cache"] = source(4)
    return ports


def connect_named(m: Module, top: Any, prefix: str, signature: Signature, bus: Any, *, master: bool) -> None:
    """Connects the named ports of `top` to `bus`, an inner interface with the channels of `signature`.

    `master`: the top is the master. It drives AxPROT and AxCACHE with constants; a slave ignores them.
    """
    for channel, member in signature.members.items():
        inner = getattr(bus, channel)

        def port(name: str, channel: str = channel) -> Any:
            return getattr(top, f"{prefix}_{channel}{name}")

        pairs = [(port("valid"), inner.valid)]
        pairs += [(port(f), inner.payload[f]) for f in _payload(member).members]
        forward = (member.flow == Out) == master
        m.d.comb += [outside.eq(inside) if forward else inside.eq(outside) for outside, inside in pairs]
        m.d.comb += inner.ready.eq(port("ready")) if forward else port("ready").eq(inner.ready)
        if master and channel in ("aw", "ar"):
            m.d.comb += port("cache").eq(CACHE)


def _payload(member: Member) -> data.StructLayout:
    layout = member.signature.members["payload"].shape
    assert isinstance(layout, data.StructLayout)
    return layout
