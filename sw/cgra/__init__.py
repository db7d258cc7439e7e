"""The CGRA mapper: mapping, configuration, verification and launches of loop graphs."""
