"""What a machine does, without its RTL: results, cycles."""
