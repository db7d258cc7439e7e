"use strict";
// Numbers for readers, and axes for plots.

const Numbers = (() => {
  const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
  const some = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 4 });
  const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"],
    [1e-9, "n"], [1e-12, "p"], [1e-15, "f"]];

  function plain(value) {
    return Math.abs(value) >= 1000 || Number.isInteger(value) ? whole.format(value) : some.format(value);
  }

  // A value with the prefix that leaves 1 to 999 before the point.
  function prefixed(value, unit, digits = 4) {
    if (!value) return unit ? `0 ${unit}` : "0";
    const size = Math.abs(Number(value.toPrecision(digits)));
    const [factor, prefix] = PREFIXES.find(([factor]) => size >= factor) || PREFIXES[PREFIXES.length - 1];
    const share = value / factor;
    // Digits align in columns; whole numbers and axes need no fixed digits.
    const told = share.toPrecision(digits), text = digits > 3 && !Number.isInteger(share) ? told : String(Number(told));
    return prefix || unit ? `${text} ${prefix}${unit}` : text;
  }

  // A metric as in tables; `known` holds the metrics' number formats.
  function metric(known, value) {
    if (value === null || Number.isNaN(value)) return "–";
    if (known.style === "percent") return `${(100 * value).toFixed(1)} %`;
    if (known.style === "prefixed") return prefixed(value * known.scale, known.unit);
    return known.unit ? `${plain(value)} ${known.unit}` : plain(value);
  }

  // A metric as on axes: short, without the unit that the axis shows.
  function tick(known, value) {
    if (known.style === "percent") return `${Number((100 * value).toPrecision(3))} %`;
    return known.style === "prefixed" ? prefixed(value * known.scale, known.unit, 3) : prefixed(value, "", 3);
  }

  // A linear or logarithmic scale from `low` to `high`; `at` maps to 0..1, `from` back.
  function scale(low, high, log) {
    const f = log ? Math.log : x => x, g = log ? Math.exp : x => x, a = f(low), b = f(high);
    return { low, high, log, at: value => (f(value) - a) / (b - a), from: share => g(a + share * (b - a)) };
  }

  // A scale with room around the values, for a plot to fill.
  function around(low, high, log) {
    if (low === high) {
      const room = Math.abs(low) / 10 || 1;
      return log ? scale(low / 1.1, high * 1.1, true) : scale(low - room, high + room, false);
    }
    if (log) {
      const room = (high / low) ** 0.05;
      return scale(low / room, high * room, true);
    }
    const room = 0.05 * (high - low), below = low - room;
    return scale(low >= 0 && (below < 0 || low < 0.2 * high) ? 0 : below, high + room, false);
  }

  function steps(low, high, most) {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * (1 - 1e-9));
    const made = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
      made.push(Number((i * step).toPrecision(12)));
    }
    return made;
  }

  function ticks(scale, most) {
    if (!scale.log || scale.high / scale.low < 6) return steps(scale.low, scale.high, most);
    const first = Math.floor(Math.log10(scale.low)), last = Math.ceil(Math.log10(scale.high));
    const made = [];
    for (const factors of [[1, 2, 5], [1, 3], [1]]) {
      made.length = 0;
      for (let i = first; i <= last; i++) {
        for (const f of factors) {
          const value = Number(`${f}e${i}`);
          if (value >= scale.low && value <= scale.high) made.push(value);
        }
      }
      if (made.length <= most + 1) return made;
    }
    const each = Math.ceil(made.length / most);
    return made.filter((_, i) => i % each === 0);
  }

  return { plain, prefixed, metric, tick, scale, around, ticks };
})();
