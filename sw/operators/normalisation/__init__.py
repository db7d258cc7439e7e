"""Layer and RMS normalisation."""
