"""Signatures and payload layouts between the components of the machine and at its ports."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Value, ValueLike
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

from hw import isa
from hw.config import MachineConfig

ADDRESS_BITS = 32
PC_BITS = 14
WARP_BITS = 4


def warp_number(config: MachineConfig) -> range:
    """The range of warp numbers of a machine, at least one bit wide."""
    return range(max(2, config.warps))


HostRequest = data.StructLayout({"address": 16, "data": 32, "write": 1})
ReadRequest = ADDRESS_BITS
WriteResponse = data.StructLayout({"error": 1})


def read_response(width: int) -> data.StructLayout:
    """Payload of a read answer for a port of `width` bytes."""
    return data.StructLayout({"data": 8 * width, "error": 1})


def write_request(width: int) -> data.StructLayout:
    """Payload of a write request for a port of `width` bytes."""
    return data.StructLayout({"address": ADDRESS_BITS, "data": 8 * width, "strobe": width})


class ReadPort(Signature):
    """A memory read port: a stream of aligned addresses out, a stream of answers in, in order."""

    def __init__(self, width: int):
        super().__init__(
            {
                "request": Out(stream.Signature(ReadRequest)),
                "response": In(stream.Signature(read_response(width))),
            }
        )


class WritePort(Signature):
    """A memory write port: a stream of words out, one answer to each in, in order."""

    def __init__(self, width: int):
        super().__init__(
            {
                "request": Out(stream.Signature(write_request(width))),
                "response": In(stream.Signature(WriteResponse)),
            }
        )


def operation(engine: str) -> data.StructLayout:
    """Layout of an engine's queue entry: operands, parameters, variant, and who issued it.

    `variant` is the index of the instruction among those of the engine.
    """
    rows = isa.of_engine(engine)
    members: dict[str, int] = {o.name: o.bits for o in rows[0].operands}
    members |= {name: isa.PARAMETERS[name].bits for row in rows for name in row.parameters}
    members |= {"variant": 2, "warp": WARP_BITS, "pc": PC_BITS}
    return data.StructLayout(members)


ErrorReport = data.StructLayout({"cause": 8, "warp": WARP_BITS, "pc": PC_BITS})
WindowLayout = data.StructLayout({"first": ADDRESS_BITS, "last": ADDRESS_BITS, "read": 1, "write": 1})


def report_of(report: Value, cause: ValueLike, operation: Value) -> list[Any]:
    """Statements that set an error report from a cause and the operation that failed."""
    return [report.cause.eq(cause), report.warp.eq(operation.warp), report.pc.eq(operation.pc)]


class EngineControl(Signature):
    """The control signals that all engines share: queue, completion, error, stop, counters.

    `stop` requests an orderly stop: no new memory requests. `quiet` is 1 when no memory answers are
    outstanding. A bit of `progress` is 1 in cycles that count as progress for the watchdog: requests, work,
    and answers.
    """

    def __init__(self, engine: str):
        super().__init__(
            {
                "operation": In(stream.Signature(operation(engine))),
                "complete": Out(1),
                "complete_warp": Out(WARP_BITS),
                "error": Out(1),
                "error_report": Out(ErrorReport),
                "stop": In(1),
                "quiet": Out(1),
                "progress": Out(2),
                "busy": Out(1),
                "stall_memory": Out(1),
                "stall_bank": Out(1),
            }
        )


def windows_layout(config: MachineConfig) -> data.ArrayLayout:
    """All memory windows as one value."""
    return data.ArrayLayout(WindowLayout, config.windows)
