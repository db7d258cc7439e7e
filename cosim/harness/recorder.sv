// Writes one record for every cycle in which an instruction issues, an operation completes or a signal fires.
//
// A record is a row of 32-bit words, first word first: cycle (two words), {void, issue}, {signal, complete},
// then the pcs of the warps, two to a word (cosim/observe.py reads them).

module recorder #(
    parameter int unsigned WARPS = 1
) (
    input logic clk,
    input logic load,
    input logic finish,
    input string directory,
    input logic active,
    input logic [47:0] cycle,
    input logic [WARPS-1:0] trace_issue,
    input logic [WARPS-1:0] trace_void,
    input logic [WARPS-1:0] trace_complete,
    input logic [WARPS-1:0] trace_signal,
    input logic [16*WARPS-1:0] trace_pc,
    output logic happens
);
    localparam int unsigned PC_BITS = 32 * ((WARPS + 1) / 2);

    int file;
    initial file = 0;

    wire [PC_BITS+127:0] record = {
        PC_BITS'(trace_pc),
        16'(trace_signal),
        16'(trace_complete),
        16'(trace_void),
        16'(trace_issue),
        16'b0,
        cycle
    };

    assign happens = (trace_issue | trace_complete | trace_signal) != 0;

    always_ff @(posedge clk) begin
        if (load) file = $fopen({directory, "/trace.bin"}, "wb");
        else if (finish) $fclose(file);
        else if (active && happens) $fwrite(file, "%u", record);
    end
endmodule
