"use strict";
// The timeline: the visible range, and how wheel, pointer, keys and buttons change it.

// Slices in words.
const Words = {
  number: value => value.toLocaleString("en-GB"),

  operator(state, code) {
    const operator = state.operators[state.instructions.operator[code >> 1]];
    return operator ? operator.name : "";
  },

  short(state, code) {
    const name = state.instructions.name[code >> 1], operator = Words.operator(state, code);
    return operator && state.operators.length > 1 ? `${name} · ${operator}` : name;
  },

  entry(state, lane, above, index) {
    const side = above ? lane.model : lane.rtl, lines = [];
    if (index < 0 || index >= side.count) return "";
    const where = `${lane.name}, ${lane.sides.length === 1 ? "model and RTL" : above ? "model" : "RTL"}`;
    if (lane.kind === "channel") {
      lines.push(`${where}: ${side.tokens[index]} tokens from cycle ${Words.number(side.start[index])} on`);
    } else if (lane.kind === "grid") {
      const value = side.value ? `, value 0x${(side.value[index] >>> 0).toString(16)}` : "";
      lines.push(`${where}: store to byte 0x${side.address[index].toString(16)}${value} in cycle ${Words.number(side.start[index])}`);
    } else {
      lines.push(...Words.slice(state, lane, side, index, where));
    }
    if (lane.differences && lane.differences[index + 1] > lane.differences[index]) {
      const other = above ? lane.rtl : lane.model, name = above ? "RTL" : "model";
      const told = index < other.count ? Words.times(state, lane, other, index) : "nothing";
      lines.push(`≠ differs: ${name} has ${told}`);
    }
    return lines.join("\n");
  },

  times(state, lane, side, index) {
    if (lane.kind === "channel") return `${side.tokens[index]} tokens from cycle ${Words.number(side.start[index])} on`;
    if (lane.kind === "grid") return `a store to byte 0x${side.address[index].toString(16)}` +
      (side.value ? ` of value 0x${(side.value[index] >>> 0).toString(16)}` : "") + ` in cycle ${Words.number(side.start[index])}`;
    return `${state.instructions.text[side.code[index] >> 1]}, cycles ${Words.number(side.start[index])} to ${Words.number(side.end[index] - 1)}`;
  },

  slice(state, lane, side, index, where) {
    const code = side.code[index], at = code >> 1, table = state.instructions;
    const start = side.start[index], end = side.end[index], operator = Words.operator(state, code);
    const lines = [`${table.text[at]}`, `${where}${operator ? `, operator ${operator}` : ""}, warp ${table.warp[at]}, pc ${table.pc[at]}`];
    if (lane.kind === "warp") {
      const held = end - 1 - start;
      lines.push((code & 1 ? "did nothing (predicate false) in" : "issued in") + ` cycle ${Words.number(end - 1)}` +
        (held > 0 ? `, held for ${Words.number(held)} cycles` : ""));
      const found = Words.operation(state, at, end - 1, side === lane.model && lane.sides.length > 1);
      if (found && !(code & 1)) lines.push(Words.operands(state, found.side, found.index));
    } else {
      lines.push(`issued in cycle ${Words.number(side.issued[index])}, at work from ${Words.number(start)}, complete in ${Words.number(end - 1)} (${Words.number(end - start)} cycles)`);
      lines.push(Words.operands(state, side, index));
    }
    return lines.filter(line => line);
  },

  // The operation of an engine that an instruction issued in a given cycle.
  operation(state, at, cycle, model) {
    for (const lane of state.lanes) {
      if (lane.kind !== "engine") continue;
      const side = model ? lane.model : lane.rtl;
      for (let i = Lanes.above(side.issued, cycle) - 1; i >= 0 && side.issued[i] === cycle; i--) {
        if (side.code[i] >> 1 === at) return { side, index: i };
      }
    }
    return null;
  },

  operands(state, side, index) {
    const name = state.instructions.name[side.code[index] >> 1];
    const number = side.parameters[index];
    if (number < 0 || !state.operands[name]) return "";
    const value = (what, v) => `${what} ${what === "memory" ? "0x" + v.toString(16) : Words.number(v)}`;
    const parts = state.operands[name].map((what, i) => value(what, side.values[i][index] >>> 0));
    const given = state.parameterNames[name].map((what, i) => value(what, state.parameters[number][i]));
    return parts.join(", ") + (given.length ? "\n" + given.join(", ") : "");
  },
};

