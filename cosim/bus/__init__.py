"""Simulations of the tops with buses: AXI under cocotb with models of master and memory, UART on its pins."""
