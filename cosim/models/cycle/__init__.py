"""The event-driven cycle model: predicts what a machine does with a job, and when, without stepping cycles.

`predict(config, job)` executes the programs of all warps and computes the cycle of every issue, completion
and signal, of everything that the grid stores, the counters, and the error if the job provokes one. It is
written from docs/machine.md and docs/cgra.md alone, so that agreement with the RTL proves both.

`machine` plays the events: warps run ahead to whatever may hold them (`warp`), loaders and array have
schedules that are final as soon as an operation issues (`loader`, `gemm`), stores are revised when a later
product reads their bank (`storer`), and launches are followed as far as nothing can change any more (`grid`).

Not predicted: `bus` errors (memory answers them), and a watchdog that is shorter than a regular pause;
`watchdog` stands for a job in which nothing can happen any more. What the grid reads is predicted for
programs that order operations on the same bytes.
"""

from cosim.models.cycle.machine import predict

__all__ = ["predict"]
