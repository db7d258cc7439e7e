// The memory that all four ports share: byte-addressed, little-endian, 32-bit words inside.
//
// Addresses from 4 * WORDS on do not exist: they read as 0 and are answered with an error. A word written in
// cycle x is seen by every answer from x + 1 on; an answer carries the data of its own cycle.

module memory #(
    parameter int unsigned WORDS = 1 << 24,
    parameter int unsigned LOAD_A = 4,
    parameter int unsigned LOAD_B = 4,
    parameter int unsigned LOAD_C = 4,
    parameter int unsigned STORE = 4
) (
    input logic clk,
    input logic load,
    input logic [31:0] image_words,
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
    logic [31:0] words[0:WORDS-1];
    // Everything from this word on is 0, so that clearing costs what was used and not what is there.
    logic [31:0] used;
    int file;

    initial begin
        used = '0;
        file = 0;
    end

    function automatic logic beyond(input logic [31:0] address);
        return 64'(address) >= 64'(WORDS) * 4;
    endfunction

    always_comb begin
        a_answer = '0;
        if (a_due && beyond(a_address)) a_answer[8*LOAD_A] = 1'b1;
        else if (a_due) for (int i = 0; i < LOAD_A / 4; i++) a_answer[32*i+:32] = words[(a_address>>2)+i];
    end

    always_comb begin
        b_answer = '0;
        if (b_due && beyond(b_address)) b_answer[8*LOAD_B] = 1'b1;
        else if (b_due) for (int i = 0; i < LOAD_B / 4; i++) b_answer[32*i+:32] = words[(b_address>>2)+i];
    end

    always_comb begin
        c_answer = '0;
        if (c_due && beyond(c_address)) c_answer[8*LOAD_C] = 1'b1;
        else if (c_due) for (int i = 0; i < LOAD_C / 4; i++) c_answer[32*i+:32] = words[(c_address>>2)+i];
    end

    assign store_answer = store_due && beyond(store_due_address);

    always_ff @(posedge clk) begin
        if (load) begin
            for (int unsigned i = 0; i < used; i++) words[i] = '0;
            $readmemh({directory, "/memory.hex"}, words);
            used = image_words;
            file = $fopen({directory, "/output.bin"}, "wb");
        end else if (dump) begin
            for (int unsigned i = 0; i < dump_words; i++) $fwrite(file, "%u", words[dump_first+i]);
        end else if (finish) begin
            $fclose(file);
        end else if (store_accepted && !beyond(store_address)) begin
            for (int i = 0; i < STORE / 4; i++) begin
                if (store_strobe[4*i+:4] == 4'hf) words[(store_address>>2)+i] = store_data[32*i+:32];
                else
                    for (int b = 0; b < 4; b++)
                        if (store_strobe[4*i+b]) words[(store_address>>2)+i][8*b+:8] = store_data[32*i+8*b+:8];
            end
            if ((store_address >> 2) + STORE / 4 > used) used = (store_address >> 2) + STORE / 4;
        end
    end
endmodule
