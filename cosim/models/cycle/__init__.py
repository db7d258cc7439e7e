"""The event-driven cycle model: predicts what a machine does with a job, and when, without stepping cycles.

`predict(config, job)` executes the programs of all warps. It computes the cycle of every issue, completion,
signal and store of the CGRA, the counters, and the error if the job provokes one. The model is written from
docs/machine.md and docs/cgra.md alone, so its agreement with the RTL is evidence for both.

`machine` processes the events. Warps run ahead to the next instruction that may be held (`warp`). The
schedules of loaders and array are final as soon as an operation issues (`loader`, `gemm`). Stores are revised
when a later GEMM reads their bank (`storer`). Launches are followed only as far as nothing can change any
more (`grid`).

Two errors are not predicted: `bus` errors (the memory answers them), and a watchdog shorter than a regular
pause. `watchdog` stands for a job in which nothing can happen any more. Values that the CGRA reads are
predicted for programs that order operations on the same bytes.
"""

from cosim.models.cycle.machine import predict

__all__ = ["predict"]
