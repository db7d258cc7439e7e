// Everything around the machine: memory with its four ports, host, event recorder.
//
// The driver of `clk` raises `start` with the number of a job, waits for `done`, and lowers `start`. A job is
// read from the files in <directory>/<job>, where `+directory=` names the directory. `fault` is not 0 if the
// machine breaks the contract of its ports: cause [7:0] (cosim/verdict.py), ports [11:8]. With HEALD_GRID,
// the machine has a CGRA with STORES store ports.

module harness #(
    parameter int unsigned WARPS = 1,
    parameter int unsigned LOAD_A = 4,
    parameter int unsigned LOAD_B = 4,
    parameter int unsigned LOAD_C = 4,
    parameter int unsigned STORE = 4,
    parameter int unsigned STORES = 1,
    parameter int unsigned SCRIPT_WORDS = 1024,
    parameter int unsigned MEMORY_WORDS = 1 << 30
) (
    input logic clk,
    input logic start,
    input logic [31:0] job,
    output logic done,
    output logic [31:0] fault,
    output logic [31:0] status
);
    localparam int unsigned FAULT_REFUSED = 1, FAULT_UNSTABLE = 2, FAULT_HANG = 3;

    string root;
    string directory;
    logic [2:0] boot;
    wire rst = boot != 3'd7;

    initial begin
        boot = '0;
        fault = '0;
        if (!$value$plusargs("directory=%s", root)) root = ".";
    end

    // Built once per job: a continuous expression would be evaluated in every cycle.
    logic started;
    initial started = 1'b0;
    always_ff @(posedge clk) begin
        started <= start;
        if (start && !started) directory <= $sformatf("%s/%0d", root, job);
    end

    // Settings of the run: the words of `MemorySettings.words`, then the limit of quiet cycles.
    logic [31:0] settings[0:18];
    initial for (int i = 0; i < 19; i++) settings[i] = '0;

    wire running, machine_done, machine_error;
    wire [47:0] cycle;
    wire [WARPS-1:0] trace_issue, trace_void, trace_complete, trace_signal;
    wire [16*WARPS-1:0] trace_pc;
    wire [STORES-1:0] trace_output;
    wire [32*STORES-1:0] trace_output_address, trace_output_value;
