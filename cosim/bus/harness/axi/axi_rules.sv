// The rules of AXI4 at the pins of a master that uses INCR bursts; cosim/bus/rules.py names the bits.
//
// W may come before its AW. Responses to one ID come in order, those to different IDs in any order and
// interleaved.

module axi_rules #(
    parameter int unsigned BYTES = 8,
    parameter int unsigned ID_BITS = 2
) (
    input logic aclk,
    input logic aresetn,
    input logic awvalid,
    input logic awready,
    input logic [ID_BITS-1:0] awid,
    input logic [31:0] awaddr,
    input logic [7:0] awlen,
    input logic [2:0] awsize,
    input logic [1:0] awburst,
    input logic wvalid,
    input logic wready,
    input logic [8*BYTES-1:0] wdata,
    input logic [BYTES-1:0] wstrb,
    input logic wlast,
    input logic bvalid,
    input logic bready,
    input logic [ID_BITS-1:0] bid,
    input logic [1:0] bresp,
    input logic arvalid,
    input logic arready,
    input logic [ID_BITS-1:0] arid,
    input logic [31:0] araddr,
    input logic [7:0] arlen,
    input logic [2:0] arsize,
    input logic [1:0] arburst,
    input logic rvalid,
    input logic rready,
    input logic [ID_BITS-1:0] rid,
    input logic [8*BYTES-1:0] rdata,
    input logic [1:0] rresp,
    input logic rlast,
    output logic [24:0] broken,
    output logic [31:0] open,
    output logic [31:0] transfers
);
    localparam int unsigned IDS = 1 << ID_BITS;
    localparam int unsigned ADDRESS = ID_BITS + 32 + 8 + 3 + 2;

    logic [4:0] fell, changed, early;
    channel_rules #(ADDRESS) aw(
        aclk, aresetn, awvalid, awready, {awid, awaddr, awlen, awsize, awburst}, fell[0], changed[0], early[0]
    );
    channel_rules #(9 * BYTES + 1) w(
        aclk, aresetn, wvalid, wready, {wlast, wstrb, wdata}, fell[1], changed[1], early[1]
    );
    channel_rules #(ID_BITS + 2) b(aclk, aresetn, bvalid, bready, {bid, bresp}, fell[2], changed[2], early[2]);
    channel_rules #(ADDRESS) ar(
        aclk, aresetn, arvalid, arready, {arid, araddr, arlen, arsize, arburst}, fell[3], changed[3], early[3]
    );
    channel_rules #(ID_BITS + 8 * BYTES + 3) r(
        aclk, aresetn, rvalid, rready, {rid, rdata, rresp, rlast}, fell[4], changed[4], early[4]
    );

    // INCR, no wider than the bus, at a multiple of the transfer's size.
    function automatic logic shaped(input logic [31:0] address, input logic [2:0] size, input logic [1:0] burst);
        return burst == 1 && (1 << size) <= BYTES && (address & ((1 << size) - 1)) == 0;
    endfunction

    function automatic logic crosses(input logic [31:0] address, input logic [7:0] len, input logic [2:0] size);
        return 32'(address[11:0]) + ((32'(len) + 1) << size) > 4096;
    endfunction

    // Bytes of the bus that transfer `beat` of a burst may write.
    function automatic logic [BYTES-1:0] lanes(
        input logic [31:0] address, input logic [2:0] size, input int unsigned beat
    );
        logic [31:0] first;
        first = (address + (beat << size)) & (BYTES - 1);
        return BYTES'(((BYTES + 1)'(1) << (1 << size)) - 1) << first;
    endfunction

    typedef struct packed {
        logic [ID_BITS-1:0] id;
        logic [31:0] address;
        logic [7:0] len;
        logic [2:0] size;
    } request_t;
    typedef struct packed {
        logic last;
        logic [BYTES-1:0] strobe;
    } beat_t;

    logic armed;  // since the first reset; before it, nothing is checked
    request_t writes[$];  // accepted at AW, with transfers still to come
    beat_t beats[$];  // accepted at W, with their AW still to come
    int unsigned beat;  // transfers of writes[0] so far
    int unsigned owed[IDS];  // complete writes without a response
    logic [7:0] reads[IDS][$];  // AxLEN of reads in progress
    int unsigned answered[IDS];  // transfers of the oldest read so far

    task automatic take_beats();
        while (writes.size() != 0 && beats.size() != 0) begin
            if ((beats[0].strobe & ~lanes(writes[0].address, writes[0].size, beat)) != 0) broken[20] <= 1;
            if (beats[0].last != (beat == 32'(writes[0].len))) broken[19] <= 1;
            if (beat == 32'(writes[0].len)) begin
                owed[writes[0].id] += 1;
                void'(writes.pop_front());
                beat = 0;
            end else begin
                beat += 1;
            end
            void'(beats.pop_front());
        end
    endtask

    always @(posedge aclk) begin
        broken[14:0] <= broken[14:0] | {early, changed, fell};
        if (!aresetn) begin
            writes.delete();
            beats.delete();
            beat = 0;
            for (int unsigned i = 0; i < IDS; i++) begin
                owed[i] = 0;
                reads[i].delete();
                answered[i] = 0;
            end
        end else begin
            // Responses first: they must answer what was accepted in an earlier cycle.
            if (bvalid) begin
                if (owed[bid] == 0) broken[21] <= 1;
                else if (bready) owed[bid] -= 1;
            end
            if (rvalid) begin
                if (reads[rid].size() == 0) broken[22] <= 1;
                else begin
                    if (rlast != (answered[rid] == 32'(reads[rid][0]))) broken[23] <= 1;
                    if (rready) begin
                        if (answered[rid] == 32'(reads[rid][0])) begin
                            void'(reads[rid].pop_front());
                            answered[rid] = 0;
                        end else begin
                            answered[rid] += 1;
                        end
                    end
                end
            end
            if (bvalid && bresp == 1 || rvalid && rresp == 1) broken[24] <= 1;
            if (awvalid && !shaped(awaddr, awsize, awburst)) broken[15] <= 1;
            if (awvalid && crosses(awaddr, awlen, awsize)) broken[16] <= 1;
            if (arvalid && !shaped(araddr, arsize, arburst)) broken[17] <= 1;
            if (arvalid && crosses(araddr, arlen, arsize)) broken[18] <= 1;
            if (awvalid && awready) writes.push_back('{awid, awaddr, awlen, awsize});
            if (wvalid && wready) beats.push_back('{wlast, wstrb});
            take_beats();
            if (arvalid && arready) reads[arid].push_back(arlen);
            transfers <= transfers + 32'(wvalid && wready) + 32'(rvalid && rready);
        end
        if (!armed) broken <= 0;
        armed <= armed || !aresetn;
        open = 32'(writes.size() + beats.size());
        for (int unsigned i = 0; i < IDS; i++) open += owed[i] + 32'(reads[i].size());
    end

    initial begin
        armed = 0;
        broken = 0;
        transfers = 0;
    end
endmodule
