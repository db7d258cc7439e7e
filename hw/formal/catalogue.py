"""All proofs, on small machines that reach every corner case quickly."""

from __future__ import annotations

from hw import fabric
from hw.config import ENGINES, MachineConfig
from hw.formal import (
    bus,
    channels,
    gemm,
    host,
    issue,
    lanes,
    loader,
    sequencer,
    signals,
    state,
    storer,
    streams,
)
from hw.formal.proof import Proof

#: The machine of the proofs, as small as the statements allow.
SMALL = MachineConfig(
    name="formal",
    rows=2,
    cols=2,
    buffer_a_bytes=64,
    buffer_b_bytes=64,
    acc_bytes=64,
    acc_banks=2,
    scratch_bytes=64,
    out_bytes=64,
    load_a_bytes=4,
    load_b_bytes=4,
    load_c_bytes=4,
    store_bytes=4,
    warps=3,
    registers=8,
    channels=3,
    channel_depth=8,
    imem_words=32,
    loop_depth=1,
    queue_depth=2,
    windows=2,
)

#: The same with a CGRA, without which no operation reads the parameters of launches.
WITH_CGRA = SMALL.replace(cgra=fabric.load("mesh2x2"))

PROOFS: dict[str, Proof] = {
    p.name: p
    for p in (
        channels.proof(SMALL),
        signals.proof(SMALL),
        sequencer.proof(SMALL),
        *state.proofs(SMALL),
        *host.proofs(SMALL.replace(warps=2, windows=1)),
        *storer.proofs(SMALL),
        *loader.proofs(SMALL, "load_a"),
        *loader.proofs(SMALL, "load_b"),
        *loader.proofs(SMALL, "load_c"),
        gemm.proof(SMALL),
        loader.patches_proof(SMALL.replace(windows=1)),
        streams.proof(),
        *lanes.proofs(),
        *bus.proofs(),
        *(issue.proof(WITH_CGRA if e == "cgra" else SMALL, e) for e in ENGINES),
        # SMALL covers the queue form with two registers; these cover one register and a memory.
        *(issue.proof(SMALL, "store", depth=d) for d in (1, 3, 4)),
    )
}
