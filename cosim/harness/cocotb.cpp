// The clock and the VPI side of a simulation that cocotb controls.
//
// VPI takes time in every cycle in which it looks for work. Python waits here for edges of `done` and,
// rarely, for a time. So callbacks are processed only in half cycles in which `done` changed, a timed
// callback is due, or Python asked for a later phase of the same time. All other half cycles are those of the
// plain loop.

#include "simulation.h"
#include "verilated_vpi.h"

extern "C" void vlog_startup_routines_bootstrap(void);

static constexpr QData NEVER = ~static_cast<QData>(0);

static void value_changes() {
    while (VerilatedVpi::callValueCbs()) {
    }
}

static void apply_writes() {
    VerilatedVpi::doInertialPuts();
    value_changes();
}

// Everything that VPI may need in one time step, after the model was evaluated.
static void settle(Simulation& s) {
    do {
        do {
            VerilatedVpi::clearEvalNeeded();
            apply_writes();
            s.top->eval();
        } while (VerilatedVpi::evalNeeded());
        VerilatedVpi::callCbs(cbReadWriteSynch);
        apply_writes();
    } while (VerilatedVpi::evalNeeded());
    VerilatedVpi::callCbs(cbReadOnlySynch);
}

static bool wants_more() {
    return VerilatedVpi::hasCbs(cbNextSimTime) || VerilatedVpi::hasCbs(cbReadWriteSynch)
           || VerilatedVpi::hasCbs(cbReadOnlySynch) || VerilatedVpi::evalNeeded();
}

int main(int argc, char** argv) {
    Simulation s(argc, argv);
    vlog_startup_routines_bootstrap();
    s.top->eval();
    VerilatedVpi::callCbs(cbStartOfSimulation);
    settle(s);

    QData deadline = VerilatedVpi::cbNextDeadline();
    bool more = wants_more();
    CData done = s.top->done;
    while (!s.context.gotFinish()) {
        // The harness is at rest and nothing is due, so no edge will ever come.
        if (!more && deadline == NEVER && !s.top->start && !s.top->done) break;
        s.advance();
        const bool timed = s.context.time() >= deadline;
        if (more) VerilatedVpi::callCbs(cbNextSimTime);
        if (timed) VerilatedVpi::callTimedCbs();
        s.top->clk = !s.top->clk;
        s.top->eval();
        if (more || timed || s.top->done != done) {
            value_changes();
            settle(s);
            done = s.top->done;
            deadline = VerilatedVpi::cbNextDeadline();
            more = wants_more();
        }
    }
    VerilatedVpi::callCbs(cbEndOfSimulation);
    return s.context.errorCount() > 0;
}
