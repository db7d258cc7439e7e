"""The proof: cycle model, simulators, comparison."""
