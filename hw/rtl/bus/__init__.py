"""Bus interfaces around the machine: AXI4, a UART bridge, board tops."""
