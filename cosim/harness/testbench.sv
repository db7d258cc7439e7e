// A machine with its own memories: plays the host of a compiled program, and checks its results.
//
// Plain SystemVerilog for any simulator. `+program=NAME` is the prefix of the program's file names:
//   NAME.script.hex    accesses of the host, {op[3:0], address[15:0], data[31:0]} (op 1 write, 2 read, 3 wait for
//                      the end, 4 and 5 first word and number of words of a region to check, 0 end)
//   NAME.memory.hex    initial memory; the rest is 0
//   NAME.results.hex   expected values of the reads after the wait
//   NAME.expected.hex  words of the regions, and NAME.mask.hex the bits of them to compare
// `+base=HEX` is the location of the program's address 0 in memory (the register BASE): a multiple of 4,096,
// by default 0. With `+unknown`, memory holds X where NAME.memory.hex gives nothing. X may be stored only
// where no tensor lies; handshakes, addresses, strobes and responses to the host must be known.

// Delays the requests of a port by the response time of its memory.
module testbench_line #(
    parameter LATENCY = 1
) (
    input wire clk,
    input wire valid,
    input wire [31:0] address,
    output wire due,
    output wire [31:0] due_address
);
    reg [33*(LATENCY+1)-1:0] line = 0;

    assign due = line[33*LATENCY-1];
    assign due_address = line[33*(LATENCY-1)+:32];

    always @(posedge clk) line <= {line[33*LATENCY-1:0], valid, address};
endmodule

