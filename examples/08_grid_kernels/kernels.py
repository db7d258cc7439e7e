"""Kernels as Python functions: loops of a data-flow grid. Read through `ast`; plain Python runs them too."""

from sw.dfg.operations import mul_shift_round, mul_shift_round_even, shift_right_logical

# I-BERT's polynomial of GELU: sign(x) * (a * (min(|x|, -b) + b)^2 + 1), with a scale of 1/16 for x.
GELU_B = -28  # -1.769 * 16, for an argument already divided by the root of 2
GELU_ONE = 886  # 1 / (0.2888 / 16^2): the constant term in the units of the square
# I-BERT's polynomial of exp on (-ln 2, 0]: 0.3585 * (p + 1.353)^2 + 0.344, with a scale of 1/1024.
LN2 = 710  # ln 2 * 1024
INVERSE_LN2 = 94548  # 2^26 / 710, rounded up: the quotient is right for arguments below 2^15
EXP_B = 1385  # 1.353 * 1024
EXP_C = 1006156  # 0.344 / (0.3585 / 1024^2)


def dot_product(n, a, b):
    """The sum of all products."""
    s = 0
    for i in range(n):
        s += a[i] * b[i]
    return s


def saxpy(n, alpha, x, y):
    """A vector times a number, added to another vector."""
    for i in range(n):
        y[i] = alpha * x[i] + y[i]


def fir(n, x, y, c0, c1, c2, c3):
    """A filter of four taps, with 8 fractional bits."""
    x1 = 0
    x2 = 0
    x3 = 0
    for i in range(n):
        x0 = x[i]
        y[i] = (c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3) >> 8
        x1, x2, x3 = x0, x1, x2


def iir(n, x, y, a1, a2, b0):
    """A filter of second order, with 14 fractional bits."""
    y1 = 0
    y2 = 0
    for i in range(n):
        y0 = mul_shift_round(b0, x[i], 14) - ((a1 * y1 + a2 * y2) >> 14)
        y[i] = y0
        y2 = y1
        y1 = y0


def convolution_3x3(n, width, x, w, y):
    """A row of the output: three rows of the input, one after the other."""
    for i in range(n):
        s = 0
        for r in range(3):
            for c in range(3):
                s += x[r * width + i + c] * w[3 * r + c]
        y[i] = s


def matrix_vector(n, columns, a, x, y):
    """A product with a matrix that lies row by row: rows are a loop on the host."""
    for r in range(n):
        s = 0
        for c in range(columns):
            s += a[r * columns + c] * x[c]
        y[r] = s


def prefix_sum(n, x, y):
    """The sums of all beginnings."""
    s = 0
    for i in range(n):
        s += x[i]
        y[i] = s
    return s


def maximum(n, x):
    """The largest element."""
    best = -2147483648
    for i in range(n):
        best = max(best, x[i])
    return best


def argmax(n, x):
    """The place of the largest element, the first of several, and the element."""
    best = -2147483648
    where = -1
    for i in range(n):
        v = x[i]
        if v > best:
            best = v
            where = i
    return where, best


def histogram(n, x, h):
    """Counts of the lowest four bits."""
    for i in range(n):
        h[x[i] & 15] += 1


def requantize(n, x, y, multiplier, shift, zero):
    """Int8 from int32: rounded to the nearest, halves to even, and clamped."""
    for i in range(n):
        q = mul_shift_round_even(x[i], multiplier, shift) + zero
        y[i] = min(max(q, -128), 127)


def gelu(n, x, y):
    """The integer GELU of I-BERT: x * (erf + 1), in the units of the polynomial."""
    for i in range(n):
        v = x[i]
        t = min(abs(v), -GELU_B) + GELU_B
        e = t * t - GELU_ONE
        erf = e if v < 0 else -e
        y[i] = v * (erf + GELU_ONE)


def softmax(n, x, e, y):
    """The integer softmax of I-BERT: the maximum, exponentials and their sum, then a division by the sum.

    Results have 15 fractional bits. There is no divider: bits of the reciprocal of the sum, one by one.
    """
    top = -2147483648
    for i in range(n):
        top = max(top, x[i])
    total = 0
    for j in range(n):
        d = max(x[j] - top, -20000)
        z = (-d * INVERSE_LN2) >> 26 if d > -20000 else 30
        p = d + z * LN2 + EXP_B
        v = (p * p + EXP_C) >> (z + 9) if z < 22 else 0
        e[j] = v
        total += v
    # 2^30 / total, by subtracting what still fits.
    rest = 1 << 30
    reciprocal = 0
    for k in range(31):
        part = shift_right_logical(rest, 30 - k)
        fits = part >= total
        reciprocal = (reciprocal << 1) | fits
        rest = rest - (total << (30 - k)) if fits else rest
    for m in range(n):
        y[m] = mul_shift_round(e[m], reciprocal, 15)
    return total
