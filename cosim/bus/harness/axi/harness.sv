// The top `heald_axi` with the checkers of both buses at its pins; cocotb drives all inputs.
//
// `plant` breaks a rule on the way from the machine to the pins (cosim/bus/rules.py, `PLANTS`), to prove that
// the checkers notice; 0 changes nothing.

module harness #(
    parameter int unsigned BYTES = 8,
    parameter int unsigned ID_BITS = 2,
    parameter int unsigned ADDRESS_BITS = 16
) (
    input  logic aclk,
    input  logic aresetn,
    input  logic [3:0] plant,
    output logic irq,
    output logic [31:0] cycles,
    output logic [24:0] axi_broken,
    output logic [17:0] lite_broken,
    output logic [31:0] axi_open,
    output logic [15:0] lite_open,
    output logic [31:0] transfers,
    input  logic s_axil_awvalid,
    output logic s_axil_awready,
    input  logic [ADDRESS_BITS-1:0] s_axil_awaddr,
    input  logic [2:0] s_axil_awprot,
    input  logic s_axil_wvalid,
    output logic s_axil_wready,
    input  logic [31:0] s_axil_wdata,
    input  logic [3:0] s_axil_wstrb,
    output logic s_axil_bvalid,
    input  logic s_axil_bready,
    output logic [1:0] s_axil_bresp,
    input  logic s_axil_arvalid,
    output logic s_axil_arready,
    input  logic [ADDRESS_BITS-1:0] s_axil_araddr,
    input  logic [2:0] s_axil_arprot,
    output logic s_axil_rvalid,
    input  logic s_axil_rready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0] s_axil_rresp,
    output logic m_axi_awvalid,
    input  logic m_axi_awready,
    output logic [ID_BITS-1:0] m_axi_awid,
    output logic [31:0] m_axi_awaddr,
    output logic [7:0] m_axi_awlen,
    output logic [2:0] m_axi_awsize,
    output logic [1:0] m_axi_awburst,
    output logic [2:0] m_axi_awprot,
    output logic [3:0] m_axi_awcache,
    output logic m_axi_wvalid,
    input  logic m_axi_wready,
    output logic [8*BYTES-1:0] m_axi_wdata,
    output logic [BYTES-1:0] m_axi_wstrb,
    output logic m_axi_wlast,
    input  logic m_axi_bvalid,
    output logic m_axi_bready,
    input  logic [ID_BITS-1:0] m_axi_bid,
    input  logic [1:0] m_axi_bresp,
    output logic m_axi_arvalid,
    input  logic m_axi_arready,
    output logic [ID_BITS-1:0] m_axi_arid,
    output logic [31:0] m_axi_araddr,
    output logic [7:0] m_axi_arlen,
    output logic [2:0] m_axi_arsize,
    output logic [1:0] m_axi_arburst,
    output logic [2:0] m_axi_arprot,
    output logic [3:0] m_axi_arcache,
    input  logic m_axi_rvalid,
    output logic m_axi_rready,
    input  logic [ID_BITS-1:0] m_axi_rid,
    input  logic [8*BYTES-1:0] m_axi_rdata,
    input  logic [1:0] m_axi_rresp,
    input  logic m_axi_rlast
);
    initial cycles = 0;
    always_ff @(posedge aclk) cycles <= cycles + 1;

    // The machine's outputs; the pins differ from them only for a planted fault.
    logic awvalid, arvalid, bvalid, wlast;
    logic [31:0] araddr, read_word;
    logic [1:0] arburst;
    logic [8*BYTES-1:0] wdata;
    logic blink;
    initial blink = 0;
    always_ff @(posedge aclk) blink <= !blink;

    assign m_axi_awvalid = awvalid && !(plant == 1 && blink);
    assign m_axi_arvalid = arvalid && !(plant == 2 && blink);
    assign m_axi_wdata = wdata ^ (8 * BYTES)'(plant == 3 && !m_axi_wready);
    assign m_axi_wlast = wlast ^ (plant == 4);
    assign m_axi_arburst = plant == 5 ? 2'd0 : arburst;
    assign m_axi_araddr = plant == 6 ? araddr | (32'd4096 - (32'd1 << m_axi_arsize)) : araddr;
    assign s_axil_bvalid = bvalid && !(plant == 7 && blink);
    assign s_axil_rdata = read_word ^ 32'(plant == 8 && !s_axil_rready);

    heald_axi machine(
        .m_axi_awvalid(awvalid),
        .m_axi_awready(m_axi_awready && m_axi_awvalid),
        .m_axi_arvalid(arvalid),
        .m_axi_arready(m_axi_arready && m_axi_arvalid),
        .m_axi_wdata(wdata),
        .m_axi_wlast(wlast),
        .m_axi_araddr(araddr),
        .m_axi_arburst(arburst),
        .s_axil_bvalid(bvalid),
        .s_axil_bready(s_axil_bready && s_axil_bvalid),
        .s_axil_rdata(read_word),
        .*
    );

    axi_rules #(BYTES, ID_BITS) axi(
        .awvalid(m_axi_awvalid), .awready(m_axi_awready), .awid(m_axi_awid), .awaddr(m_axi_awaddr),
        .awlen(m_axi_awlen), .awsize(m_axi_awsize), .awburst(m_axi_awburst),
        .wvalid(m_axi_wvalid), .wready(m_axi_wready), .wdata(m_axi_wdata), .wstrb(m_axi_wstrb),
        .wlast(m_axi_wlast),
        .bvalid(m_axi_bvalid), .bready(m_axi_bready), .bid(m_axi_bid), .bresp(m_axi_bresp),
        .arvalid(m_axi_arvalid), .arready(m_axi_arready), .arid(m_axi_arid), .araddr(m_axi_araddr),
        .arlen(m_axi_arlen), .arsize(m_axi_arsize), .arburst(m_axi_arburst),
        .rvalid(m_axi_rvalid), .rready(m_axi_rready), .rid(m_axi_rid), .rdata(m_axi_rdata),
        .rresp(m_axi_rresp), .rlast(m_axi_rlast),
        .broken(axi_broken), .open(axi_open),
        .*
    );

    lite_rules #(ADDRESS_BITS) lite(
        .awvalid(s_axil_awvalid), .awready(s_axil_awready), .awaddr(s_axil_awaddr),
        .wvalid(s_axil_wvalid), .wready(s_axil_wready), .wdata(s_axil_wdata), .wstrb(s_axil_wstrb),
        .bvalid(s_axil_bvalid), .bready(s_axil_bready), .bresp(s_axil_bresp),
        .arvalid(s_axil_arvalid), .arready(s_axil_arready), .araddr(s_axil_araddr),
        .rvalid(s_axil_rvalid), .rready(s_axil_rready), .rdata(s_axil_rdata), .rresp(s_axil_rresp),
        .broken(lite_broken), .open(lite_open),
        .*
    );
endmodule
