"""Exploration of machines: a space of configurations, models, and what each configuration makes of them.

- `results`: what an exploration gives, as data, to and from JSON. `space`: SPACE.toml; `expression`: its
  formulas; `feasible`: which points satisfy the constraints, decided exactly.
  `grids`: grids as values of a parameter; `metrics`: what can be an objective or a limit.
- `evaluate`: one point, by the compiler and the cycle model; `counts`: accesses and multiply-accumulates of
  a program; `energy`: what they take; `area`: resources and clock.
- `study`: what is kept (optuna). `samplers`: which point comes next. `executors`: who evaluates it, processes
  or a `cluster`; `worker`: its side of that. `search`: the loop. `pareto`: fronts and their volume.
  `confirm`: points on the RTL.
- `command`: the whole, as `jacquard explore` calls it. `output`: what is written of it.
"""
