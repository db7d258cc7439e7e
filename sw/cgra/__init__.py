"""Graphs on the grid: mapping, configuration, verification, launches."""
