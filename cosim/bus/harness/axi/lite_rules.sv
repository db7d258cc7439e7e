// The rules of AXI4-Lite at the pins of a slave with 32-bit data; cosim/bus/rules.py names the bits.

module lite_rules #(
    parameter int unsigned ADDRESS_BITS = 16
) (
    input logic aclk,
    input logic aresetn,
    input logic awvalid,
    input logic awready,
    input logic [ADDRESS_BITS-1:0] awaddr,
    input logic wvalid,
    input logic wready,
    input logic [31:0] wdata,
    input logic [3:0] wstrb,
    input logic bvalid,
    input logic bready,
    input logic [1:0] bresp,
    input logic arvalid,
    input logic arready,
    input logic [ADDRESS_BITS-1:0] araddr,
    input logic rvalid,
    input logic rready,
    input logic [31:0] rdata,
    input logic [1:0] rresp,
    output logic [17:0] broken,
    output logic [15:0] open
);
    logic [4:0] fell, changed, early;
    channel_rules #(ADDRESS_BITS) aw(aclk, aresetn, awvalid, awready, awaddr, fell[0], changed[0], early[0]);
    channel_rules #(36) w(aclk, aresetn, wvalid, wready, {wstrb, wdata}, fell[1], changed[1], early[1]);
    channel_rules #(2) b(aclk, aresetn, bvalid, bready, bresp, fell[2], changed[2], early[2]);
    channel_rules #(ADDRESS_BITS) ar(aclk, aresetn, arvalid, arready, araddr, fell[3], changed[3], early[3]);
    channel_rules #(34) r(aclk, aresetn, rvalid, rready, {rresp, rdata}, fell[4], changed[4], early[4]);

    logic armed;  // since the first reset; before it, nothing is checked
    // Accepted so far and not answered.
    logic [15:0] addresses, data, reads;
    assign open = (addresses > data ? addresses : data) + reads;

    initial {armed, broken, addresses, data, reads} = 0;
    always_ff @(posedge aclk) begin
        broken[14:0] <= broken[14:0] | {early, changed, fell};
        if (aresetn) begin
            if (bvalid && (addresses == 0 || data == 0)) broken[15] <= 1;
            if (rvalid && reads == 0) broken[16] <= 1;
            if (bvalid && bresp == 1 || rvalid && rresp == 1) broken[17] <= 1;
            addresses <= addresses + 16'(awvalid && awready) - 16'(bvalid && bready);
            data <= data + 16'(wvalid && wready) - 16'(bvalid && bready);
            reads <= reads + 16'(arvalid && arready) - 16'(rvalid && rready);
        end else begin
            {addresses, data, reads} <= 0;
        end
        if (!armed) broken <= 0;
        armed <= armed || !aresetn;
    end
endmodule
