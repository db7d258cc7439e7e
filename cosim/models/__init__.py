"""Models of a machine that need no RTL: its results and its cycles."""
