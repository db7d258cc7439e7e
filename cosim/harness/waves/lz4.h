// Compression into the LZ4 block format, limited to what Verilator's FST writer calls.
//
// The writer includes <lz4.h>, whose library is in no PyPI package and few base systems. Any FST reader
// decompresses the result. Matches are found like in the library's fast mode: with a table of the last
// position of each four bytes, and steps that grow while nothing matches.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

namespace lz4_block {

constexpr int MIN_MATCH = 4;        // shortest match
constexpr int LAST_LITERALS = 5;    // a block ends with at least this many literals,
constexpr int MATCH_LIMIT = 12;     // and no match begins in this many of its last bytes
constexpr int MAX_DISTANCE = 65535;

inline uint32_t word(const uint8_t* at) {
    uint32_t value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

// A length with four bits in the token; the rest follows in bytes.
inline uint8_t* put_rest(uint8_t* out, int length) {
    if (length < 15) return out;
    for (length -= 15; length >= 255; length -= 255) *out++ = 255;
    *out++ = static_cast<uint8_t>(length);
    return out;
}

// Literals, then a match (length 0: none, which ends the block).
inline uint8_t* put(uint8_t* out, const uint8_t* literals, int count, int distance, int length) {
    const int extra = length ? length - MIN_MATCH : 0;
    *out++ = static_cast<uint8_t>((count < 15 ? count : 15) << 4 | (extra < 15 ? extra : 15));
    out = put_rest(out, count);
    if (count) std::memcpy(out, literals, static_cast<size_t>(count));
    out += count;
    if (!length) return out;
    *out++ = static_cast<uint8_t>(distance);
    *out++ = static_cast<uint8_t>(distance >> 8);
    return put_rest(out, extra);
}

}  // namespace lz4_block

// `capacity` must be at least LZ4_compressBound(size); returns the size of the block in bytes.
inline int LZ4_compress_default(const char* source, char* target, int size, int capacity) {
    using namespace lz4_block;
    if (capacity < LZ4_compressBound(size)) return 0;
    const uint8_t* const in = reinterpret_cast<const uint8_t*>(source);
    uint8_t* out = reinterpret_cast<uint8_t*>(target);
    int bits = 6;
    while (bits < 14 && (1 << bits) < size) ++bits;
    static thread_local std::vector<int32_t> table;
    table.assign(size_t{1} << bits, -1);

    int done = 0, misses = 0;
    for (int at = 0; at < size - MATCH_LIMIT;) {
        int32_t& last = table[word(in + at) * 2654435761u >> (32 - bits)];
        const int found = last;
        last = at;
        if (found < 0 || at - found > MAX_DISTANCE || word(in + found) != word(in + at)) {
            at += 1 + (misses++ >> 6);
            continue;
        }
        int length = MIN_MATCH;
        while (at + length < size - LAST_LITERALS && in[found + length] == in[at + length]) ++length;
        out = put(out, in + done, at - done, at - found, length);
        at = done = at + length;
        misses = 0;
    }
    out = put(out, in + done, size - done, 0, 0);
    return static_cast<int>(out - reinterpret_cast<uint8_t*>(target));
}
