"""Constraint files: the clock for ECP5 (LPF) and for Xilinx (XDC)."""

from __future__ import annotations


def lpf(clock: str, frequency: float) -> str:
    """What an LPF file says about a clock port of `frequency` MHz; pins are the board's."""
    return (
        "# The clock. Add LOCATE and IOBUF lines for the pins of your board.\n"
        f'FREQUENCY PORT "{clock}" {frequency:g} MHZ;\n'
    )


def xdc(clock: str, frequency: float) -> str:
    """What an XDC file says about a clock port of `frequency` MHz."""
    return (
        "# The clock. Add PACKAGE_PIN and IOSTANDARD properties for the pins of your board.\n"
        f"create_clock -name {clock} -period {1000 / frequency:.3f} [get_ports {clock}]\n"
    )
