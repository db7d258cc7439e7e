// A gated clock: it rises with `clk` if `enable` was 1 at the end of the previous cycle.
module clock_gate (
    input logic clk,
    input logic enable,
    output logic gated
);
    logic open;
    always_ff @(negedge clk) open <= enable;
    assign gated = clk & open;
endmodule
