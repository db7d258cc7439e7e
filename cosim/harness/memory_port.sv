// One memory port: decides in which cycles it accepts a request, and when the response is due.
//
// The pattern is that of cosim/settings.py (`MemorySettings.available`), bit for bit. While the machine does
// not run, there is no pattern: requests still presented after an error stop are accepted at once. A request
// accepted in cycle x is answered in cycle x + latency, at most one per cycle, so a row of slots addressed by
// time holds all outstanding requests.

module memory_port #(
    parameter int unsigned PORT = 0,
    parameter int unsigned WIDTH = 4
) (
    input logic clk,
    input logic rst,
    input logic running,
    input logic [47:0] cycle,
    input logic [31:0] latency,
    input logic [31:0] bandwidth,
    input logic [31:0] seed,
    input logic [31:0] rate,
    input logic valid,
    input logic [31:0] address,
    output logic ready,
    output logic accepted,
    output logic due,
    output logic [31:0] due_address,
    output logic idle,
    output logic unstable
);
    function automatic logic [31:0] mix(input logic [31:0] value, input logic [31:0] stream);
        logic [31:0] h;
        h = value ^ (stream * 32'h9E3779B1 + 32'(PORT) * 32'h85EBCA6B);
        h = (h ^ (h >> 16)) * 32'h7FEB352D;
        h = (h ^ (h >> 15)) * 32'h846CA68B;
        return h ^ (h >> 16);
    endfunction

    // Widths are powers of two up to 128, so the low seven bits of the product give its remainder.
    wire [6:0] phase = (cycle[6:0] * bandwidth[6:0]) & 7'(WIDTH - 1);
    wire [31:0] coarse_cycle = 32'(cycle >> 5);

    always_comb begin
        ready = 1'b1;
        if (running) begin
            ready = {25'b0, phase} < bandwidth;
            if (rate != 0) begin
                if ((mix(cycle[31:0], seed) & 255) < rate) ready = 1'b0;
                if ((mix(coarse_cycle, ~seed) & 255) < rate >> 2) ready = 1'b0;
            end
        end
    end

    assign accepted = valid && ready;

    logic [32:0] line[0:1023];
    logic [9:0] now;
    logic [10:0] outstanding;
    logic held;
    logic [31:0] held_address;

    initial begin
        for (int i = 0; i < 1024; i++) line[i] = '0;
        now = '0;
        outstanding = '0;
        held = 1'b0;
    end

    assign due = line[now][32];
    assign due_address = line[now][31:0];
    assign idle = outstanding == 0 && !valid;
    // A stream's request must neither disappear nor change before it is accepted.
    assign unstable = held && (!valid || address != held_address);

    always_ff @(posedge clk) begin
        now <= now + 1;
        if (due) line[now] <= '0;
        if (rst) begin
            held <= 1'b0;
        end else begin
            if (accepted) line[10'(now + latency[9:0])] <= {1'b1, address};
            outstanding <= outstanding + 11'(accepted) - 11'(due);
            held <= valid && !ready;
            held_address <= address;
        end
    end
endmodule