module testbench;
    // @PARAMETERS@

    reg clk = 0, rst = 1;
    always #5 clk = ~clk;

    reg [63:0] script[0:SCRIPT-1];
    reg [31:0] memory[0:WORDS-1];
    reg [31:0] results[0:RESULTS-1];
    reg [31:0] expected[0:EXPECTED-1];
    reg [31:0] mask[0:EXPECTED-1];

    // The machine.

    reg host_valid = 0;
    reg [48:0] host_request = 0;
    wire host_ready, response_valid, running, done, failed;
    wire [31:0] response;
    wire a_valid, b_valid, c_valid, s_valid;
    wire [31:0] a_address, b_address, c_address;
    wire [WIDTH_STORE*9+31:0] s_request;
    wire a_due, b_due, c_due, s_due;
    wire [31:0] a_from, b_from, c_from, unused;
    reg [WIDTH_A*8-1:0] a_data = 0;
    reg [WIDTH_B*8-1:0] b_data = 0;
    reg [WIDTH_C*8-1:0] c_data = 0;

    heald machine (
        .clk(clk),
        .rst(rst),
        .host_request__valid(host_valid),
        .host_request__ready(host_ready),
        .host_request__payload(host_request),
        .host_response__valid(response_valid),
        .host_response__ready(1'b1),
        .host_response__payload(response),
        .load_a_request__valid(a_valid),
        .load_a_request__ready(1'b1),
        .load_a_request__payload(a_address),
        .load_a_response__valid(a_due),
        .load_a_response__ready(),
        .load_a_response__payload({1'b0, a_data}),
        .load_b_request__valid(b_valid),
        .load_b_request__ready(1'b1),
        .load_b_request__payload(b_address),
        .load_b_response__valid(b_due),
        .load_b_response__ready(),
        .load_b_response__payload({1'b0, b_data}),
        .load_c_request__valid(c_valid),
        .load_c_request__ready(1'b1),
        .load_c_request__payload(c_address),
        .load_c_response__valid(c_due),
        .load_c_response__ready(),
        .load_c_response__payload({1'b0, c_data}),
        .store_request__valid(s_valid),
        .store_request__ready(1'b1),
        .store_request__payload(s_request),
        .store_response__valid(s_due),
        .store_response__ready(),
        .store_response__payload(1'b0),
        .running(running),
        .done(done),
        .error(failed),
        .cycle()
    );

    // Memory behind the ports: it accepts a request in every cycle.

    testbench_line #(LATENCY_A) line_a (clk, a_valid && !rst, a_address, a_due, a_from);
    testbench_line #(LATENCY_B) line_b (clk, b_valid && !rst, b_address, b_due, b_from);
    testbench_line #(LATENCY_C) line_c (clk, c_valid && !rst, c_address, c_due, c_from);
    testbench_line #(LATENCY_STORE) line_s (clk, s_valid && !rst, 32'd0, s_due, unused);

    integer i, k;
    integer outside = 0;
    reg [31:0] base = 0;

    // The word at an address, counted from the program's first word.
    function [29:0] place_of(input [31:0] address);
        place_of = (address - base) / 4 - FIRST;
    endfunction

    function [31:0] word_at(input [31:0] address);
        word_at = place_of(address) < WORDS ? memory[place_of(address)] : 0;
    endfunction

    // A response carries the memory of its own cycle, so it is read in the middle of the cycle.
    always @(negedge clk) begin
        for (i = 0; i < WIDTH_A / 4; i = i + 1) a_data[32*i+:32] = word_at(a_from + 4 * i);
        for (i = 0; i < WIDTH_B / 4; i = i + 1) b_data[32*i+:32] = word_at(b_from + 4 * i);
        for (i = 0; i < WIDTH_C / 4; i = i + 1) c_data[32*i+:32] = word_at(c_from + 4 * i);
    end

    always @(posedge clk) begin
        if (s_valid && !rst) begin
            for (k = 0; k < WIDTH_STORE; k = k + 1) begin
                if (s_request[32+8*WIDTH_STORE+k]) begin
                    if (place_of(s_request[31:0] + k) < WORDS)
                        memory[place_of(s_request[31:0]+k)][8*(k%4)+:8] <= s_request[32+8*k+:8];
                    else outside = outside + 1;
                end
            end
        end
    end

    // Handshakes must always be known, payloads when valid. Stored words are compared.

    integer unknown = 0;

    always @(posedge clk) begin
        if (!rst && (^{host_ready, response_valid, running, done, failed, a_valid, b_valid, c_valid, s_valid} === 1'bx
            || (response_valid && ^response === 1'bx)
            || (a_valid && ^a_address === 1'bx) || (b_valid && ^b_address === 1'bx) || (c_valid && ^c_address === 1'bx)
            || (s_valid && ^{s_request[31:0], s_request[32+8*WIDTH_STORE+:WIDTH_STORE]} === 1'bx)))
            unknown = unknown + 1;
    end

    // The host.

    string folder;
    integer entry, result = 0, place = 0, word = 0, wrong = 0;
    reg [31:0] first = 0;
    reg [31:0] value;

    task tell(input [8*10-1:0] what, input [31:0] at, input [31:0] found, input [31:0] wanted);
        begin
            wrong = wrong + 1;
            if (wrong <= 10) $display("%0s %h: %h, expected %h", what, at, found, wanted);
        end
    endtask

    task access(input [3:0] op, input [47:0] what);
        begin
            host_request <= {op == 1, what[31:0], what[47:32]};
            host_valid <= 1;
            @(posedge clk);
            while (host_ready !== 1 && unknown == 0) @(posedge clk);
            host_valid <= 0;
            while (response_valid !== 1 && unknown == 0) @(posedge clk);
            value = response;
        end
    endtask

    initial begin
        if (!$value$plusargs("program=%s", folder)) folder = "program0";
        if (!$value$plusargs("base=%h", base)) base = 0;
        if (!$test$plusargs("unknown")) for (k = 0; k < WORDS; k = k + 1) memory[k] = 0;
        for (k = 0; k < SCRIPT; k = k + 1) script[k] = 0;
        $readmemh({folder, ".script.hex"}, script);
        $readmemh({folder, ".memory.hex"}, memory);
        $readmemh({folder, ".results.hex"}, results);
        $readmemh({folder, ".expected.hex"}, expected);
        $readmemh({folder, ".mask.hex"}, mask);
        for (k = 0; k < 8; k = k + 1) @(posedge clk);
        rst <= 0;
        for (entry = 0; script[entry][51:48] != 0; entry = entry + 1) begin
            case (script[entry][51:48])
                1:
                if (script[entry][47:32] == BASE_REGISTER)
                    access(1, {script[entry][47:32], script[entry][31:0] + base});
                else access(1, script[entry][47:0]);
                2: begin
                    access(2, script[entry][47:0]);
                    if (value !== results[result]) tell("register", script[entry][47:32], value, results[result]);
                    result = result + 1;
                end
                3: while (done !== 1 && unknown == 0) @(posedge clk);
                4: first = script[entry][31:0];
                5:
                for (word = 0; word < script[entry][31:0]; word = word + 1) begin
                    value = memory[first+word-FIRST];
                    if ((value & mask[place]) !== (expected[place] & mask[place]))
                        tell("word", 4 * (first + word), value & mask[place], expected[place] & mask[place]);
                    place = place + 1;
                end
                default: ;
            endcase
        end
        if (outside != 0) $display("%0d bytes were stored outside of the memory", outside);
        if (unknown != 0) $display("in %0d cycles something that the machine said was unknown", unknown);
        if (wrong == 0 && outside == 0 && unknown == 0 && result != 0) begin
            $display("PASS: %0d words of memory and %0d registers are as expected", place, result);
            $finish;
        end
        if (result == 0) $display("FAIL: nothing was checked, %0s.script.hex has no reads", folder);
        else $display("FAIL: %0d words or registers differ", wrong);
        $fatal(1);
    end
endmodule
