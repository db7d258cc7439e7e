"use strict";
// Filters such as `luts<60k rows=8 front=yes`: all terms must hold.

const Filter = (() => {
  const TERM = /\s*(?:([A-Za-z_]\w*)\s*(<=|>=|!=|≤|≥|≠|==|=|<|>|~)\s*("[^"]*"|[^\s"]+)|"([^"]*)"|([^\s"]+))/y;
  const PREFIX = { p: 1e-12, n: 1e-9, u: 1e-6, "µ": 1e-6, "μ": 1e-6, m: 1e-3, k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  const NUMBER = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([pnuµμmkKMGT]?)(s|J|B|Hz|%)?$/;
  const SAME = { "≤": "<=", "≥": ">=", "≠": "!=", "==": "=" };

  // A number with a prefix and a unit, in the metric's unit; null for other text.
  function number(text) {
    const found = NUMBER.exec(text);
    if (!found) return null;
    const value = Number(found[1]) * (found[2] ? PREFIX[found[2]] : 1);
    // Energies are in pJ, clocks in MHz.
    return value * ({ J: 1e12, Hz: 1e-6, "%": 0.01 }[found[3]] || 1);
  }

  const HOLDS = { "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b };
  const contains = (value, part) => value !== null && String(value).toLowerCase().includes(part);

  function isEqual(value, wanted) {
    if (value === null) return wanted === "none";
    const asNumber = number(wanted);
    // A value typed with fewer digits than the measured one still counts as equal.
    if (typeof value === "number" && asNumber !== null) return Math.abs(value - asNumber) <= 1e-9 * Math.abs(value);
    return String(value).toLowerCase() === wanted.toLowerCase();
  }

  function oneOf(get, text) {
    const tests = text.split(",").map(part => {
      const [low, high] = part.split("..").map(number);
      if (low != null && high != null) return value => value !== null && value >= low && value <= high;
      return value => isEqual(value, part);
    });
    return i => {
      const value = get(i);
      return tests.some(test => test(value));
    };
  }

  function compare(points, name, operator, text) {
    const get = points.field(name);
    if (!get) throw new Error(`there is no ${name}; valid are ${[...points.fields.keys()].join(", ")}`);
    if (operator === "~") return i => contains(get(i), text.toLowerCase());
    if (operator === "=") return oneOf(get, text);
    if (operator === "!=") {
      const test = oneOf(get, text);
      return i => !test(i);
    }
    const value = number(text), other = value === null ? points.field(text) : () => value, holds = HOLDS[operator];
    if (!other) throw new Error(`${name}${operator} needs a number or another name, not ${text}`);
    return i => {
      const a = get(i), b = other(i);
      return typeof a === "number" && typeof b === "number" && holds(a, b);
    };
  }

  function sought(points, text) {
    const part = text.toLowerCase(), names = ["point", "state", "reason", ...points.data.parameters.map(p => p.name)];
    return i => names.some(name => contains(points.field(name)(i), part));
  }

  // A filter text as a function of a point's index; throws if the text is invalid.
  function parse(text, points) {
    const tests = [], end = text.trimEnd().length;
    TERM.lastIndex = 0;
    while (TERM.lastIndex < end) {
      const at = TERM.lastIndex, found = TERM.exec(text);
      if (!found) throw new Error(`cannot be read from “${text.slice(at).trim()}” on`);
      const [, name, operator, value, quoted, word] = found;
      if (name) tests.push(compare(points, name, SAME[operator] || operator, value.replaceAll('"', "")));
      else if (word !== undefined && /[<>=~≤≥≠]/.test(word)) throw new Error(`${word} needs a name, then a value`);
      else tests.push(sought(points, quoted ?? word));
    }
    return i => tests.every(test => test(i));
  }

  return { parse, number };
})();
