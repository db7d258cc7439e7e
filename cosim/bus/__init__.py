"""Simulations of the tops with buses: AXI under cocotb with models of host and memory, UART on its pins."""
