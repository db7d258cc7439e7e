"use strict";
// Lanes of the timeline as typed arrays, with what is needed to draw any range of them quickly.

const Lanes = (() => {
  // The first index with a value greater than `value`, from `low` on.
  function above(array, value, low = 0, high = array.length) {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (array[middle] > value) high = middle; else low = middle + 1;
    }
    return low;
  }

  function sums(steps) {
    const made = new Float64Array(steps.length);
    let total = 0;
    for (let i = 0; i < steps.length; i++) made[i] = total += steps[i];
    return made;
  }

  // Decodes differences from the previous value of the same instruction.
  function perInstruction(steps, code) {
    const made = new Int32Array(steps.length), last = new Map();
    for (let i = 0; i < steps.length; i++) {
      made[i] = last.has(code[i]) ? last.get(code[i]) + steps[i] : steps[i];
      last.set(code[i], made[i]);
    }
    return made;
  }

  function slices(side, raw, kind) {
    const count = side.count;
    const start = new Float64Array(count), end = new Float64Array(count), busy = new Float64Array(count + 1);
    let at = 0;
    for (let i = 0; i < count; i++) {
      start[i] = at += raw.start[i];
      end[i] = at += raw.end[i];
      // A warp is busy in its issue cycle, and held before that.
      busy[i + 1] = busy[i] + (kind === "warp" ? 1 : raw.end[i]);
    }
    const lane = { count, start, end, busy, code: raw.code };
    if (kind === "engine") {
      lane.issued = Float64Array.from(raw.issued, (wait, i) => start[i] - wait);
      lane.parameters = perInstruction(raw.parameters, raw.code);
      lane.values = [0, 1, 2, 3].map(i => perInstruction(raw["value" + i], raw.code));
    }
    return lane;
  }

  function side(described, raw, kind) {
    if (kind === "warp" || kind === "engine") return slices(described, raw, kind);
    const start = sums(raw.cycle), count = described.count;
    if (kind === "channel") {
      const tokens = sums(raw.tokens);
      return { count, start, tokens, most: tokens.reduce((a, b) => Math.max(a, b), 1) };
    }
    const end = start.map(cycle => cycle + 1);
    const busy = Float64Array.from({ length: count + 1 }, (_, i) => i);
    return { count, start, end, busy, address: sums(raw.address), value: raw.value };
  }

  // Prefix counts of entries that differ from the other side's.
  function differences(one, other, kind) {
    const most = Math.max(one.count, other.count), made = new Int32Array(most + 1);
    const keys = { warp: ["start", "end", "code"], engine: ["start", "end", "code", "issued"],
      channel: ["start", "tokens"], grid: ["start", "address", "value"] }[kind];
    for (let i = 0; i < most; i++) {
      let differs = i >= one.count || i >= other.count;
      for (const key of keys) differs = differs || one[key][i] !== other[key][i];
      made[i + 1] = made[i] + (differs ? 1 : 0);
    }
    return made;
  }

  function unpack(description, data) {
    let at = 0;
    for (const lane of description.lanes) {
      const made = lane.sides.map(described => {
        const raw = {};
        for (const key of described.columns) {
          raw[key] = Packed.column(data, at, described.count);
          at += 4 * described.count;
        }
        return side(described, raw, lane.kind);
      });
      lane.model = made[0];
      lane.rtl = made[made.length - 1];
      lane.differences = lane.different ? differences(lane.model, lane.rtl, lane.kind) : null;
    }
    return description;
  }

  // Busy cycles from the start up to cycle `t`; `i` is the number of slices that began by then.
  function busyUpTo(side, kind, t, i) {
    if (i === 0) return 0;
    const rest = side.end[i - 1] - t;
    if (rest <= 0) return side.busy[i];
    return kind === "warp" ? side.busy[i] - Math.min(1, rest) : side.busy[i] - rest;
  }

  return { above, unpack, busyUpTo };
})();
