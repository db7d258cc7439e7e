"""How a job in the harness ended: its verdict file, and the meaning of faults.

A separate module, so that the process under cocotb loads no more than it needs.
"""

from __future__ import annotations

from hw.config import PORTS

#: File with one line per job: number, fault, STATUS, seconds.
FILE = "verdicts"

#: Meaning of the harness's `fault`: how the machine broke the contract of its ports.
FAULTS = {
    1: "the machine did not take an answer of the memory",
    2: "the machine withdrew or changed a request before it was accepted",
    3: "the machine neither moved anything nor stopped, for longer than its watchdog allows",
}


def fault_text(fault: int) -> str:
    """A fault in words: the cause is in bits 7 to 0, one bit per port above."""
    text = FAULTS.get(fault & 0xFF, f"fault {fault:#x} of the harness")
    ports = [port for number, port in enumerate(PORTS) if fault >> 8 + number & 1]
    return f"{', '.join(ports)}: {text}" if ports else text
