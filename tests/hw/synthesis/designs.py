"""Small designs whose cells can be counted by hand."""

from __future__ import annotations

from pathlib import Path

#: A registered product of 17 bits in an instance, a block RAM in another, eight registers of its own.
SMALL = """
module product(input clk, input [16:0] a, input [16:0] b, output reg [33:0] p);
  reg [16:0] x, y;
  always @(posedge clk) begin x <= a; y <= b; p <= x * y; end
endmodule
module store(input clk, input [9:0] address, input write, input [17:0] data, output reg [17:0] word);
  reg [17:0] words [1023:0];
  always @(posedge clk) begin word <= words[address]; if (write) words[address] <= data; end
endmodule
module small(input clk, input [7:0] d, output reg [7:0] q);
  wire [17:0] word;
  wire [33:0] p;
  store memory(.clk(clk), .address({d[1:0], q}), .write(d[7]), .data({q, d, 2'b0}), .word(word));
  product multiply(.clk(clk), .a(word[16:0]), .b(word[17:1] ^ {q, 1'b1, q}), .p(p));
  always @(posedge clk) q <= p[33:26] ^ p[25:18] ^ p[17:10] ^ p[9:2] ^ p[1:0];
endmodule
"""

#: A shift register of 100 bits with a reset and an enable, which drives as many registers as the reset.
RESET = """
module reset(input clk, input rst, input [1:0] en, input d, output q);
  reg [99:0] s;
  always @(posedge clk) if (rst) s <= 0; else if (&en) s <= {s[98:0], d};
  assign q = s[99];
endmodule
"""

#: As many registered products as asked for.
MANY = """
module many(input clk, input [3:0] d, output [{last}:0] q);
  genvar i;
  generate
    for (i = 0; i <= {last}; i = i + 1) begin : part
      reg [3:0] x;
      reg [7:0] p;
      always @(posedge clk) begin x <= d + i; p <= x * (d ^ (i * 7)); end
      assign q[i] = ^p;
    end
  endgenerate
endmodule
"""


def many(products: int) -> str:
    """A design of that many multipliers, top module `many`."""
    return MANY.replace("{last}", str(products - 1))


def results(cache: Path) -> list[Path]:
    """Everything in a cache but locks and directories of kinds."""
    return [path for path in cache.glob("*/**/*") if path.suffix != ".lock"]
