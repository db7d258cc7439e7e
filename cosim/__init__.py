"""Co-simulation: the cycle model, simulators of the RTL, and their comparison."""
