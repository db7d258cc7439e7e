// A machine that is none: it exercises memory, host and recorder of the harness, for preset `test` without a grid.
//
// Registers: ENABLE says which ports make requests, WATCHDOG for how many cycles, WINDOW0_FIRST where loads
// start, WINDOW1_FIRST where stores start. While it runs, `trace_complete[p]` tells that port p accepted a
// request, `trace_signal[p]` that it answered; the pc of warp p holds the low 16 bits of the answer.

module heald (
    input clk, input rst,
    input host_request__valid, output host_request__ready, input [48:0] host_request__payload,
    output reg host_response__valid, input host_response__ready, output reg [31:0] host_response__payload,
    output load_a_request__valid, input load_a_request__ready, output [31:0] load_a_request__payload,
    input load_a_response__valid, output load_a_response__ready, input [64:0] load_a_response__payload,
    output load_b_request__valid, input load_b_request__ready, output [31:0] load_b_request__payload,
    input load_b_response__valid, output load_b_response__ready, input [64:0] load_b_response__payload,
    output load_c_request__valid, input load_c_request__ready, output [31:0] load_c_request__payload,
    input load_c_response__valid, output load_c_response__ready, input [64:0] load_c_response__payload,
    output store_request__valid, input store_request__ready, output [103:0] store_request__payload,
    input store_response__valid, output store_response__ready, input store_response__payload,
    output reg running, output reg done, output error, output reg [47:0] cycle,
    output [5:0] trace_issue, output [5:0] trace_void, output [5:0] trace_complete, output [5:0] trace_signal,
    output [95:0] trace_pc
);
    reg [31:0] enable, watchdog, load_first, store_first, late;
    reg [31:0] address_a, address_b, address_c, address_s;
    reg [3:0] pending;
    wire [15:0] offset = host_request__payload[15:0];
    wire [31:0] data = host_request__payload[47:16];
    wire write = host_request__valid && host_request__payload[48];
    wire asks = running && cycle < watchdog;

    assign host_request__ready = 1'b1;
    assign error = 1'b0;
    assign load_a_response__ready = 1'b1, load_b_response__ready = 1'b1, load_c_response__ready = 1'b1;
    assign store_response__ready = !enable[5];
    // A request that was presented stays after the time is over, until it is accepted.
    assign load_a_request__valid = (asks || pending[0]) && enable[0];
    assign load_b_request__valid = (asks || pending[1]) && enable[1];
    assign load_c_request__valid = (asks || pending[2]) && enable[2];
    assign store_request__valid = (asks || pending[3]) && enable[3];
    assign load_a_request__payload = address_a;
    assign load_b_request__payload = address_b;
    assign load_c_request__payload = address_c;
    assign store_request__payload = {cycle[7:0], 16'h0, cycle, address_s};

    wire [3:0] valid = {store_request__valid, load_c_request__valid, load_b_request__valid, load_a_request__valid};
    wire [3:0] ready = {store_request__ready, load_c_request__ready, load_b_request__ready, load_a_request__ready};
    assign trace_issue = 6'b0, trace_void = 6'b0;
    assign trace_complete = {2'b0, valid & ready};
    assign trace_signal = {2'b0, store_response__valid, load_c_response__valid, load_b_response__valid,
        load_a_response__valid};
    assign trace_pc = {32'b0, 15'b0, store_response__payload, load_c_response__payload[15:0],
        load_b_response__payload[15:0], load_a_response__payload[64], load_a_response__payload[14:0]};

    always @(posedge clk) begin
        host_response__valid <= host_request__valid;
        case (offset)
            16'h14: host_response__payload <= {30'b0, done, running};
            16'h24: host_response__payload <= cycle[31:0];
            16'h100: host_response__payload <= 32'h12345678;
            default: host_response__payload <= 0;
        endcase
        pending <= valid & ~ready;
        if (write && offset == 16'h1c) enable <= data;
        if (write && offset == 16'h20) watchdog <= data;
        if (write && offset == 16'h40) load_first <= data;
        if (write && offset == 16'h50) store_first <= data;
        if (running) begin
            cycle <= cycle + 1;
            late <= cycle < watchdog || valid != 0 ? 0 : late + 1;
            if (load_a_request__valid && load_a_request__ready) address_a <= address_a + 8;
            if (load_b_request__valid && load_b_request__ready) address_b <= address_b + 8;
            if (load_c_request__valid && load_c_request__ready) address_c <= address_c + 8;
            if (store_request__valid && store_request__ready) address_s <= address_s + 8;
            if (late == 1001) begin
                running <= enable[4];
                done <= !enable[4];
            end
        end
        if (write && offset == 16'h10 && data[1]) done <= 0;
        if (write && offset == 16'h10 && data[0]) begin
            running <= 1;
            cycle <= 0;
            late <= 0;
            address_a <= load_first;
            address_b <= load_first;
            address_c <= load_first;
            address_s <= store_first;
        end
        if (rst) begin
            running <= 0;
            done <= 0;
            host_response__valid <= 0;
            pending <= 0;
        end
    end
endmodule
