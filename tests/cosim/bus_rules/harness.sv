// The checkers of both buses with all pins as inputs.

module harness (
    input logic aclk,
    input logic aresetn,
    input logic awvalid, awready, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready,
    input logic [1:0] awid, bid, arid, rid,
    input logic [31:0] awaddr, araddr,
    input logic [7:0] awlen, arlen,
    input logic [2:0] awsize, arsize,
    input logic [1:0] awburst, arburst, bresp, rresp,
    input logic [63:0] wdata, rdata,
    input logic [7:0] wstrb,
    input logic wlast, rlast,
    output logic [24:0] axi_broken,
    output logic [17:0] lite_broken,
    output logic [31:0] axi_open,
    output logic [15:0] lite_open,
    output logic [31:0] transfers
);
    axi_rules #(8, 2) axi(.broken(axi_broken), .open(axi_open), .*);
    lite_rules #(16) lite(
        .awaddr(awaddr[15:0]), .araddr(araddr[15:0]), .wdata(wdata[31:0]), .wstrb(wstrb[3:0]),
        .rdata(rdata[31:0]), .broken(lite_broken), .open(lite_open), .*
    );
endmodule
