"""Invariants of the sequencer: what its pipeline, rings and memories hold for the watched warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Array, Cat, Mux, Value
from amaranth.lib import data

from hw import isa
from hw.config import MachineConfig
from hw.formal.bench import Bench
from hw.formal.watch import Model, Watch
from hw.rtl.core.decoder import REGISTER_FIELDS, Decoded, field, known, predicate_number, stored
from hw.rtl.core.sequencer import EXECUTE, FETCH, READ, VALUE, VALUES
from hw.rtl.core.signals import COUNT_BITS


def invariants(
    bench: Bench, config: MachineConfig, watch: Watch, model: Model
) -> dict[str, Callable[[], Value]]:
    """All invariants by name; they are only called if there is an induction."""
    ties = _Ties(bench, config, watch, model)
    names = ("turns", "fetched", "decoded", "read", "warp", "division", "pending", "through")
    return {name: getattr(ties, name) for name in names}


class _Ties:
    """Access to the registers of the sequencer; each public method is an invariant."""

    def __init__(self, bench: Bench, config: MachineConfig, watch: Watch, model: Model):
        self._bench, self._config, self._watch, self._model = bench, config, watch, model
        self._dut, self._period = watch.dut, config.derived.period

    def _layout(self) -> data.Layout:
        return self._bench.view(self._dut, "now").shape()  # type: ignore[union-attr, no-any-return]

    def _ahead(self, cycles: int) -> Any:
        """The ring entry of the warp whose turn comes in `cycles` cycles."""
        place = self._bench.signal(self._dut, f"context{self._period - 1 - cycles}")
        return data.View(self._layout(), place)

    @property
    def _context(self) -> Any:
        """The ring entry of the watched warp."""
        return self._watch.turns.state(self._dut, "context", self._layout())

    def _stages(self) -> dict[int, Any]:
        """The instructions in the pipeline, by cycles before their turn."""
        names = {VALUES: "coming", EXECUTE: "decoded", 0: "decoded_now"}
        return {
            ahead: data.View(Decoded, self._bench.signal(self._dut, name)) for ahead, name in names.items()
        }

    def _is_filled(self, ahead: int) -> Value:
        """Whether the stage `ahead` cycles before the turn holds a fetched instruction."""
        return Value.cast(self._watch.age >= FETCH - ahead)

    def turns(self) -> Value:
        """Each warp is in its place of the ring."""
        turns, count = self._watch.turns, self._config.warps
        return Cat(
            (self._ahead(i).warp == turns.warp(i)) & (self._ahead(i).idle == (turns.number(i) >= count))
            for i in range(self._period)
        ).all()

    def fetched(self) -> Value:
        """The words in the pipeline are those at the pc of their warp."""
        watch, word = self._watch, self._bench.register(self._dut, "word")
        asked = self._ahead(FETCH - 1)
        right = [watch.asked == Cat(asked.pc, asked.warp)]

        def at_place(ahead: int) -> Value:
            context = self._ahead(ahead)
            return (
                (context.warp == watch.turns.watched) & (context.pc == watch.place) & self._is_filled(ahead)
            )

        right.append(~self._is_filled(READ) | watch.is_stored(word))
        right.append(~at_place(READ) | (word == watch.kept))
        right += [~at_place(ahead) | (stage.word == watch.word) for ahead, stage in self._stages().items()]
        return Cat(*right).all()

    def decoded(self) -> Value:
        """The decoded signals match the words of their instructions."""
        told = []
        for ahead, stage in self._stages().items():
            from_word = known(self._bench.value(stored(self._config, stage.word), f"stored{ahead}"))
            told.append(~self._is_filled(ahead) | Cat(stage[n] == v for n, v in from_word.items()).all())
        now, flags, context = self._stages()[0], self._bench.view(self._dut, "flags"), self._ahead(0)
        alive = ~(context.idle | context.halted | context.divides)
        filled = (
            (flags.alive == alive)
            & (flags.able == (alive & flags.true))
            & (flags.waits == (flags.able & now.is_wait))
            & (flags.operates == (flags.able & now.is_engine))
            & (flags.other == (context.engine != now.engine))
        )
        return (
            Cat(*told).all()
            & (filled | (self._watch.age == 0))
            & (~flags.zero | now.is_divide)
            & (~flags.wide.any() | now.is_engine | now.is_param | now.is_parami)
        )

    def read(self) -> Value:
        """The operands in the pipeline are what was read from the registers."""
        watch, bench, dut = self._watch, self._bench, self._dut
        names, values = self._model.names, self._model.values
        numbers, bits = len(REGISTER_FIELDS) + 1, len(names[0])
        right = []
        for i, (ahead, stage) in enumerate(self._stages().items(), 1):
            fields = [stage.word[low : low + isa.PREDICATE_BITS] for low in REGISTER_FIELDS]
            named = Cat(*fields, predicate_number(stage.word))
            right.append(names[i][: len(named)] == named)
            right.append(~self._is_filled(ahead) | (names[i][len(named) : bits] == self._ahead(ahead).warp))
        for i in range(numbers - 1):
            right.append(bench.signal(dut, f"operand{i}") == values[1].word_select(i, 32))
            right.append(bench.signal(dut, f"operand{i}_now") == values[2].word_select(i, 32))
        now, flags = self._stages()[0], bench.view(dut, "flags")
        guard = values[2].word_select(numbers - 1, 32)
        imm = field(now.word, "parami", "imm").as_signed()
        new = Mux(now.is_parami, imm, values[2].word_select(VALUE, 32))
        count = values[2].word_select(REGISTER_FIELDS.index(isa.layout("loop")["rs1"].low), 32)
        right += [
            flags.positive == (count.any() & ~count[-1]),
            bench.register(dut, "guard") == values[1].word_select(numbers - 1, 32),
            (watch.age == 0) | (flags.true == (guard.any() == now.word[isa.SENSE_LOW])),
            bench.signal(dut, "new_now") == new[:32],
        ]
        return Cat(*right).all()

    def warp(self) -> Value:
        """The pc of the watched warp is where it must be."""
        model, context = self._model, self._context
        goes = ~model.goes | ~(context.halted | context.divides)
        return (model.erred | model.goes_on(context.pc)) & goes

    def division(self) -> Value:
        """A division is active exactly if its warp is dividing."""
        watch, context = self._watch, self._context
        layout = self._bench.view(self._dut, "divider/now").shape()
        state = watch.turns.state(self._dut, "divider/state", layout)
        places = [
            self._bench.signal(self._dut, f"divider/state{self._period - 1 - i}") for i in range(self._period)
        ]
        nobody = [~self._ahead(i).idle | (data.View(layout, p).count == 0) for i, p in enumerate(places)]
        left, target = self._model.left, self._model.target
        mine = (left == 0) | ((state.count == left) & (context.target == target))
        under_way = context.divides == (state.count != 0)
        return under_way & Cat(*nobody).all() & mine & (left < isa.DIV_TURNS)

    def pending(self) -> Value:
        """Pending signals of the watched warp name existing channels; its operations are counted."""
        bench, dut, turns, config = self._bench, self._dut, self._watch.turns, self._config
        depth = isa.TIMING.pending_signals
        state = turns.state(dut, "pending/state", bench.view(dut, "pending/now").shape())
        completed = [bench.register(dut, f"pending/completed{w}") for w in range(config.warps)]
        row, layout = bench.memory(dut, "pending/entries"), bench.view(dut, "pending/oldest").shape()
        exist = []
        for i in range(depth):
            place = Cat((state.oldest + i)[: len(state.oldest)], turns.watched)
            entry = data.View(layout, row(place))
            exist.append((state.count <= i) | (entry.channel < config.channels))
        under_way = Value.cast(state.issued - Array(completed)[turns.watched])[:COUNT_BITS]
        return (
            (state.count <= depth)
            & (state.count == self._watch.waiting)
            & Cat(*exist).all()
            & (under_way == self._watch.operations)
        )

    def through(self) -> Value:
        """A warp that is through has nothing pending."""
        bench, dut, watch = self._bench, self._dut, self._watch
        state = watch.turns.state(dut, "pending/state", bench.view(dut, "pending/now").shape())
        ended = self._context.halted & (state.count == 0) & (watch.operations == 0)
        return ~dut.through.bit_select(watch.turns.watched, 1) | ended
