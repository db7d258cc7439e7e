"""The AXI rules that are checked in every cycle, by bit (harness/axi/axi_rules.sv, lite_rules.sv)."""

from __future__ import annotations

_CHANNELS = ("AW", "W", "B", "AR", "R")
_COMMON = (
    *(f"{c}VALID must stay until {c}READY" for c in _CHANNELS),
    *(f"the payload of {c} must not change while {c}VALID waits for {c}READY" for c in _CHANNELS),
    *(f"{c}VALID must be 0 in reset and until the first edge after it" for c in _CHANNELS),
)
_EXCLUSIVE = "RRESP and BRESP must not be EXOKAY: nothing exclusive was asked for"

#: Bits of `axi_broken`.
AXI = (
    *_COMMON,
    "a write must be an INCR burst of transfers no wider than the bus, at a multiple of their size",
    "a write burst must not cross 4 KiB",
    "a read must be an INCR burst of transfers no wider than the bus, at a multiple of their size",
    "a read burst must not cross 4 KiB",
    "WLAST must be 1 in the last transfer of a burst and in no other",
    "WSTRB must be 0 for bytes that the transfer does not hold",
    "B must follow the last transfer of a write with its ID, once",
    "R must follow a read with its ID",
    "RLAST must be 1 in the last transfer of a burst and in no other",
    _EXCLUSIVE,
)
#: Bits of `lite_broken`.
LITE = (
    *_COMMON,
    "B must follow address and data of a write, once",
    "R must follow a read, once",
    _EXCLUSIVE,
)


def broken(axi: int, lite: int) -> list[str]:
    """Descriptions of the broken rules, those of the memory bus first."""
    return [
        f"{bus}: {text}"
        for bus, names, bits in (("m_axi", AXI, axi), ("s_axil", LITE, lite))
        for bit, text in enumerate(names)
        if bits >> bit & 1
    ]
