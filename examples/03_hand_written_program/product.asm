li r1, 4096
li r2, 8192
li r3, 12288
li r4, 4
li r5, 8
li r6, 16
parami load_stride, 8
parami load_pitch, 8
load_a r1, r0, r4, r5
load_b r2, r0, r4, r5
parami gemm_m, 4
parami gemm_n, 4
parami gemm_a_pitch, 8
parami gemm_b_pitch, 8
parami gemm_c_pitch, 1
parami gemm_signed, 3
gemm r0, r0, r0, r5
parami store_stride, 16
parami store_pitch, 1
store r3, r0, r4, r6
halt
