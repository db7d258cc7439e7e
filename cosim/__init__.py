"""Co-simulation: the cycle model, simulators of the RTL, and the comparison of the two."""
