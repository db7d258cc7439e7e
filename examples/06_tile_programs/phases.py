@program
def phases(p: bool):
    """Producers (warp 0) fill ranges of a buffer, consumers (warp 1) empty them, in three phases."""
    a: Buffer[60]
    for i in range(3):
        P = produce(write=a[10 * i : 10 * i + 10], warp=0)
        C = consume(read=a[10 * i : 10 * i + 10], warp=1)
    for i in range(3):
        Q = produce(write=a[15 * (i + 1) : 15 * (i + 2)], warp=0)
        D = consume(read=a[15 * (i + 1) : 15 * (i + 2)], warp=1)
    R = produce(write=a[0:50], warp=0, when=p)
    E = consume(read=a[0:50], warp=1)
