"""Design-space exploration: evaluate models on the machines of a space, and find the best machines.

- `results`: metrics, Pareto fronts and all other results as data, to and from JSON. `space`: SPACE.toml;
  `expression`: its formulas; `feasible`: which points satisfy the constraints, decided exactly.
- `evaluate`: one point: its resources and clock, its cycles by compiler and cycle model, and its run on the
  RTL.
- `study`: the database (optuna). `samplers`: which point comes next. `search`: the loop, and the processes or
  `cluster` that evaluate points; `worker`: the side that evaluates.
- `command`: the whole exploration, as `heald explore` runs it.
"""
