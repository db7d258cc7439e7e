"""Models of a machine without its RTL: results and cycles."""
