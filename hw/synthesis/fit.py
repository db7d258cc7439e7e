"""Whether a machine fits a device: estimated before synthesis, and counted after it."""

from __future__ import annotations

from collections.abc import Iterable

from hw.config import MachineConfig
from hw.errors import InputError
from hw.synthesis.resources import DEVICES, NAMES, Device, Resources

#: Largest error of an estimate of resources, as a share of what synthesis finds. `python -m bench.area` fails
#: above it; block RAMs and multipliers are counted, and hardly ever wrong.
ESTIMATE_ERROR = {"luts": 0.25, "ffs": 0.25, "brams": 0.05, "dsps": 0.05}
#: Bytes of memory in a block RAM of 18 Kbit, whose ninth bits are not used.
_BLOCK_BYTES = 2048


def estimated_fit(config: MachineConfig, device: Device, memory_bytes: int = 0) -> str:
    """The share of a device that a machine takes by the area model, in a line, without synthesis.

    `memory_bytes` is the block RAM behind a UART. The line warns where the estimate exceeds the device.
    Raises `InputError` where it exceeds the device by more than `ESTIMATE_ERROR`.
    """
    from hw.area.model import estimate  # Amaranth takes half a second to import

    guess = estimate(config)
    needed = Resources(guess.luts, guess.ffs, guess.brams - -memory_bytes // _BLOCK_BYTES, guess.dsps)

    def over(device: Device, slack: float = 0) -> list[str]:
        return [
            name
            for name, error in ESTIMATE_ERROR.items()
            if getattr(needed, name) > getattr(device.holds, name) * (1 + slack * error)
        ]

    def used(names: Iterable[str]) -> str:
        kinds = [f"{getattr(needed, n):,} of {getattr(device.holds, n):,} {NAMES[n]}" for n in names]
        return ", ".join(kinds)

    if not over(device):
        return f"estimate for {config.name} on {device.name}: {used(NAMES)}"
    larger = [f"a larger device ({d.name})" for d in DEVICES.values() if not over(d)][:1]
    todo = " or ".join([*larger, "a smaller machine (fewer rows, cols or PEs)"])
    if sure := over(device, 1):
        raise InputError(
            f"{config.name} does not fit {device.name}: the estimate is {used(sure)}; take {todo}, "
            "or count exactly with --synth-only"
        )
    return (
        f"warning: {config.name} may not fit {device.name}: the estimate is {used(over(device))}, "
        f"and up to {max(ESTIMATE_ERROR[n] for n in over(device)):.0%} wrong; if it does not fit, take {todo}"
    )


def check_fit(needed: Resources, device: Device) -> None:
    """Raises `InputError` that lists every resource of which the device has too little."""
    short = [
        f"{getattr(needed, field):,} {name} (it has {getattr(device.holds, field):,})"
        for field, name in NAMES.items()
        if getattr(needed, field) > getattr(device.holds, field)
    ]
    if short:
        raise InputError(f"the design does not fit {device.name}: it needs {', '.join(short)}")
