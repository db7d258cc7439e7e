"""Exploration of machines: a space of configurations, models, and what each configuration makes of them.

- `results`: metrics, Pareto fronts, and what an exploration gives, as data, to and from JSON.
  `space`: SPACE.toml; `expression`: its formulas; `feasible`: which points satisfy the constraints, decided
  exactly.
- `evaluate`: one point, its resources and clock, by the compiler and the cycle model, and on the RTL.
- `study`: what is kept (optuna). `samplers`: which point comes next. `search`: who evaluates it, processes or
  a `cluster`, and the loop; `worker`: the side that evaluates.
- `command`: the whole, as `heald explore` calls it. `output`: what is written of it.
"""
