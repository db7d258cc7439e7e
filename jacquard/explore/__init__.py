"""Exploration of machines: a space of configurations, models, and what each configuration makes of them.

- `results`: what an exploration gives, as data, to and from JSON. `space`: SPACE.toml; `expression`: its
  formulas; `feasible`: which points satisfy the constraints, decided exactly.
- `workload`: the models, loaded once. `evaluate`: one point, by the compiler and the cycle model; `counts`:
  accesses and multiply-accumulates of a program; `energy`: what they take; `area`: resources and clock.
- `study`: what is kept (optuna). `samplers`: which point comes next. `executors`: who evaluates it; `worker`:
  its side of that. `search`: the loop. `pareto`: fronts and their volume. `confirm`: points on the RTL.
- `command`: the whole, as `jacquard explore` calls it.
"""
