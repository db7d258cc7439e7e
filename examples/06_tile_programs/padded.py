@program
def padded(width: int[1, 1024]):
    """Addresses as a convolution has them: tiles of an image with a border, cut off at its edges."""
    image: Buffer[56, 64, int8, memory]
    tile: Buffer[2, 8, 64, int8, B]
    for n in range(14):
        for k in range(4):
            first = max(4 * n - 1, 0)
            last = min(4 * n + 5, 56)
            L = load(read=image[first:last, 16 * k : 16 * k + 16],
                     write=tile[(4 * n + k) % 2, 0 : last - first, 16 * k : 16 * k + 16],
                     memory=width * 16 + 64 * first + 16 * k)
            M = multiply(read=tile[(4 * n + k) % 2, 0 : last - first, 16 * k : 16 * k + 16])