`ifndef HEALD_GRID
    assign trace_output = '0;
    assign trace_output_address = '0;
    assign trace_output_value = '0;
`endif

    wire host_request_valid, host_request_ready, host_response_valid;
    wire [48:0] host_request;
    wire [31:0] host_response;
    wire a_valid, a_ready, a_accepted, a_due, a_taken, a_idle, a_unstable;
    wire b_valid, b_ready, b_accepted, b_due, b_taken, b_idle, b_unstable;
    wire c_valid, c_ready, c_accepted, c_due, c_taken, c_idle, c_unstable;
    wire s_valid, s_ready, s_accepted, s_due, s_taken, s_idle, s_unstable;
    wire [31:0] a_address, b_address, c_address, a_due_address, b_due_address, c_due_address, s_due_address;
    wire [8*LOAD_A:0] a_answer;
    wire [8*LOAD_B:0] b_answer;
    wire [8*LOAD_C:0] c_answer;
    wire [9*STORE+31:0] s_request;
    wire s_answer;
    wire load, dump, finish, happens;
    wire [31:0] dump_first, dump_words;

    heald machine (
        .clk,
        .rst,
        .host_request__valid(host_request_valid),
        .host_request__ready(host_request_ready),
        .host_request__payload(host_request),
        .host_response__valid(host_response_valid),
        .host_response__ready(1'b1),
        .host_response__payload(host_response),
        .load_a_request__valid(a_valid),
        .load_a_request__ready(a_ready),
        .load_a_request__payload(a_address),
        .load_a_response__valid(a_due),
        .load_a_response__ready(a_taken),
        .load_a_response__payload(a_answer),
        .load_b_request__valid(b_valid),
        .load_b_request__ready(b_ready),
        .load_b_request__payload(b_address),
        .load_b_response__valid(b_due),
        .load_b_response__ready(b_taken),
        .load_b_response__payload(b_answer),
        .load_c_request__valid(c_valid),
        .load_c_request__ready(c_ready),
        .load_c_request__payload(c_address),
        .load_c_response__valid(c_due),
        .load_c_response__ready(c_taken),
        .load_c_response__payload(c_answer),
        .store_request__valid(s_valid),
        .store_request__ready(s_ready),
        .store_request__payload(s_request),
        .store_response__valid(s_due),
        .store_response__ready(s_taken),
        .store_response__payload(s_answer),
        .running,
        .done(machine_done),
        .error(machine_error),
        .cycle,
        .trace_issue,
        .trace_void,
        .trace_complete,
        .trace_signal,
`ifdef HEALD_GRID
        .trace_output,
        .trace_output_address,
        .trace_output_value,
`endif
        .trace_pc
    );

    memory_port #(.PORT(0), .WIDTH(LOAD_A)) port_a (
        .clk, .rst, .running, .cycle,
        .latency(settings[0]), .bandwidth(settings[1]), .seed(settings[16]), .rate(settings[17]),
        .valid(a_valid), .address(a_address), .ready(a_ready), .accepted(a_accepted),
        .due(a_due), .due_address(a_due_address), .idle(a_idle), .unstable(a_unstable)
    );
    memory_port #(.PORT(1), .WIDTH(LOAD_B)) port_b (
        .clk, .rst, .running, .cycle,
        .latency(settings[4]), .bandwidth(settings[5]), .seed(settings[16]), .rate(settings[17]),
        .valid(b_valid), .address(b_address), .ready(b_ready), .accepted(b_accepted),
        .due(b_due), .due_address(b_due_address), .idle(b_idle), .unstable(b_unstable)
    );
    memory_port #(.PORT(2), .WIDTH(LOAD_C)) port_c (
        .clk, .rst, .running, .cycle,
        .latency(settings[8]), .bandwidth(settings[9]), .seed(settings[16]), .rate(settings[17]),
        .valid(c_valid), .address(c_address), .ready(c_ready), .accepted(c_accepted),
        .due(c_due), .due_address(c_due_address), .idle(c_idle), .unstable(c_unstable)
    );
    memory_port #(.PORT(3), .WIDTH(STORE)) port_store (
        .clk, .rst, .running, .cycle,
        .latency(settings[12]), .bandwidth(settings[13]), .seed(settings[16]), .rate(settings[17]),
        .valid(s_valid), .address(s_request[31:0]), .ready(s_ready), .accepted(s_accepted),
        .due(s_due), .due_address(s_due_address), .idle(s_idle), .unstable(s_unstable)
    );

    memory #(.WORDS(MEMORY_WORDS), .LOAD_A(LOAD_A), .LOAD_B(LOAD_B), .LOAD_C(LOAD_C), .STORE(STORE)) store (
        .clk, .load, .dump, .dump_first, .dump_words, .finish, .directory,
        .a_due, .a_address(a_due_address), .a_answer,
        .b_due, .b_address(b_due_address), .b_answer,
        .c_due, .c_address(c_due_address), .c_answer,
        .store_accepted(s_accepted), .store_address(s_request[31:0]),
        .store_data(s_request[32+:8*STORE]), .store_strobe(s_request[32+8*STORE+:STORE]),
        .store_due(s_due), .store_due_address(s_due_address), .store_answer(s_answer)
    );

    player #(.SCRIPT_WORDS(SCRIPT_WORDS)) host (
        .clk, .rst, .start(start && started), .directory, .machine_done,
        .idle(a_idle && b_idle && c_idle && s_idle),
        .load, .done(host_done), .status,
        .request_valid(host_request_valid), .request(host_request), .request_ready(host_request_ready),
        .response_valid(host_response_valid), .response(host_response),
        .dump, .dump_first, .dump_words, .finish
    );

    recorder #(.WARPS(WARPS), .STORES(STORES)) recorder (
        .clk, .load, .finish, .directory, .active(!rst), .cycle,
        .trace_issue, .trace_void, .trace_complete, .trace_signal, .trace_pc,
        .trace_output, .trace_output_address, .trace_output_value, .happens
    );

    // A working machine moves something now and then: an event, a beat, a host access. One that does not, for
    // longer than its watchdog allows, would keep a run from ending.
    logic [31:0] quiet;
    wire host_done;
    assign done = host_done || fault != 0;
    wire [3:0] refused = {s_due && !s_taken, c_due && !c_taken, b_due && !b_taken, a_due && !a_taken};
    wire [3:0] unstable = {s_unstable, c_unstable, b_unstable, a_unstable};
    wire moves = happens || trace_output != 0 || a_accepted || b_accepted || c_accepted || s_accepted || a_due || b_due || c_due
        || s_due || (host_request_valid && host_request_ready) || host_response_valid;

    always_ff @(posedge clk) begin
        if (rst) boot <= boot + 1;
        if (load) begin
            $readmemh({directory, "/settings.hex"}, settings);
            fault <= '0;
            quiet <= '0;
        end else begin
            quiet <= (moves || !start || done) ? '0 : quiet + 1;
            if (fault == 0) begin
                if (refused != 0) fault <= {20'b0, refused, 8'(FAULT_REFUSED)};
                else if (unstable != 0 && !rst) fault <= {20'b0, unstable, 8'(FAULT_UNSTABLE)};
                else if (settings[18] != 0 && quiet > settings[18]) fault <= FAULT_HANG;
            end
        end
    end
endmodule
