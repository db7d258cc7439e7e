"""Memory settings of a run: latency, bandwidth and stalls, set at run time.

`available` defines the stall pattern. The harness (SystemVerilog) implements the same pattern bit for bit.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hw import csr
from hw.config import MOST_LATENCY, PORTS, MachineConfig
from hw.errors import InputError

MIX_1, MIX_2 = 0x7FEB352D, 0x846CA68B
SEED_STEP, PORT_STEP = 0x9E3779B1, 0x85EBCA6B
_SHIFT_1, _SHIFT_2, _MULTIPLY_1, _MULTIPLY_2 = (np.uint32(x) for x in (16, 15, MIX_1, MIX_2))


@dataclass(frozen=True)
class PortSettings:
    """One port: latency in cycles (1 to 500), bandwidth in bytes per cycle (1 to the port's width)."""

    width: int
    latency: int
    bandwidth: int


@dataclass(frozen=True)
class MemorySettings:
    """All ports by name, and the stall pattern, which refuses `stall_rate` of 256 cycles (0: none).

    `base` is the memory location of the programs' address 0 (the register BASE).
    """

    ports: dict[str, PortSettings] = field(default_factory=dict)
    stall_seed: int = 0
    stall_rate: int = 0
    base: int = 0

    @property
    def bandwidth(self) -> dict[str, int]:
        """Bytes per cycle, by port."""
        return {name: port.bandwidth for name, port in self.ports.items()}

    def as_dict(self) -> dict[str, Any]:
        """The settings that a machine's description does not have: bandwidth by port, stalls."""
        return {"bandwidth": self.bandwidth, "stall_seed": self.stall_seed, "stall_rate": self.stall_rate}

    def behind(self, config: MachineConfig) -> MachineConfig:
        """The machine with these latencies as its own, for planning and estimates."""
        return config.replace(**{f"{name}_latency": port.latency for name, port in self.ports.items()})

    @staticmethod
    def of(
        config: MachineConfig,
        *,
        latency: dict[str, int] | None = None,
        bandwidth: dict[str, int] | None = None,
        stall_seed: int | None = None,
        stall_rate: int = 64,
        base: int = 0,
    ) -> MemorySettings:
        """The configuration's ports with some values replaced; a `stall_seed` turns stalls on.

        Raises `InputError` for an unknown port or a value out of range.
        """
        latency, bandwidth = latency or {}, bandwidth or {}
        if base not in range(0, 1 << 32, csr.BASE_STEP):
            raise InputError(f"base must be a multiple of {csr.BASE_STEP:,} below 2^32, not {base:#x}")
        for name in [*latency, *bandwidth]:
            if name not in PORTS:
                raise InputError(f"memory port must be one of {', '.join(PORTS)}, not {name!r}")
        ports = {}
        for port in PORTS:
            width = config.port_bytes(port)
            wait = latency.get(port, config.port_latency(port))
            rate = bandwidth.get(port, width)
            if not 1 <= wait <= MOST_LATENCY:
                raise InputError(f"latency of {port} must be 1 to {MOST_LATENCY} cycles, not {wait}")
            if not 1 <= rate <= width:
                raise InputError(f"bandwidth of {port} must be 1 to {width} bytes per cycle, not {rate}")
            ports[port] = PortSettings(width, wait, rate)
        if stall_seed is None:
            return MemorySettings(ports, base=base)
        if not 0 <= stall_seed < 1 << 32:
            raise InputError(f"stall seed must be 0 to {(1 << 32) - 1}, not {stall_seed}")
        if not 0 <= stall_rate < 256:
            raise InputError(f"stall rate must be 0 to 255 of 256 cycles, not {stall_rate}")
        return MemorySettings(ports, stall_seed, stall_rate, base)

    def available(self, port: str, cycles: np.ndarray) -> np.ndarray:
        """Whether the port accepts a request, for an array of cycle numbers (below 2^32).

        It accepts in cycle t if t*bandwidth mod width < bandwidth, and if the hashes of t and of t div 32
        (each 0 to 255) are at least `stall_rate` and a quarter of it.
        """
        p, number = self.ports[port], PORTS.index(port)
        cycles = cycles.astype(np.uint64)
        free = cycles * np.uint64(p.bandwidth) % np.uint64(p.width) < p.bandwidth
        if self.stall_rate:
            fine, coarse = cycles.astype(np.uint32), (cycles >> np.uint64(5)).astype(np.uint32)
            free &= _mix(fine ^ _key(self.stall_seed, number)) >= self.stall_rate
            free &= _mix(coarse ^ _key(~self.stall_seed, number)) >= self.stall_rate // 4
        return free

    def available_from(self, port: str, first: int, count: int) -> np.ndarray:
        """`available` for `count` cycles from `first` on, computed much faster.

        `count` must be a power of two, at least 32, and `first` a multiple of it.
        """
        p = self.ports[port]
        if self.stall_rate == 0:
            return _bandwidth(p.bandwidth, p.width, first % p.width, count).copy()
        # Numbers below `count` share no bit with `first`, so their sum is an XOR, like the mixing with the
        # key.
        mixed = _keyed(self.stall_seed, PORTS.index(port), count).copy()
        fine, coarse = mixed[:count], mixed[count:]
        fine ^= np.uint32(first & 0xFFFFFFFF)
        coarse ^= np.uint32(first >> 5 & 0xFFFFFFFF)
        low = _mix(mixed)
        free: np.ndarray = low[:count] >= self.stall_rate
        groups = free.reshape(-1, 32)
        groups &= (low[count:] >= self.stall_rate // 4).reshape(-1, 1)
        if p.bandwidth < p.width:
            free &= _bandwidth(p.bandwidth, p.width, first % p.width, count)
        return free

    def words(self) -> list[int]:
        """The settings as 32-bit words for a harness: each port's latency, bandwidth, width; seed; rate."""
        out: list[int] = []
        for port in PORTS:
            p = self.ports[port]
            out += [p.latency, p.bandwidth, p.width, 0]
        return [*out, self.stall_seed, self.stall_rate]


@functools.lru_cache(maxsize=64)
def _bandwidth(bandwidth: int, width: int, first: int, count: int) -> np.ndarray:
    """Which of `count` cycles from `first` on the bandwidth permits."""
    return np.arange(first, first + count) * bandwidth % width < bandwidth


@functools.lru_cache(maxsize=64)
def _keyed(seed: int, port: int, count: int) -> np.ndarray:
    """The numbers of `count` cycles, followed by those of their groups of 32, each XORed with its key."""
    cycles, groups = np.arange(count, dtype=np.uint32), np.arange(count >> 5, dtype=np.uint32)
    return np.concatenate([cycles ^ _key(seed, port), groups ^ _key(~seed, port)])


def _key(seed: int, port: int) -> np.uint32:
    return np.uint32(((seed & 0xFFFFFFFF) * SEED_STEP + port * PORT_STEP) & 0xFFFFFFFF)


def _mix(h: np.ndarray) -> np.ndarray:
    """The low bytes of a hash of 32-bit numbers: two rounds of multiply and shift.

    Overwrites its argument. After M. O'Neill, C. Wellons.
    """
    h ^= h >> _SHIFT_1
    h *= _MULTIPLY_1
    h ^= h >> _SHIFT_2
    h *= _MULTIPLY_2
    h ^= h >> _SHIFT_1
    return h.astype(np.uint8)
