"use strict";
// The points of an exploration by column, and which of them lie on a front.

const Points = (() => {
  const ALIASES = { time: "seconds_per_inference", energy: "energy_pj", clock: "fmax_mhz", bytes: "bytes_moved",
    number: "point" };

  function open(data) {
    const count = data.number.length, metric = {};
    for (const each of data.metrics) {
      metric[each.name] = Float64Array.from(data.metric[each.name], value => value === null ? NaN : value);
    }
    const states = data.states, complete = states.indexOf("complete"), infeasible = states.indexOf("infeasible");
    const front = new Set(data.front), place = new Map(data.number.map((number, i) => [number, i]));
    const onFront = Uint8Array.from(data.number, number => front.has(number) ? 1 : 0);
    const confirmation = i => data.confirmations[data.number[i]] || null;
    const value = (name, i) => name in data.varying ? data.varying[name][i] : name in data.fixed ? data.fixed[name] : null;
    // Everything that filters and tables can ask for, by name: functions of the index.
    const fields = new Map();
    for (const [name] of data.fields) fields.set(name, i => value(name, i));
    for (const { name } of data.parameters) fields.set(name, i => data.parameter[name][i]);
    for (const { name } of data.metrics) fields.set(name, i => Number.isNaN(metric[name][i]) ? null : metric[name][i]);
    fields.set("point", i => data.number[i]);
    fields.set("state", i => states[data.state[i]]);
    fields.set("front", i => onFront[i] ? "yes" : "no");
    fields.set("confirmed", i => {
      const found = confirmation(i);
      return found === null ? null : found.confirmed ? "yes" : "no";
    });
    fields.set("reason", i => data.reason[i] === null ? null : data.reasons[data.reason[i]]);
    fields.set("cause", i => data.cause[i] === null ? null : data.cause[i] + 1);
    const field = name => fields.get(name) || fields.get(ALIASES[name]) || null;
    const directions = Object.fromEntries(data.metrics.map(m => [m.name, m.direction === data.maximize ? -1 : 1]));
    return { data, count, metric, fields, field, machine: value, aliases: ALIASES, onFront, confirmation, directions, place,
      known: Object.fromEntries(data.metrics.map(m => [m.name, m])),
      isComplete: i => data.state[i] === complete, isInfeasible: i => data.state[i] === infeasible,
      has: (name, i) => !Number.isNaN(metric[name][i]),
      infeasible: data.state.filter(s => s === infeasible).length };
  }

  // Indices of points that no other point beats in `x` and `y`, ordered by x.
  function front(points, indices, x, y) {
    const a = points.metric[x], b = points.metric[y], s = points.directions[x], t = points.directions[y];
    const order = indices.filter(i => points.has(x, i) && points.has(y, i))
      .sort((i, j) => s * (a[i] - a[j]) || t * (b[i] - b[j]));
    const found = [];
    let best = Infinity;
    for (const i of order) {
      if (t * b[i] < best) {
        best = t * b[i];
        found.push(i);
      }
    }
    return found;
  }

  return { open, front };
})();
