// The memory shared by all four ports: byte-addressed, little-endian, with 32-bit words. memory.cpp holds it.
//
// Addresses from 4 * WORDS on do not exist: they read as 0 and are answered with an error. A word written in
// cycle x is seen by every response from x + 1 on; a response carries the data of its own cycle.

import "DPI-C" function void memory_load(input string directory);
import "DPI-C" function void memory_read(
    input int unsigned word, input int unsigned words, input int unsigned version, output bit [1023:0] data
);
import "DPI-C" function void memory_write(
    input int unsigned word, input int unsigned words, input bit [1023:0] data, input bit [127:0] strobe
);
import "DPI-C" function void memory_dump(input int unsigned word, input int unsigned words);
import "DPI-C" function void memory_finish();

module memory #(
    parameter int unsigned WORDS = 1 << 30,
    parameter int unsigned LOAD_A = 4,
    parameter int unsigned LOAD_B = 4,
    parameter int unsigned LOAD_C = 4,
    parameter int unsigned STORE = 4
) (
    input logic clk,
    input logic load,
    input logic dump,
    input logic [31:0] dump_first,
    input logic [31:0] dump_words,
    input logic finish,
    input string directory,
    input logic a_due,
    input logic [31:0] a_address,
    output logic [8*LOAD_A:0] a_answer,
    input logic b_due,
    input logic [31:0] b_address,
    output logic [8*LOAD_B:0] b_answer,
    input logic c_due,
    input logic [31:0] c_address,
    output logic [8*LOAD_C:0] c_answer,
    input logic store_accepted,
    input logic [31:0] store_address,
    input logic [8*STORE-1:0] store_data,
    input logic [STORE-1:0] store_strobe,
    input logic store_due,
    input logic [31:0] store_due_address,
    output logic store_answer
);
    // Widest word of a port, in bits.
    localparam int WIDEST = 1024;

    logic [31:0] version;
    initial version = '0;

    function automatic logic beyond(input logic [31:0] address);
        return 64'(address) >= 64'(WORDS) * 4;
    endfunction

    bit [WIDEST-1:0] a_data;
    always_comb begin
        a_data = '0;
        if (a_due && !beyond(a_address)) memory_read(a_address >> 2, LOAD_A / 4, version, a_data);
    end
    assign a_answer = {a_due && beyond(a_address), a_data[8*LOAD_A-1:0]};

    bit [WIDEST-1:0] b_data;
    always_comb begin
        b_data = '0;
        if (b_due && !beyond(b_address)) memory_read(b_address >> 2, LOAD_B / 4, version, b_data);
    end
    assign b_answer = {b_due && beyond(b_address), b_data[8*LOAD_B-1:0]};

    bit [WIDEST-1:0] c_data;
    always_comb begin
        c_data = '0;
        if (c_due && !beyond(c_address)) memory_read(c_address >> 2, LOAD_C / 4, version, c_data);
    end
    assign c_answer = {c_due && beyond(c_address), c_data[8*LOAD_C-1:0]};

    assign store_answer = store_due && beyond(store_due_address);

    always_ff @(posedge clk) begin
        if (load) begin
            memory_load(directory);
            version <= version + 1;
        end else if (dump) begin
            memory_dump(dump_first, dump_words);
        end else if (finish) begin
            memory_finish();
        end else if (store_accepted && !beyond(store_address)) begin
            memory_write(store_address >> 2, STORE / 4, WIDEST'(store_data), 128'(store_strobe));
            version <= version + 1;
        end
    end
endmodule
