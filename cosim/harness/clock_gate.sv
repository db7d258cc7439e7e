// A clock that rests: it rises with `clk` where `enable` was 1 at the end of the cycle before.
module clock_gate (
    input logic clk,
    input logic enable,
    output logic gated
);
    logic open;
    always_ff @(negedge clk) open <= enable;
    assign gated = clk & open;
endmodule
