"""Comparison of two runs or predictions: what differs in the machine, and the effect on each operator."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

import heald
from cosim.causes import CAUSES, Bottleneck, bottleneck
from cosim.session.results import RESOURCES
from heald.files import write_text
from heald.report.console import plain_table
from heald.report.html.environment import POLICY, file, template
from heald.report.html.svg import Drawing, shortened
from hw.errors import InputError

_WIDTH, _NAMES, _NUMBERS, _ROW = 860.0, 250.0, 100.0, 38.0
#: Colours that work on a light and a dark page.
_STYLE = ".pair text{font:12px system-ui,sans-serif;fill:currentColor}.a{fill:#2f6fb7}.b{fill:#d08a45}"


@dataclass(frozen=True)
class Figures:
    """The figures of one operator in a run (docs/report.md); `where` is `machine`, `host` or `edge`."""

    name: str
    op: str
    where: str
    cycles: int
    bound: str
    bound_cycles: int
    utilization: float
    bottleneck: Bottleneck | None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Figures:
        """An entry of `operators` in the JSON of a run or prediction."""
        found, cycles = entry["bottleneck"], entry.get("cycles", entry.get("model_cycles"))
        return cls(
            name=str(entry["name"]),
            op=str(entry["op"]),
            where=str(entry["where"]),
            cycles=int(cycles),
            bound=str(entry["bound"]),
            bound_cycles=int(entry["bound_cycles"]),
            utilization=float(entry["utilization"]),
            bottleneck=Bottleneck(found["cause"], float(found["share"])) if found else None,
        )

    @property
    def cause(self) -> str:
        """The bottleneck in words, with its share; where it runs if not on the machine."""
        return self.where if self.where != "machine" else str(self.bottleneck or "")

    @property
    def limit(self) -> str:
        """The lower bound with its resource."""
        return f"{self.bound_cycles:,} {RESOURCES.get(self.bound, self.bound)}" if self.bound_cycles else ""

    def as_dict(self) -> dict[str, Any]:
        """One side of an operator in the JSON of a comparison."""
        return vars(self) | {"bottleneck": self.bottleneck and self.bottleneck._asdict()}


@dataclass(frozen=True)
class Pair:
    """An operator in A and in B; None if it has no counterpart."""

    name: str
    op: str
    a: Figures | None
    b: Figures | None

    @property
    def delta(self) -> int | None:
        """Cycles in B minus cycles in A; None if it is in only one."""
        return self.b.cycles - self.a.cycles if self.a and self.b else None

    @property
    def ratio(self) -> float | None:
        """Cycles in B divided by cycles in A; None if it is in only one, or takes no cycles in A."""
        return self.b.cycles / self.a.cycles if self.a and self.b and self.a.cycles else None

    def as_dict(self) -> dict[str, Any]:
        """An operator in the JSON of a comparison."""
        sides = {"a": self.a and self.a.as_dict(), "b": self.b and self.b.as_dict()}
        return {"name": self.name, "op": self.op, **sides, "delta": self.delta, "ratio": self.ratio}

    @property
    def texts(self) -> tuple[str, ...]:
        """Its row in tables, with columns `COLUMNS`."""
        cycles = [f"{x.cycles:,}" if x else "–" for x in (self.a, self.b)]
        delta = "" if self.delta is None else f"{self.delta:+,}" if self.delta else "0"
        ratio = "" if self.ratio is None else f"{self.ratio:.3f}"
        more = [text for x in (self.a, self.b) for text in ((x.limit, x.cause) if x else ("", ""))]
        return self.name, self.op, *cycles, delta, ratio, *more


#: Columns of tables; those that begin with `>` are aligned to the right.
COLUMNS = (
    *("operator", "kind", ">cycles A", ">cycles B", ">B − A", ">B / A"),
    *("lower bound A", "bottleneck A", "lower bound B", "bottleneck B"),
)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: what ran, cycles, fields of machine and memories, operators."""

    title: str
    cycles: int
    settings: Mapping[str, Any]
    operators: Sequence[Figures]
    causes: Mapping[str, int]

    @classmethod
    def of(cls, data: Any, title: str) -> Side:
        """Read the JSON of a run or prediction; raises `InputError` for anything else."""
        try:
            causes = Counter[str]()
            for entry in data["operators"]:
                causes.update({CAUSES[name] and name: int(count) for name, count in entry["causes"].items()})
            cycles = int(data.get("cycles", data.get("model_cycles")))
            settings = {**data["machine"], "memories": dict(data["memories"])}
            operators = [Figures.of(o) for o in data["operators"]]
            for each in operators:
                _ = each.limit, each.cause  # fails for an unknown resource or cause
            return cls(title, cycles, settings, operators, causes)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{title}: must be the JSON of heald run on a simulator: {what}") from None

    @classmethod
    def of_run(cls, run: Any) -> Side:
        """A side from a run or prediction; raises `InputError` for anything else."""
        if not hasattr(run, "as_dict") or not hasattr(run, "config"):
            raise InputError(f"a run or a prediction is needed, not {type(run).__name__}")
        return cls.of(run.as_dict(), getattr(run, "title", f"prediction on {run.config.name}"))

    @property
    def total(self) -> Figures:
        """The whole run as an operator."""
        return Figures("total", "", "machine", self.cycles, "", 0, 0.0, bottleneck(self.causes))


