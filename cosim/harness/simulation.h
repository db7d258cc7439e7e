// The verilated harness with its clock, its time and, when built for them, its waves.

#pragma once

#include <memory>
#include <string>

#include "Vharness.h"
#include "verilated.h"

#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Waves = VerilatedFstC;
#elif VM_TRACE_VCD
#include "verilated_vcd_c.h"
using Waves = VerilatedVcdC;
#endif

class Simulation {
public:
    Simulation(int argc, char** argv) {
        context.commandArgs(argc, argv);
        context.fatalOnVpiError(false);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        top = std::make_unique<Vharness>(&context, "");
#if VM_TRACE
        const std::string file = option("waves=");
        if (!file.empty()) {
            waves = std::make_unique<Waves>();
            top->trace(waves.get(), 99);
            waves->open(file.c_str());
        }
#endif
        top->clk = 0;
        top->start = 0;
        top->job = 0;
    }

    ~Simulation() {
        top->final();
#if VM_TRACE
        if (waves) waves->close();
#endif
    }

    // The value of +NAME=VALUE on the command line, or nothing.
    std::string option(const char* name) {
        const std::string match = context.commandArgsPlusMatch(name);
        return match.empty() ? match : match.substr(match.find('=') + 1);
    }

    // Ends the present half cycle: records it, then moves time on.
    void advance() {
#if VM_TRACE
        if (waves) waves->dump(context.time());
#endif
        context.timeInc(1);
    }

    VerilatedContext context;
    std::unique_ptr<Vharness> top;

private:
#if VM_TRACE
    std::unique_ptr<Waves> waves;
#endif
};
