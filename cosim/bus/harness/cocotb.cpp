// A simulation that cocotb controls in every cycle, including its clock.
//
// Like cocotb's own program for Verilator (share/lib/verilator/verilator.cpp), with the time of a context:
// Python that waits for a clock edge sees the register values before it, as bus models expect.

#include <memory>

#include "Vharness.h"
#include "verilated.h"
#include "verilated_vpi.h"

extern "C" void vlog_startup_routines_bootstrap(void);

static void value_changes() {
    while (VerilatedVpi::callValueCbs()) {
    }
}

static void apply_writes() {
    VerilatedVpi::doInertialPuts();
    value_changes();
}

// Everything that happens at one time.
static void step(Vharness& top) {
    do {
        do {
            top.eval();
            VerilatedVpi::clearEvalNeeded();
            apply_writes();
        } while (VerilatedVpi::evalNeeded());
        VerilatedVpi::callCbs(cbReadWriteSynch);
        apply_writes();
    } while (VerilatedVpi::evalNeeded());
    VerilatedVpi::callCbs(cbReadOnlySynch);
}

int main(int argc, char** argv) {
    VerilatedContext context;
    context.commandArgs(argc, argv);
    context.fatalOnVpiError(false);
    Verilated::threadContextp(&context);
    const auto top = std::make_unique<Vharness>(&context, "");
    vlog_startup_routines_bootstrap();
    VerilatedVpi::callCbs(cbStartOfSimulation);
    value_changes();
    while (!context.gotFinish()) {
        step(*top);
        const QData next = VerilatedVpi::cbNextDeadline();
        if (next == ~static_cast<QData>(0)) break;  // nothing will ever happen again
        context.time(next);
        VerilatedVpi::callCbs(cbNextSimTime);
        value_changes();
        VerilatedVpi::callTimedCbs();
        value_changes();
    }
    VerilatedVpi::callCbs(cbEndOfSimulation);
    top->final();
    return context.errorCount() > 0;
}
