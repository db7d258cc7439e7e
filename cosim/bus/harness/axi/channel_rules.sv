// Rules of every AXI channel: VALID and the payload are stable until READY; no VALID in reset.
//
// Each output is 1 in the cycle in which its rule is broken. VALID must be low from the second cycle of a
// reset to the first edge after it, since the reset is synchronous.

module channel_rules #(
    parameter int unsigned WIDTH = 1
) (
    input logic aclk,
    input logic aresetn,
    input logic valid,
    input logic ready,
    input logic [WIDTH-1:0] payload,
    output logic fell,
    output logic changed,
    output logic early
);
    logic waiting, was_reset;
    logic [WIDTH-1:0] held;

    assign fell = aresetn && waiting && !valid;
    assign changed = aresetn && waiting && valid && payload != held;
    assign early = was_reset && valid;

    initial {waiting, was_reset} = 0;
    always_ff @(posedge aclk) begin
        waiting <= aresetn && valid && !ready;
        was_reset <= !aresetn;
        held <= payload;
    end
endmodule
