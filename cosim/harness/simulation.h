// The Verilated harness with its clock, its time and, if built for them, its waves.

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

#if VM_TRACE
#include "svdpi.h"

// Whether the current half cycle is recorded, according to waves/view.sv.
static bool recording = true;

extern "C" void waves_record(svBit on) { recording = on; }
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
            choose_scopes(option("scopes="));
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

    // Ends the current half cycle: records it, then advances time.
    void advance() {
#if VM_TRACE
        if (waves && recording) waves->dump(context.time());
#endif
        context.timeInc(1);
    }

    VerilatedContext context;
    std::unique_ptr<Vharness> top;

private:
#if VM_TRACE
    // Scopes of the machine to record with everything below them, separated by commas; empty for the whole
    // machine.
    void choose_scopes(const std::string& names) {
        if (names.empty()) return;
        waves->dumpvars(99, "harness.view");
        for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
            end = names.find(',', begin);
            waves->dumpvars(99, "harness.machine." + names.substr(begin, end - begin));
        }
    }

    std::unique_ptr<Waves> waves;
#endif
};
