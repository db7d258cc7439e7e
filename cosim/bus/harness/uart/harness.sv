// The top `heald_uart`, for a program that drives its pins.

module harness (
    input logic clk,
    input logic rst,
    input logic uart_rx,
    output logic uart_tx,
    output logic [3:0] led
);
    heald_uart top(.*);
endmodule