const Timeline = (() => {
  const canvas = document.getElementById("canvas"), tip = document.getElementById("tip");
  const selected = document.getElementById("selected");
  // Pixels of the lane names.
  const GUTTER = 92;
  const view = { from: 0, to: 1 };
  let state = null, wanted = false, size = { width: 0, height: 0, gutter: GUTTER };

  function resize() {
    if (!state) return;
    const { rows, height } = Painter.layout(state.lanes, state.shown, state.divergence);
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    state.rows = rows;
    state.focus = Math.min(state.focus, rows.length - 1);
    size = { width, height: Math.max(height, 80), gutter: GUTTER };
    canvas.style.height = `${size.height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(size.height * ratio);
    canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }

  function draw() {
    if (size.width > size.gutter) Painter.paint(canvas.getContext("2d"), size, view, state);
  }

  function later() {
    if (wanted) return;
    wanted = true;
    requestAnimationFrame(() => { wanted = false; draw(); });
  }

  function show(from, to) {
    const least = Math.min(8, state.cycles), span = Math.min(Math.max(to - from, least), state.cycles);
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(0, middle - span / 2), state.cycles - span);
    view.to = view.from + span;
    later();
  }

  function zoom(factor, share = 0.5) {
    const span = view.to - view.from, at = view.from + share * span;
    const made = Math.min(Math.max(span * factor, Math.min(8, state.cycles)), state.cycles);
    show(at - share * made, at + (1 - share) * made);
  }

  function pan(cycles) {
    const span = view.to - view.from, from = Math.min(Math.max(0, view.from + cycles), state.cycles - span);
    show(from, from + span);
  }

  function whole() { show(0, state.cycles); }

  function divergence() {
    if (!state.divergence) return;
    const at = state.divergence.cycle;
    show(at - 60, at + 60);
    say(state.divergence.text);
  }

  function operator(number) {
    const { start, end, name } = state.operators[number];
    const room = Math.max(4, (end - start) * 0.03);
    show(start - room, end + room);
    say(`operator ${name}: cycles ${Words.number(start)} to ${Words.number(end - 1)}`);
  }

  function say(text) { selected.textContent = text; }

  // Row, side and entry at a position on the canvas.
  function hit(x, y) {
    const number = state.rows.findIndex(r => y >= r.y && y < r.y + r.height);
    if (number < 0) return null;
    if (x < size.gutter) return { number, row: state.rows[number].lane, above: true, index: -1 };
    const { lane, y: top } = state.rows[number], above = y < top + Painter.ROW;
    const side = above ? lane.model : lane.rtl;
    const scale = (view.to - view.from) / (size.width - size.gutter);
    const t = view.from + (x - size.gutter) * scale;
    let index = Lanes.above(side.start, t) - 1;
    if (side.end && index >= 0 && side.end[index] <= t - 1.5 * scale) index = -1;
    if (side.end && index < 0 && side.count && Math.abs(side.start[Lanes.above(side.start, t)] - t) < 1.5 * scale) {
      index = Lanes.above(side.start, t);
    }
    return { number, row: lane, above, index };
  }

  function hover(event) {
    const box = canvas.getBoundingClientRect();
    const found = hit(event.clientX - box.left, event.clientY - box.top);
    const text = found && found.index >= 0 ? Words.entry(state, found.row, found.above, found.index) : "";
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = `${Math.max(0, Math.min(x + 14, size.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 18}px`;
  }

  function select(found) {
    if (!found) return;
    state.focus = found.number;
    state.selected = found.index >= 0 ? found : null;
    if (found.index >= 0) say(Words.entry(state, found.row, found.above, found.index));
    else focus(0);
    later();
  }

  function step(by) {
    const row = state.rows[state.focus];
    if (!row) return;
    const last = state.selected && state.selected.row === row.lane ? state.selected : null;
    const above = last ? last.above : false, side = above ? row.lane.model : row.lane.rtl;
    if (!side.count) return;
    const first = Math.min(Lanes.above(side.start, view.from - 1e-9), side.count - 1);
    const index = last ? Math.min(Math.max(0, last.index + by), side.count - 1) : first;
    const start = side.start[index], end = side.end ? side.end[index] : start + 1, span = view.to - view.from;
    if (start < view.from || end > view.to) show(start - span / 4, start + span * 3 / 4);
    select({ number: state.focus, row: row.lane, above, index });
  }

  function focus(by) {
    state.focus = Math.min(Math.max(0, state.focus + by), state.rows.length - 1);
    const row = state.rows[state.focus];
    if (row) say(`${row.lane.name}: ${Words.number(row.lane.rtl.count)} entries` +
      (row.lane.different ? `, ${Words.number(row.lane.different)} differ` : ", model and RTL agree"));
    later();
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = view.to - view.from;
    const actions = {
      ArrowLeft: () => pan(-span / 8), ArrowRight: () => pan(span / 8),
      PageUp: () => pan(-span), PageDown: () => pan(span),
      ArrowUp: () => focus(-1), ArrowDown: () => focus(1),
      Home: () => pan(-state.cycles), End: () => pan(state.cycles),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": whole,
      n: () => step(1), p: () => step(-1), d: divergence,
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  function wheel(event) {
    const box = canvas.getBoundingClientRect(), width = size.width - size.gutter;
    const unit = event.deltaMode === 1 ? 16 : 1, span = view.to - view.from;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (sideways && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
      event.preventDefault();
      pan(sideways * unit / width * span);
    } else if (event.deltaY < 0 || span < state.cycles) {
      // The whole run cannot be zoomed out further, so the wheel scrolls the page.
      event.preventDefault();
      const share = (event.clientX - box.left - size.gutter) / width;
      zoom(Math.exp(event.deltaY * unit / 300), Math.min(Math.max(share, 0), 1));
    }
  }

  function drags() {
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", event => {
      pointers.set(event.pointerId, event.clientX);
      canvas.setPointerCapture(event.pointerId);
      moved = 0;
    });
    canvas.addEventListener("pointermove", event => {
      const last = pointers.get(event.pointerId);
      if (last === undefined) { hover(event); return; }
      tip.hidden = true;
      const width = size.width - size.gutter, span = view.to - view.from;
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
      const by = event.clientX - last;
      moved += Math.abs(by);
      pointers.set(event.pointerId, event.clientX);
      if (others.length === 1) {
        const before = Math.max(10, Math.abs(last - others[0])), now = Math.max(10, Math.abs(event.clientX - others[0]));
        const box = canvas.getBoundingClientRect();
        zoom(before / now, Math.min(1, Math.max(0, (others[0] - box.left - size.gutter) / width)));
      } else if (by) pan(-by / width * span);
    });
    const end = event => {
      if (pointers.delete(event.pointerId) && event.type === "pointerup" && moved < 4) {
        const box = canvas.getBoundingClientRect();
        select(hit(event.clientX - box.left, event.clientY - box.top));
        hover(event);
      }
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  function buttons() {
    const by = id => document.getElementById(id);
    by("view-whole").addEventListener("click", whole);
    const first = by("view-divergence");
    first.disabled = !state.divergence;
    if (!state.divergence) first.textContent = "No divergence";
    first.addEventListener("click", divergence);
    by("zoom-in").addEventListener("click", () => zoom(0.5));
    by("zoom-out").addEventListener("click", () => zoom(2));
    const list = by("view-operator");
    state.operators.forEach((each, i) => list.add(new Option(`${i + 1} ${each.name}`, i)));
    list.addEventListener("change", () => { if (list.value !== "") operator(Number(list.value)); });
    const inner = by("inner"), count = kind => state.lanes.filter(lane => lane.kind === kind).length;
    by("inner-count").textContent = ` (${count("warp")} and ${count("channel")})`;
    const boxes = [...document.querySelectorAll("#timeline input[type=checkbox]")];
    const choose = () => {
      const wanted = boxes.filter(box => box.checked && (inner.open || !inner.contains(box)));
      state.shown = new Set(wanted.map(box => box.value));
      resize();
    };
    for (const box of boxes) {
      box.parentElement.hidden = !count(box.value);
      box.addEventListener("change", choose);
    }
    inner.addEventListener("toggle", choose);
    // Open these lanes at once if they differ.
    inner.open = state.lanes.some(lane => lane.different && ["warp", "channel"].includes(lane.kind));
    for (const button of document.querySelectorAll("button.show")) {
      button.addEventListener("click", () => {
        operator(Number(button.dataset.operator));
        document.getElementById("timeline").scrollIntoView();
        canvas.focus({ preventScroll: true });
      });
    }
  }

  function open(description) {
    state = { ...description, colours: Painter.colours(), rows: [], focus: 0, selected: null,
      shown: new Set(["engine", "grid"]) };
    Object.assign(view, { from: 0, to: Math.max(1, state.cycles) });
    document.getElementById("loading").hidden = true;
    resize();
    buttons();
    drags();
    canvas.addEventListener("wheel", wheel, { passive: false });
    canvas.addEventListener("keydown", key);
    new ResizeObserver(() => { if (canvas.clientWidth !== size.width) resize(); }).observe(canvas);
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
      matchMedia(query).addEventListener("change", () => {
        state.colours = Painter.colours();
        draw();
      });
    }
  }

  // The visible timeline as SVG text.
  function picture() {
    const recorded = new Export.Recorder(size.width, size.height, text => canvas.getContext("2d").measureText(text));
    Painter.paint(recorded, size, view, state);
    return recorded.text();
  }

  return { open, view, draw, picture, state: () => state };
})();
