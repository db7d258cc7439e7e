"""Loader: turns `load_*` operations into memory requests, and answers into buffer writes.

`LoadRequests` walks the rows and sends requests; `LoadWriter` writes every byte to its place when the answers
arrive. Two queues connect them: the operations in flight, and their steps, which say what each answer is for.
The loader of buffer B has a second walker, for `load_b_conv`.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw import isa
from hw.config import MachineConfig
from hw.rtl.interfaces import EngineControl, ErrorReport, ReadPort, windows_layout
from hw.rtl.memory.buffer import BankedWrite
from hw.rtl.memory.load_requests import LoadRequests
from hw.rtl.memory.load_steps import StepQueue, loader_target, operation_layout, step_layout
from hw.rtl.memory.load_writer import LoadWriter


class TakenOperations(Component):
    """Operations that the requests have begun, in order, for the writer; at most `most` at a time.

    There is at least one more place than `most`, so a free one is written in every cycle. The late signal
    `enters` then drives only a few bits and not a wide memory.

    **Timing.** An operation that `enters` in cycle t is offered from t + 1 on.
    """

    def __init__(self, width: int, most: int):
        self._width, self._most = width, most
        super().__init__({"enters": In(1), "data": In(width), "out": Out(stream.Signature(width))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = 1 << self._most.bit_length()
        m.submodules.storage = storage = memory.Memory(shape=self._width, depth=places, init=[])
        writer, reader = storage.write_port(), storage.read_port(domain="comb")
        level, leaves = Signal(range(self._most + 1)), Signal()
        m.d.comb += [
            writer.en.eq(1),
            writer.data.eq(self.data),
            self.out.valid.eq(level != 0),
            self.out.payload.eq(reader.data),
            leaves.eq(self.out.valid & self.out.ready),
        ]
        with m.If(self.enters):
            m.d.sync += writer.addr.eq(writer.addr + 1)
        with m.If(leaves):
            m.d.sync += reader.addr.eq(reader.addr + 1)
        with m.If(self.enters ^ leaves):
            m.d.sync += level.eq(Mux(leaves, level - 1, level + 1))
        return m


class Loader(Component):
    """A loader engine with its operation queue port, memory port and buffer port.

    **Timing.** docs/machine.md, "Loaders". At most `TIMING.in_flight` operations are taken and not complete.
    """

    def __init__(self, config: MachineConfig, port: str):
        self.config, self._port = config, port
        super().__init__(
            {
                "control": Out(EngineControl(port)),
                "memory": Out(ReadPort(config.port_bytes(port))),
                "write": Out(BankedWrite(loader_target(config, port))),
                "windows": In(windows_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        limit = isa.TIMING.in_flight
        m.submodules.requests = requests = LoadRequests(self.config, self._port)
        m.submodules.writer = writer = LoadWriter(self.config, self._port)
        layout = operation_layout(self.config, self._port)
        m.submodules.taken = taken = TakenOperations(layout.size, limit)
        m.submodules.steps = steps = StepQueue(step_layout(self.config, self._port).size)
        control = self.control
        connect(m, flipped(control.operation), requests.operation)
        connect(m, requests.request, flipped(self.memory.request))
        connect(m, flipped(self.memory.response), writer.response)
        connect(m, writer.write, flipped(self.write))
        connect(m, taken.out, writer.operation)
        connect(m, steps.out, writer.step)

        in_flight = Signal(range(limit + 1))
        m.d.sync += in_flight.eq(in_flight + taken.enters - writer.complete)
        failed, report = Signal(), Signal(ErrorReport)
        m.d.sync += [
            failed.eq(writer.error | requests.error),
            report.eq(Mux(writer.error, writer.error_report, requests.error_report)),
        ]
        # `response.ready` is known late, so answers are counted one cycle later.
        outstanding, asked, answered = Signal(16), Signal(), Signal()
        counted, none, one = Signal(16), Signal(init=1), Signal()
        was_asked, was_answered, more, less = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            asked.eq(self.memory.request.valid & self.memory.request.ready),
            answered.eq(self.memory.response.valid & self.memory.response.ready),
        ]
        m.d.sync += [was_asked.eq(asked), was_answered.eq(answered)]
        m.d.comb += [more.eq(was_asked & ~was_answered), less.eq(was_answered & ~was_asked)]
        m.d.comb += counted.eq(outstanding)
        with m.If(more | less):
            m.d.comb += counted.eq(outstanding + Mux(more, 1, -1))
        m.d.sync += [outstanding.eq(counted), none.eq(counted == 0), one.eq(counted == 1)]
        m.d.comb += [
            requests.room.eq(in_flight != limit),
            requests.windows.eq(self.windows),
            requests.stop.eq(control.stop),
            writer.stop.eq(control.stop),
            taken.enters.eq(requests.taken.valid),
            taken.data.eq(requests.taken.payload),
            requests.step_room.eq(steps.room),
            steps.enters.eq(requests.step.valid),
            steps.data.eq(requests.step.payload),
            control.complete.eq(writer.complete),
            control.complete_warp.eq(writer.complete_warp),
            control.error.eq(failed & ~control.stop),
            control.error_report.eq(report),
            control.quiet.eq(Mux(less, one, none & ~more) & ~self.memory.request.valid),
            control.busy.eq(requests.busy),
            control.stall_memory.eq(requests.stall_memory),
            control.progress.eq(Cat(requests.busy, answered)),
        ]
        return m
