@program
def product():
    """C = A B, 24 x 40 x 32, in blocks of 16 x 16 x 16; every step loads the next blocks beside the present ones."""
    A: Buffer[24, 40, int8, memory]
    B: Buffer[40, 32, int8, memory]
    C: Buffer[24, 32, int32, memory]
    a: Buffer[2, 16, 16, int8, A]  # two places, rows, depth
    b: Buffer[2, 16, 16, int8, B]  # two places, depth, columns
    c: Buffer[2, 16, 16, int32, acc]
    for i in range(2):
        m = min(16, 24 - 16 * i)  # rows of this block: 16, then 8
        for j in range(2):
            for k in range(3):
                d = min(16, 40 - 16 * k)  # depth of this block: 16, 16, then 8
                place = (i * 6 + j * 3 + k) % 2
                LA = load(memory=A[16 * i : 16 * i + m, 16 * k : 16 * k + d], target=a[place, 0:m, 0:d])
                LB = load(memory=B[16 * k : 16 * k + d, 16 * j : 16 * j + 16], target=b[place, 0:d, 0:16])
                if k == 0:
                    G = gemm(a=a[place, 0:m, 0:d], b=b[place, 0:d, 0:16], c=c[j, 0:m, 0:16])
                else:
                    GA = gemm_acc(a=a[place, 0:m, 0:d], b=b[place, 0:d, 0:16], c=c[j, 0:m, 0:16])
            S = store(source=c[j, 0:m, 0:16], memory=C[16 * i : 16 * i + m, 16 * j : 16 * j + 16])
