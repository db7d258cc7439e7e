// Runs jobs 0 to N - 1 (+jobs=N) one after the other, with only a loop around the model.
//
// Prints a line for each: job, fault, status, seconds. A fault ends the program with exit code 3.

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "simulation.h"

static void cycle(Simulation& s) {
    s.top->clk = 1;
    s.top->eval();
    s.advance();
    s.top->clk = 0;
    s.top->eval();
    s.advance();
}

int main(int argc, char** argv) {
    Simulation s(argc, argv);
    const int jobs = std::atoi(s.option("jobs=").c_str());
    for (int job = 0; job < jobs; ++job) {
        const auto begin = std::chrono::steady_clock::now();
        s.top->job = job;
        s.top->start = 1;
        while (!s.top->done && !s.context.gotFinish()) cycle(s);
        const unsigned fault = s.top->fault;
        s.top->start = 0;
        while (s.top->done && !fault && !s.context.gotFinish()) cycle(s);
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        std::printf("%d %u %u %.6f\n", job, fault, s.top->status, time.count());
        if (fault) return 3;
        if (s.context.gotFinish()) return 4;
    }
    return 0;
}
