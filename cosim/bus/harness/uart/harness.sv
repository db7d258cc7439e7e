// The top `jacquard_uart`, for a program that drives its pins.

module harness (
    input logic clk,
    input logic rst,
    input logic uart_rx,
    output logic uart_tx,
    output logic [3:0] led
);
    jacquard_uart top(.*);
endmodule
