// Signals that waves show beside the machine's own: its decoded events, and those of the cycle model.
//
// Bound into the harness if it is built for waves. `view.rtl` has the events that the machine traces,
// `view.model` those that the cycle model predicts. `differs` is 1 in cycles in which they differ, `diverged`
// from then on. Instructions are text (ASCII). Files of a job (cosim/wave_files.py), beside those of every
// run:
//   window.hex     first and last cycle to record, 64 bits each; last all ones: everything, including the host
//   text.hex       {engine[7:0], text} of the instructions, at warp * PROGRAM + pc
//   predicted.bin  predicted events in the recorder's format, first byte of a record the highest
// A job without them is recorded completely, or not at all if the run's waves have a window (+window).

// An engine: operations that begin and end in a cycle, the number in progress, and the current one.
module waves_engine (
    // verilator tracing_off
    input logic clk,
    input logic clear,
    input logic [255:0] text,
    // verilator tracing_on
    input logic issue,
    input logic complete
);
    logic [255:0] operation;
    logic [15:0] operations;
    // verilator tracing_off
    logic [255:0] waiting[$];

    initial operation = {32{" "}};
    initial operations = '0;

    always_ff @(posedge clk) begin
        if (clear) waiting = {};
        if (complete && waiting.size() != 0) void'(waiting.pop_front());
        if (issue) waiting.push_back(text);
        operations <= 16'(waiting.size());
        operation <= waiting.size() != 0 ? waiting[0] : {32{" "}};
    end
endmodule

// A warp: its events, and the instruction that issued last, in this cycle or before.
module waves_warp (
    // verilator tracing_off
    input logic clk,
    input logic clear,
    input logic [15:0] at,
    input logic [263:0] entry,
    output logic [7:0] issues,
    output logic [7:0] completes,
    output logic [255:0] text,
    // verilator tracing_on
    input logic issue,
    input logic void_issue,
    input logic complete,
    input logic signal
);
    wire [15:0] pc;
    wire [255:0] instruction;
    // verilator tracing_off
    localparam logic [7:0] NONE = 8'hFF;
    logic [15:0] last_pc;
    logic [255:0] last;
    // The engines of operations in progress, which complete in issue order.
    logic [7:0] engines[$];
    logic [7:0] next;

    initial last_pc = '0;
    initial last = {32{" "}};
    initial next = NONE;

    wire happens = issue || void_issue;
    assign pc = happens ? at : last_pc;
    assign instruction = happens ? entry[255:0] : last;
    assign text = instruction;
    assign issues = issue ? entry[263:256] : NONE;
    assign completes = complete ? next : NONE;

    always_ff @(posedge clk) begin
        if (clear) engines = {};
        if (complete && engines.size() != 0) void'(engines.pop_front());
        if (issues != NONE) engines.push_back(issues);
        next <= engines.size() != 0 ? engines[0] : NONE;
        last_pc <= clear ? '0 : pc;
        last <= clear ? {32{" "}} : instruction;
    end
endmodule

