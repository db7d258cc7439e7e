"""From a machine to an FPGA: tops, synthesis, placement and routing, and the files that go with them."""
