// Writes a record for every cycle in which an instruction issues, an operation completes or a signal fires.
//
// A record is a row of 32-bit words, first word first: cycle (two words), {void, issue}, {signal, complete},
// then the pcs of the warps, two per word (cosim/observe.py reads them). Every store of the CGRA has a record
// in another file: cycle (two words, with the port number in the upper half of the second), address, value.

module recorder #(
    parameter int unsigned WARPS = 1,
    parameter int unsigned STORES = 1
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
    input logic [STORES-1:0] trace_output,
    input logic [32*STORES-1:0] trace_output_address,
    input logic [32*STORES-1:0] trace_output_value,
    output logic happens
);
    localparam int unsigned PC_BITS = 32 * ((WARPS + 1) / 2);

    int file, stored;
    initial file = 0;
    initial stored = 0;

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
        if (load) begin
            file = $fopen({directory, "/trace.bin"}, "wb");
            stored = $fopen({directory, "/stored.bin"}, "wb");
        end else if (finish) begin
            $fclose(file);
            $fclose(stored);
        end else if (active) begin
            if (happens) $fwrite(file, "%u", record);
            for (int i = 0; i < STORES; i++)
                if (trace_output[i])
                    $fwrite(stored, "%u", {trace_output_value[32*i+:32], trace_output_address[32*i+:32], 16'(i), cycle});
        end
    end
endmodule