// All warps and engines, as seen by the machine's own trace or the model's.
module waves_events #(
    parameter int unsigned WARPS = 1
) (
    // verilator tracing_off
    input logic clk,
    input logic clear,
    input logic [WARPS-1:0] issue,
    input logic [WARPS-1:0] void_issue,
    input logic [WARPS-1:0] complete,
    input logic [WARPS-1:0] signal,
    input logic [16*WARPS-1:0] pc,
    input logic [264*WARPS-1:0] entries
);
    localparam int unsigned ENGINES = 6;
    wire [8*WARPS-1:0] issues, completes;
    wire [256*WARPS-1:0] instructions;
    logic [ENGINES-1:0] begins, ends;
    logic [256*ENGINES-1:0] texts;

    // In a cycle, at most one operation begins on an engine and one ends.
    always_comb begin
        begins = '0;
        ends = '0;
        texts = '0;
        for (int w = 0; w < WARPS; w++)
            for (int e = 0; e < ENGINES; e++) begin
                if (issues[8*w+:8] == 8'(e)) begins[e] = 1'b1;
                if (issues[8*w+:8] == 8'(e)) texts[256*e+:256] = instructions[256*w+:256];
                if (completes[8*w+:8] == 8'(e)) ends[e] = 1'b1;
            end
    end
    // verilator tracing_on

    waves_warp warp[WARPS-1:0] (
        .clk, .clear, .issue, .void_issue, .complete, .signal, .at(pc), .entry(entries),
        .issues, .completes, .text(instructions)
    );
    // In the order of hw.config.ENGINES.
    waves_engine load_a (.clk, .clear, .issue(begins[0]), .complete(ends[0]), .text(texts[0+:256]));
    waves_engine load_b (.clk, .clear, .issue(begins[1]), .complete(ends[1]), .text(texts[256+:256]));
    waves_engine load_c (.clk, .clear, .issue(begins[2]), .complete(ends[2]), .text(texts[512+:256]));
    waves_engine gemm (.clk, .clear, .issue(begins[3]), .complete(ends[3]), .text(texts[768+:256]));
    waves_engine cgra (.clk, .clear, .issue(begins[4]), .complete(ends[4]), .text(texts[1024+:256]));
    waves_engine store (.clk, .clear, .issue(begins[5]), .complete(ends[5]), .text(texts[1280+:256]));
endmodule

module waves #(
    parameter int unsigned WARPS = 1,
    parameter int unsigned PROGRAM = 512
) (
    input logic running,
    input logic [47:0] cycle,
    // verilator tracing_off
    input logic clk,
    input logic load,
    input string directory,
    input logic [WARPS-1:0] trace_issue,
    input logic [WARPS-1:0] trace_void,
    input logic [WARPS-1:0] trace_complete,
    input logic [WARPS-1:0] trace_signal,
    input logic [16*WARPS-1:0] trace_pc
);
    // verilator tracing_on
    // Whether model and RTL differ in this cycle, and whether they differed in any earlier one.
    wire differs;
    logic diverged;
    // verilator tracing_off
    localparam int unsigned PC_BITS = 32 * ((WARPS + 1) / 2), RECORD = PC_BITS + 128;

    import "DPI-C" function void waves_record(input bit on);

    // First and last cycle to record; all ones: everything, including the host's work.
    logic windowed;
    initial windowed = $test$plusargs("window") != 0;
    logic [63:0] window[0:1];
    wire recording = window[1] == '1 || (running && 64'(cycle) >= window[0] && 64'(cycle) <= window[1]);
    initial window[0] = $test$plusargs("window") != 0 ? '1 : '0;
    initial window[1] = $test$plusargs("window") != 0 ? '0 : '1;
    always_comb waves_record(recording);

    logic [263:0] text[0:WARPS*PROGRAM-1];
    logic [RECORD-1:0] record, buffer;
    logic more;
    int file;
    initial more = 1'b0;
    initial record = '0;
    initial for (int i = 0; i < WARPS * PROGRAM; i++) text[i] = {8'hFF, {32{" "}}};

    wire now = more && running && record[47:0] == cycle;
    wire [WARPS-1:0] issue = now ? record[64+:WARPS] : '0;
    wire [WARPS-1:0] void_issue = now ? record[80+:WARPS] : '0;
    wire [WARPS-1:0] complete = now ? record[96+:WARPS] : '0;
    wire [WARPS-1:0] signal = now ? record[112+:WARPS] : '0;
    wire [16*WARPS-1:0] pc = record[128+:16*WARPS];

    // The machine traces for every issue whether its predicate was false.
    wire [WARPS-1:0] real_issue = trace_issue & ~trace_void, real_void = trace_issue & trace_void;
    wire [264*WARPS-1:0] seen, expected;
    wire [WARPS-1:0] other;
    for (genvar w = 0; w < WARPS; w++) begin : at
        assign seen[264*w+:264] = text[w*PROGRAM+32'(trace_pc[16*w+:16])%PROGRAM];
        assign expected[264*w+:264] = text[w*PROGRAM+32'(pc[16*w+:16])%PROGRAM];
        assign other[w] = (issue[w] || void_issue[w]) && pc[16*w+:16] != trace_pc[16*w+:16];
    end

    logic predicted;
    initial predicted = 1'b0;
    initial diverged = 1'b0;
    assign differs = predicted && running && (other != '0 || {issue, void_issue, complete, signal}
        != {real_issue, real_void, trace_complete, trace_signal});

    // verilator tracing_on
    waves_events #(.WARPS(WARPS)) rtl (
        .clk, .clear(load), .issue(real_issue), .void_issue(real_void), .complete(trace_complete),
        .signal(trace_signal), .pc(trace_pc), .entries(seen)
    );
    waves_events #(.WARPS(WARPS)) model (
        .clk, .clear(load), .issue, .void_issue, .complete, .signal, .pc, .entries(expected)
    );

    always_ff @(posedge clk) begin
        if (load) begin
            file = $fopen({directory, "/predicted.bin"}, "rb");
            predicted <= file != 0;
            diverged <= 1'b0;
            more <= 1'b0;
            window[0] = windowed ? '1 : '0;
            window[1] = windowed ? '0 : '1;
            if (file != 0) begin
                more <= $fread(buffer, file) == RECORD / 8;
                record <= buffer;
                $readmemh({directory, "/window.hex"}, window);
                $readmemh({directory, "/text.hex"}, text);
            end
        end else begin
            if (now) begin
                more <= $fread(buffer, file) == RECORD / 8;
                record <= buffer;
            end
            if (differs) diverged <= 1'b1;
        end
    end
endmodule

bind harness waves #(.WARPS(WARPS), .PROGRAM(`HEALD_PROGRAM)) view (.*);
