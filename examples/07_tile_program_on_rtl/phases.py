@program
def phases(last: int[1, 51]):
    """Three phases of producers (warp 0) and consumers (warp 1) that share a buffer."""
    a: Buffer[60]
    for i in range(3):
        P = produce(write=a[10 * i : 10 * i + 10], warp=0)
        C = consume(read=a[10 * i : 10 * i + 10], warp=1)
    for i in range(3):
        Q = produce(write=a[15 * (i + 1) : 15 * (i + 2)], warp=0)
        D = consume(read=a[15 * (i + 1) : 15 * (i + 2)], warp=1)
    R = produce(write=a[0:last], warp=0)
    E = consume(read=a[0:50], warp=1)
