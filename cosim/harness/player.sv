// The host: plays a script of register accesses, waits for the machine, reads back, asks for dumps.
//
// A script entry is {op[3:0], address[15:0], data[31:0]} (cosim/host.py):
//   0 end    1 write a register    2 read a register    3 wait until the machine is done
//   4 region to dump: first word   5 region to dump: number of words
// Responses of the machine after the wait go to the results, in order.

module player #(
    parameter int unsigned SCRIPT_WORDS = 1024
) (
    input logic clk,
    input logic rst,
    input logic start,
    input string directory,
    input logic machine_done,
    input logic idle,
    output logic load,
    output logic done,
    output logic [31:0] status,
    output logic request_valid,
    output logic [48:0] request,
    input logic request_ready,
    input logic response_valid,
    input logic [31:0] response,
    output logic dump,
    output logic [31:0] dump_first,
    output logic [31:0] dump_words,
    output logic finish
);
    localparam logic [3:0] WRITE = 1, READ = 2, WAIT = 3, DUMP_FIRST = 4, DUMP_WORDS = 5;

    logic [51:0] script[0:SCRIPT_WORDS-1];
    logic [31:0] index;
    logic [31:0] outstanding;
    logic active, results, first_result;
    int file;

    wire [51:0] entry = script[index];
    wire [3:0] op = entry[51:48];
    wire moves = request_valid && request_ready;

    assign request_valid = active && (op == WRITE || op == READ);
    assign request = {op == WRITE, entry[31:0], entry[47:32]};
    assign load = start && !active && !done && !rst;
    assign dump = active && op == DUMP_WORDS;
    assign dump_words = entry[31:0];
    assign finish = active && op == 0 && outstanding == 0 && idle;

    initial begin
        active = 1'b0;
        done = 1'b0;
        outstanding = '0;
        index = '0;
        file = 0;
        status = '0;
        dump_first = '0;
        results = 1'b0;
        first_result = 1'b0;
    end

    always_ff @(posedge clk) begin
        if (load) begin
            $readmemh({directory, "/script.hex"}, script);
            file = $fopen({directory, "/results.bin"}, "wb");
            active <= 1'b1;
            index <= '0;
            outstanding <= '0;
            results <= 1'b0;
            first_result <= 1'b1;
        end else begin
            outstanding <= outstanding + 32'(moves) - 32'(response_valid);
            if (moves) index <= index + 1;
            if (active && op == WAIT && outstanding == 0 && machine_done) begin
                index <= index + 1;
                results <= 1'b1;
            end
            if (active && op == DUMP_FIRST) dump_first <= entry[31:0];
            if (active && (op == DUMP_FIRST || op == DUMP_WORDS)) index <= index + 1;
            if (results && response_valid) begin
                $fwrite(file, "%u", response);
                if (first_result) status <= response;
                first_result <= 1'b0;
            end
            if (finish) begin
                $fclose(file);
                active <= 1'b0;
                done <= 1'b1;
            end
            if (!start) done <= 1'b0;
        end
    end
endmodule
