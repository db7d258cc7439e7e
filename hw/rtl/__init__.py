"""The hardware in Amaranth: every module of the machine."""
