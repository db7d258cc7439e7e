"""The event-driven cycle model: what a machine does with a job, and when, without stepping cycles.

`predict(config, job)` executes the programs of all warps and computes the cycle of every issue, completion
and signal, of everything that the grid stores, the counters, and the error if the job provokes one. It is
written from docs/machine.md and docs/cgra.md alone, so that agreement with the RTL proves both.

- `program`: words to compact tuples. `warp`: the sequencer, which runs ahead to whatever may hold it.
- `sharing`: channels, and which of them and of the engines a warp uses alone, so that it need not stop there.
- `memory_port`: the n-th cycle in which a port accepts a request. `rows`: beats of strided rows.
- `loader`, `gemm`: schedules in closed form, final as soon as an operation issues. `patches`: the steps of
  loads that form patches of a convolution.
- `storer`: a schedule that is revised when a later product reads the bank a store reads.
- `grid`: launches, followed as far as nothing can change any more. `grid_loading`: configurations out of the
  scratchpad. `grid_steps`: what their steps access, and how long. `grid_conflicts`: when storer and array
  read. `data`: contents of memory and buffers, which only programs that use the grid need.
- `checks`: operands, buffers, windows. `machine`: the heap of events, channels, errors, counters.

Not predicted: `bus` errors (memory answers them), and a watchdog that is shorter than a regular pause;
`watchdog` stands for a job in which nothing can happen any more. What the grid reads is predicted for
programs that order operations on the same bytes.
"""

from cosim.models.cycle.machine import predict

__all__ = ["predict"]
