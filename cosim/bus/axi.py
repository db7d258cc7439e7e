"""A simulated AXI top that the host library can drive."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Self

from cosim.build import Build, generated
from cosim.bus import build, rules
from cosim.bus.environment import DECERR, SLVERR, Environment
from cosim.bus.process import Process
from cosim.device.bus import BusError, check_range
from hw.config import MachineConfig

#: Memory size of a simulation by default.
MEMORY_BYTES = 1 << 20
#: Cycles between two polls of a running machine.
IDLE_CYCLES = 500
_RESPONSES = {SLVERR: "SLVERR", DECERR: "DECERR"}


@functools.lru_cache
def program(config: MachineConfig, beats: int | None = None) -> Build:
    """The simulation of a machine with bursts of at most `beats` transfers, built or from the cache."""
    from hw.rtl.bus import emit, machine  # importing Amaranth takes half a second

    most = machine.BEATS if beats is None else beats
    text, took = generated(config, f"axi, {most}", lambda: emit.axi_verilog(config, most))
    sizes = [f"-GBYTES={machine.bus_bytes(config)}", f"-GID_BITS={machine.ID_BITS}"]
    return build.program(text, build.HARNESS / "axi", sizes, seconds=took)


class AxiSimulation:
    """The top `heald_axi` between a model of the host and one of memory; a `cosim.device.Bus`.

    With `stock`, the memory is cocotbext-axi's `AxiRam`. Otherwise it is ours, which can answer out of order,
    late, and with errors (`Environment`). Registers without reset start with random values drawn from `seed`.
    Every method raises `RuntimeError` if the simulation ends, as it does when a model meets something it
    cannot handle.
    """

    def __init__(
        self,
        config: MachineConfig,
        *,
        beats: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
        stock: bool = False,
        seed: int = 1,
        base: int = 0,
    ):
        assert not (stock and base), "the memory of cocotbext-axi begins at address 0"
        made = program(config, beats)
        self.build_seconds = made.seconds
        self.memory_bytes, self.base = memory_bytes, base
        settings = {
            f"HEALD_{n}": str(int(v)) for n, v in (("MEMORY", memory_bytes), ("STOCK", stock), ("BASE", base))
        }
        start = (f"+verilator+seed+{1 + seed % 0x7FFFFFFE}", "+verilator+rand+reset+2")
        self._process = Process(made.directory / "program", "cosim.bus.axi_bench", settings, start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def behave(self, environment: Environment) -> None:
        """Change how host and memory behave from now on."""
        self._process.call("behave", environment)

    def plant(self, number: int) -> None:
        """Break an AXI rule on the way to the pins from now on (harness/axi/harness.sv); 0: none."""
        self._process.call("plant", number)

    def reset(self) -> None:
        """Reset machine and models; the memory keeps its contents."""
        self._process.call("reset")

    def state(self) -> dict[str, int]:
        """Cycles so far, data transfers, `irq`, and the checkers' state."""
        found: dict[str, int] = self._process.call("state")
        return found

    def violations(self) -> list[str]:
        """The AXI rules broken since the start."""
        state = self.state()
        return rules.broken(state["axi_broken"], state["lite_broken"])

    def read_csr(self, offset: int, count: int = 1) -> list[int]:
        """See `Bus`."""
        response, data = self._process.call("read", offset, count)
        self._check(response, f"read of {count} registers", offset)
        return [int.from_bytes(data[i : i + 4], "little") for i in range(0, 4 * count, 4)]

    def write_csr(self, offset: int, words: Sequence[int]) -> None:
        """See `Bus`."""
        self._check(self._process.call("write", offset, list(words)), "write of a register", offset)

    def read_memory(self, address: int, size: int) -> bytes:
        """See `Bus`."""
        check_range(self, address, size)
        data: bytes = self._process.call("peek", address, size)
        return data

    def write_memory(self, address: int, data: bytes) -> None:
        """See `Bus`."""
        check_range(self, address, len(data))
        self._process.call("poke", address, data)

    def idle(self) -> None:
        """See `Bus`."""
        self._process.call("idle", IDLE_CYCLES)

    def close(self) -> None:
        """See `Bus`."""
        self._process.close()

    @staticmethod
    def _check(response: int, what: str, offset: int) -> None:
        if response:
            raise BusError(f"{what} at {offset:#x} was answered with {_RESPONSES.get(response, response)}")
