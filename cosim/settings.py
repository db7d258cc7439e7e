"""How the memories behave in a run: latency, bandwidth and stalls, set at run time.

`available` is the one definition of the pattern; the harness (SystemVerilog) and the Amaranth test
bench repeat it bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hw.config import PORTS, MachineConfig
from hw.errors import InputError

MIX_1, MIX_2 = 0x7FEB352D, 0x846CA68B
SEED_STEP, PORT_STEP = 0x9E3779B1, 0x85EBCA6B
WORDS_PER_PORT = 4


@dataclass(frozen=True)
class PortSettings:
    """One port: latency in cycles (1 to 1000), bandwidth in bytes per cycle (1 to the width)."""

    width: int
    latency: int
    bandwidth: int


@dataclass(frozen=True)
class MemorySettings:
    """All ports by name, and the stall pattern: `stall_rate` of 256 cycles are refused (0: none)."""

    ports: dict[str, PortSettings] = field(default_factory=dict)
    stall_seed: int = 0
    stall_rate: int = 0

    @staticmethod
    def of(
        config: MachineConfig,
        *,
        latency: dict[str, int] | None = None,
        bandwidth: dict[str, int] | None = None,
        stall_seed: int | None = None,
        stall_rate: int = 64,
    ) -> MemorySettings:
        """The configuration's ports with some values replaced; a `stall_seed` turns stalls on.

        Raises `InputError` for an unknown port, or a value out of range.
        """
        latency, bandwidth = latency or {}, bandwidth or {}
        for name in [*latency, *bandwidth]:
            if name not in PORTS:
                raise InputError(f"memory port must be one of {', '.join(PORTS)}, not {name!r}")
        ports = {}
        for port in PORTS:
            width = config.port_bytes(port)
            wait = latency.get(port, config.port_latency(port))
            rate = bandwidth.get(port, width)
            if not 1 <= wait <= 1000:
                raise InputError(f"latency of {port} must be 1 to 1000 cycles, not {wait}")
            if not 1 <= rate <= width:
                raise InputError(f"bandwidth of {port} must be 1 to {width} bytes per cycle, not {rate}")
            ports[port] = PortSettings(width, wait, rate)
        if stall_seed is None:
            return MemorySettings(ports)
        if not 0 <= stall_seed < 1 << 32:
            raise InputError(f"stall seed must be 0 to {(1 << 32) - 1}, not {stall_seed}")
        if not 0 <= stall_rate < 256:
            raise InputError(f"stall rate must be 0 to 255 of 256 cycles, not {stall_rate}")
        return MemorySettings(ports, stall_seed, stall_rate)

    def always_available(self, port: str) -> bool:
        """Whether the port accepts a request in every cycle."""
        p = self.ports[port]
        return self.stall_rate == 0 and p.bandwidth == p.width

    def available(self, port: str, cycles: np.ndarray) -> np.ndarray:
        """Whether the port accepts a request, for an array of cycle numbers (below 2^32)."""
        p = self.ports[port]
        cycles = cycles.astype(np.uint64)
        free = (cycles * np.uint64(p.bandwidth)) % np.uint64(p.width) < np.uint64(p.bandwidth)
        if self.stall_rate:
            fine = _mix(cycles, self.stall_seed, PORTS.index(port)) & np.uint64(255)
            coarse = _mix(cycles >> np.uint64(5), ~self.stall_seed, PORTS.index(port)) & np.uint64(255)
            free &= (fine >= self.stall_rate) & (coarse >= self.stall_rate // 4)
        return free

    def words(self) -> list[int]:
        """The settings as 32-bit words for a harness: per port latency, bandwidth, width, then seed, rate."""
        out: list[int] = []
        for port in PORTS:
            p = self.ports[port]
            out += [p.latency, p.bandwidth, p.width, 0]
        return [*out, self.stall_seed, self.stall_rate]


def _mix(cycles: np.ndarray, seed: int, port: int) -> np.ndarray:
    """A 32-bit hash of cycle, seed and port: two rounds of multiply and shift (after M. O'Neill, C. Wellons)."""
    mask = np.uint64(0xFFFFFFFF)
    key = np.uint64(((seed & 0xFFFFFFFF) * SEED_STEP + port * PORT_STEP) & 0xFFFFFFFF)
    h = (cycles ^ key) & mask
    h ^= h >> np.uint64(16)
    h = (h * np.uint64(MIX_1)) & mask
    h ^= h >> np.uint64(15)
    h = (h * np.uint64(MIX_2)) & mask
    return h ^ (h >> np.uint64(16))
