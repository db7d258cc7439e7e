// The bytes behind memory.sv: 4 GiB in pages that are allocated on the first write, so a run takes what it
// uses.
//
// An image is pairs of 32-bit words (first word, number of words), each followed by the words.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "svdpi.h"

namespace {

constexpr unsigned PAGE_BITS = 18;  // in words; a page is 1 MiB
constexpr uint32_t PAGE_WORDS = 1u << PAGE_BITS;

std::array<std::unique_ptr<uint32_t[]>, 1u << (30 - PAGE_BITS)> pages;
std::FILE* output = nullptr;

uint32_t* page(uint32_t word) {
    auto& found = pages[word >> PAGE_BITS];
    if (!found) found.reset(new uint32_t[PAGE_WORDS]());
    return found.get();
}

uint32_t read(uint32_t word) {
    const auto& found = pages[word >> PAGE_BITS];
    return found ? found[word & (PAGE_WORDS - 1)] : 0;
}

void fail(const std::string& path) {
    std::perror(path.c_str());
    std::exit(5);
}

void read_image(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (!file) fail(path);
    uint32_t head[2];
    while (std::fread(head, sizeof(uint32_t), 2, file) == 2) {
        while (head[1]) {
            const uint32_t at = head[0] & (PAGE_WORDS - 1);
            const uint32_t count = head[1] < PAGE_WORDS - at ? head[1] : PAGE_WORDS - at;
            if (std::fread(page(head[0]) + at, sizeof(uint32_t), count, file) != count) fail(path);
            head[0] += count;
            head[1] -= count;
        }
    }
    if (std::ferror(file)) fail(path);
    std::fclose(file);
}

}  // namespace

// Loads the image of a job, and opens its output file.
extern "C" void memory_load(const char* directory) {
    for (auto& each : pages) each.reset();
    read_image(std::string(directory) + "/memory.bin");
    const std::string path = std::string(directory) + "/output.bin";
    output = std::fopen(path.c_str(), "wb");
    if (!output) fail(path);
}

// `version` changes with every write, which makes the simulator call again.
extern "C" void memory_read(uint32_t word, uint32_t words, uint32_t /* version */, svBitVecVal* data) {
    for (uint32_t i = 0; i < words; ++i) data[i] = read(word + i);
}

// Writes the bytes of `data` whose bit in `strobe` is set.
extern "C" void memory_write(uint32_t word, uint32_t words, const svBitVecVal* data, const svBitVecVal* strobe) {
    for (uint32_t i = 0; i < words; ++i) {
        const uint32_t bytes = strobe[i / 8] >> (4 * (i % 8)) & 15;
        if (!bytes) continue;
        uint32_t mask = 0;
        for (int b = 0; b < 4; ++b) mask |= (bytes >> b & 1 ? 0xFFu : 0u) << (8 * b);
        uint32_t& place = page(word + i)[(word + i) & (PAGE_WORDS - 1)];
        place = (place & ~mask) | (data[i] & mask);
    }
}

// Appends words to the output file.
extern "C" void memory_dump(uint32_t word, uint32_t words) {
    for (uint32_t i = 0; i < words; ++i) {
        const uint32_t value = read(word + i);
        std::fwrite(&value, sizeof(value), 1, output);
    }
}

// Closes the output file.
extern "C" void memory_finish() {
    const bool failed = std::ferror(output) != 0;
    if (std::fclose(output) != 0 || failed) fail("output.bin");
}
