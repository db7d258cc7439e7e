// The UART top, bit by bit on its pins, at the other end of a file descriptor (a pseudo-terminal).
//
// +fd=N: the descriptor; +steps=1: time passes only on request; +cycles=N: clock cycles per bit; +wrong=N: of
// 100,000 bytes in each direction, N are damaged, lost, or preceded by a spurious one; +seed=N: seed of the
// faults.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "Vharness.h"
#include "verilated.h"

static constexpr int FRAME_BITS = 10;  // start bit, eight data bits, stop bit
static constexpr int POLL_CYCLES = 128;
static constexpr long REST_CYCLES = 20'000'000;  // after this many cycles without a byte, the process slows down

static int number(VerilatedContext& context, const char* name, int otherwise) {
    const std::string match = context.commandArgsPlusMatch(name);
    return match.empty() ? otherwise : std::atoi(match.substr(match.find('=') + 1).c_str());
}

// Faults of the line.
class Faults {
public:
    Faults(int seed, int wrong) : random(seed), wrong(wrong) {}

    // Frames (start bit lowest) that arrive in place of that of `byte`: none, one or two.
    std::vector<unsigned> carry(unsigned char byte) {
        unsigned frame = 1u << (FRAME_BITS - 1) | byte << 1;
        if (static_cast<int>(random() % 100'000) >= wrong) return {frame};
        switch (random() % 3) {
            case 0: return {frame ^ 1u << random() % FRAME_BITS};
            case 1: return {};
            default: return {1u << (FRAME_BITS - 1) | (random() & 0xFF) << 1, frame};
        }
    }

private:
    std::mt19937 random;
    int wrong;
};

// Puts frames on a line.
class Sender {
public:
    explicit Sender(int cycles) : cycles(cycles) {}

    std::deque<unsigned> frames;

    bool step() {
        if (left == 0) {
            if (frames.empty()) return true;
            frame = frames.front();
            frames.pop_front();
            left = FRAME_BITS * cycles;
        }
        const int bit = FRAME_BITS - 1 - (left - 1) / cycles;
        left--;
        return frame >> bit & 1;
    }

    bool busy() const { return left != 0 || !frames.empty(); }

private:
    int cycles;
    int left = 0;
    unsigned frame = 0;
};

// Receives bytes from a line, sampling each bit in its middle.
class Receiver {
public:
    explicit Receiver(int cycles) : cycles(cycles) {}

    // Returns whether a byte is complete; it is then in `byte`.
    bool step(bool line) {
        if (age < 0) {
            if (!line) age = 0;
            return false;
        }
        age++;
        const int bit = age / cycles;
        if (age % cycles == cycles / 2 && bit >= 1 && bit <= 8) {
            byte = static_cast<unsigned char>(byte >> 1 | (line ? 0x80 : 0));
        }
        if (bit < FRAME_BITS - 1 || age % cycles != cycles / 2) return false;
        age = -1;
        return true;
    }

    unsigned char byte = 0;

private:
    int cycles;
    int age = -1;  // cycles since the start bit began
};

// Moves bytes between descriptor and lines; returns false at the end.
static bool exchange(int fd, Sender& sender, Faults& down, std::string& up, bool rest) {
    pollfd state{fd, POLLIN, 0};
    poll(&state, 1, rest ? 10 : 0);
    if (state.revents & POLLIN) {
        unsigned char data[4096];
        const ssize_t count = read(fd, data, sizeof data);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
        for (ssize_t i = 0; i < count; i++) {
            for (unsigned frame : down.carry(data[i])) sender.frames.push_back(frame);
        }
    } else if (state.revents & (POLLHUP | POLLERR | POLLNVAL)) {
        return false;
    }
    if (!up.empty()) {
        const ssize_t count = write(fd, up.data(), up.size());
        if (count > 0) up.erase(0, static_cast<size_t>(count));
        else if (count < 0 && errno != EAGAIN && errno != EINTR) return false;
    }
    return true;
}

// Reads exactly `size` bytes; returns false at the end.
static bool take(int fd, void* data, size_t size) {
    for (auto* at = static_cast<char*>(data); size != 0;) {
        const ssize_t count = read(fd, at, size);
        if (count <= 0) return false;
        at += count;
        size -= static_cast<size_t>(count);
    }
    return true;
}

static bool give(int fd, const void* data, size_t size) {
    for (auto* at = static_cast<const char*>(data); size != 0;) {
        const ssize_t count = write(fd, at, size);
        if (count <= 0) return false;
        at += count;
        size -= static_cast<size_t>(count);
    }
    return true;
}

// The machine, its clock, and both lines.
class Bench {
public:
    Bench(VerilatedContext& context, int cycles, int seed, int wrong)
        : down(seed, wrong), back(seed + 1, wrong), sender(cycles), receiver(cycles),
          top(std::make_unique<Vharness>(&context, "")) {
        top->uart_rx = 1;
    }

    ~Bench() { top->final(); }

    void tick() {
        top->rst = cycle < 4;
        top->clk = 0;
        top->eval();
        top->clk = 1;
        top->eval();
        top->uart_rx = sender.step();
        if (receiver.step(top->uart_tx)) {
            for (unsigned frame : back.carry(receiver.byte)) up.push_back(static_cast<char>(frame >> 1));
        }
        cycle++;
    }

    uint64_t cycle = 0;
    std::string up;  // bytes from the machine that have not been read yet
    Faults down, back;
    Sender sender;

private:
    Receiver receiver;
    std::unique_ptr<Vharness> top;
};

// Runs in real time; bytes come and go at any time.
static void run_free(int fd, Bench& bench) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    long quiet = 0;
    do {
        for (int i = 0; i < POLL_CYCLES; i++) bench.tick();
        quiet = bench.sender.busy() || !bench.up.empty() ? 0 : quiet + POLL_CYCLES;
    } while (exchange(fd, bench.sender, bench.down, bench.up, quiet > REST_CYCLES));
}

// Time passes only on request. 'w', count, bytes: send. 'r', cycles: let that many cycles pass, or fewer if a
// byte comes, and reply with cycle, count and bytes. Numbers have the host's byte order.
static void run_in_steps(int fd, Bench& bench) {
    char operation;
    uint32_t number;
    while (take(fd, &operation, 1) && take(fd, &number, sizeof number)) {
        if (operation == 'w') {
            std::string data(number, 0);
            if (!take(fd, data.data(), number)) return;
            for (char byte : data) {
                for (unsigned frame : bench.down.carry(static_cast<unsigned char>(byte))) {
                    bench.sender.frames.push_back(frame);
                }
            }
            continue;
        }
        for (uint32_t i = 0; i < number && bench.up.empty(); i++) bench.tick();
        const auto count = static_cast<uint32_t>(bench.up.size());
        if (!give(fd, &bench.cycle, sizeof bench.cycle) || !give(fd, &count, sizeof count)) return;
        if (!give(fd, bench.up.data(), count)) return;
        bench.up.clear();
    }
}

int main(int argc, char** argv) {
    VerilatedContext context;
    context.commandArgs(argc, argv);
    const int fd = number(context, "fd=", -1), cycles = number(context, "cycles=", 8);
    Bench bench(context, cycles, number(context, "seed=", 1), number(context, "wrong=", 0));
    if (number(context, "steps=", 0)) run_in_steps(fd, bench);
    else run_free(fd, bench);
    return 0;
}