@dataclass(frozen=True)
class Comparison:
    """What changes from A to B: the configuration, the total cycles, and the cycles of each operator."""

    a: Side
    b: Side

    @property
    def settings(self) -> list[tuple[str, str, str]]:
        """The fields of machine and memories that differ: name, value in A, value in B."""
        return [(name, brief(a), brief(b)) for name, a, b in differences(self.a.settings, self.b.settings)]

    @property
    def total(self) -> Pair:
        """The whole runs."""
        return Pair("total", "", self.a.total, self.b.total)

    @property
    def operators(self) -> list[Pair]:
        """Operators paired by name, else by kind in order; those only in B come last."""
        left, partners = list(self.b.operators), dict[int, Figures]()
        for key in ("name", "op"):
            for number, one in enumerate(self.a.operators):
                same = (x for x in left if getattr(x, key) == getattr(one, key))
                if number not in partners and (other := next(same, None)) is not None:
                    partners[number] = other
                    left.remove(other)
        pairs = [Pair(x.name, x.op, x, partners.get(i)) for i, x in enumerate(self.a.operators)]
        return pairs + [Pair(x.name, x.op, None, x) for x in left]

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald compare --json` prints."""
        return {
            "a": self.a.title,
            "b": self.b.title,
            "configuration": [{"field": name, "a": a, "b": b} for name, a, b in self.settings],
            "total": self.total.as_dict(),
            "operators": [pair.as_dict() for pair in self.operators],
        }

    def print(self, console: Console) -> None:
        """Print the differing fields and the operators as tables."""
        console.print(Text(f"\nA: {self.a.title}\nB: {self.b.title}\n"))
        if self.settings:
            fields = plain_table("configuration", ">A", ">B", no_wrap=True)
            for row in self.settings:
                fields.add_row(*map(Text, row))
            console.print(fields)
        else:
            console.print("one configuration")
        console.print()
        table = plain_table(*COLUMNS, no_wrap=True)
        for pair in (*self.operators, self.total):
            table.add_row(*map(Text, pair.texts))
        # Better lines wrapped by the terminal than numbers that lack digits.
        console.print(table, crop=False, width=1000)

    def __str__(self) -> str:
        written = io.StringIO()
        self.print(Console(file=written, width=200))
        return written.getvalue()

    def svg(self) -> str:
        """A bar chart (SVG) of the cycles of each operator, A above B."""
        pairs = [pair for pair in self.operators if any(x and x.cycles for x in (pair.a, pair.b))]
        most = max((x.cycles for pair in pairs for x in (pair.a, pair.b) if x), default=1)
        d = Drawing(_WIDTH, _ROW * len(pairs) + 30, f"Cycles of {len(pairs)} operators in A and B")
        d.parts.append(f"<style>{_STYLE}</style>")
        for i, style in enumerate("ab"):
            d.box(_NAMES + 90 * i, 4, 14, 12, style)
            d.text(_NAMES + 90 * i + 20, 14, style.upper())
        for number, pair in enumerate(pairs):
            top = 30 + _ROW * number
            d.text(0, top + 18, shortened(pair.name, 30))
            for i, (style, found) in enumerate(zip("ab", (pair.a, pair.b), strict=True)):
                if found is not None:
                    width = (_WIDTH - _NAMES - _NUMBERS) * found.cycles / most
                    told = f"{style.upper()}: {found.name}: {found.cycles:,} cycles, {found.cause}"
                    d.box(_NAMES, top + 15 * i, width, 13, style, told)
                    d.text(_NAMES + width + 5, top + 15 * i + 11, f"{found.cycles:,}")
        return str(d).replace("<svg ", '<svg class="pair" ', 1)

    def _repr_html_(self) -> str:
        return self._filled(whole=False)

    def report(self, path: str | Path) -> None:
        """Write a self-contained HTML page; raises `InputError` if it cannot be written."""
        write_text(Path(path), self._filled(whole=True))

    def _filled(self, whole: bool) -> str:
        return template("heald.report.html", "compare.html").render(
            found=self,
            whole=whole,
            rows=[pair.texts for pair in (*self.operators, self.total)],
            columns=COLUMNS,
            differing=sorted((p for p in self.operators if p.delta), key=lambda p: -abs(p.delta or 0)),
            causes=CAUSES,
            chart=Markup(self.svg()),
            policy=POLICY,
            version=heald.__version__,
            style=file("heald.report.html", "style.css"),
            script=file("heald.report.html", "export.js"),
        )


def differences(a: Any, b: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Fields that differ; for named parts with different names, only the names."""
    nested = isinstance(a, Mapping) and isinstance(b, Mapping)
    if nested and not (name and a.get("name") != b.get("name")):
        for key in dict.fromkeys([*a, *b]):
            yield from differences(a.get(key), b.get(key), f"{name}.{key}".removeprefix("."))
    elif a != b:
        yield name, a, b


def brief(value: Any) -> str:
    """A short text for the value of a field."""
    if isinstance(value, Mapping):
        return str(value.get("name", "other"))
    text = "none" if value is None else str(value)
    return text if len(text) < 40 else f"{text[:38]}…"
