"use strict";
// Draws the timeline on a canvas: a density per pixel, or single slices if there is room.

const Painter = (() => {
  const ROW = 12, GAP = 5, TOP = 44;
  // From top to bottom: engines that compute and move data, then what drives them.
  const ORDER = { engine: 0, grid: 1, warp: 2, channel: 3 };

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const named = {};
    for (const name of ["page", "panel", "ink", "dim", "line", "accent", "bad", "array", "grid", "load", "store", "issue", "held"]) {
      named[name] = style.getPropertyValue("--" + name).trim();
    }
    return named;
  }

  // Positions of lanes, from top to bottom; heights in pixels.
  function layout(lanes, shown, divergence) {
    let y = TOP + (divergence ? 16 : 0);
    const rows = [];
    for (const lane of [...lanes].sort((a, b) => ORDER[a.kind] - ORDER[b.kind])) {
      if (!shown.has(lane.kind)) continue;
      const last = rows[rows.length - 1];
      if (last && last.lane.kind !== lane.kind) y += 8;
      rows.push({ lane, y, height: 2 * ROW + 1 });
      y += 2 * ROW + 1 + GAP;
    }
    return { rows, height: y + 4 };
  }

  function fill(lane, c) {
    if (lane.kind === "warp") return c.issue;
    if (lane.kind === "grid") return c.grid;
    const name = lane.name;
    return name === "gemm" ? c.array : name === "cgra" ? c.grid : name === "store" ? c.store : c.load;
  }

  function paint(context, size, view, state) {
    const c = state.colours, left = size.gutter, width = size.width - left;
    const scale = width / (view.to - view.from);
    const frame = { context, c, left, width, scale, from: view.from, to: view.to, state };
    context.clearRect(0, 0, size.width, size.height);
    context.fillStyle = c.page;
    context.fillRect(0, 0, size.width, size.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    ruler(frame, size);
    operators(frame);
    for (const row of state.rows) {
      const { lane, y } = row;
      context.fillStyle = c.panel;
      context.fillRect(left, y, width, row.height);
      context.save();
      context.beginPath();
      context.rect(left, y - 2, width, row.height + 4);
      context.clip();
      const draw = lane.kind === "channel" ? tokens : slices;
      draw(frame, lane, lane.model, y, true);
      draw(frame, lane, lane.rtl, y + ROW + 1, false);
      context.restore();
      label(frame, row, row === state.rows[state.focus]);
    }
    marks(frame, size);
  }

  function ruler(f, size) {
    const { context, c, left, width } = f;
    const span = f.to - f.from, raw = span / Math.max(2, width / 110);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max(1, [1, 2, 5, 10].find(n => n * power >= raw) * power);
    context.textAlign = "left";
    for (let t = Math.ceil(f.from / step) * step; t < f.to; t += step) {
      const x = left + (t - f.from) * f.scale;
      context.fillStyle = c.line;
      context.fillRect(x, 14, 1, size.height - 14);
      context.fillStyle = c.dim;
      const text = Math.round(t).toLocaleString("en-GB");
      if (x + 3 + context.measureText(text).width < left + width) context.fillText(text, x + 3, 8);
    }
    context.fillStyle = c.dim;
    context.fillText("cycle", 4, 8);
  }

  function operators(f) {
    const { context, c, left, width } = f;
    context.fillStyle = c.dim;
    context.fillText("operator", 4, 29);
    let last = -1, at = 0;
    // Their cycles follow each other, while their spans overlap.
    f.state.operators.forEach((operator, i) => {
      const x0 = Math.max(left, left + (at - f.from) * f.scale);
      at += operator.cycles;
      const x1 = Math.min(left + width, left + (at - f.from) * f.scale);
      if (x1 <= left || x0 >= left + width || (x1 - x0 < 1 && Math.round(x0) === last)) return;
      last = Math.round(x0);
      context.fillStyle = i % 2 ? c.held : c.line;
      context.fillRect(x0, 21, Math.max(1, x1 - x0 - 1), 16);
      words(f, operator.name, x0, x1, 29, c.ink);
    });
  }

  // A text in a box, shortened to fit.
  function words(f, text, x0, x1, y, colour) {
    const room = x1 - x0 - 6, width = t => f.context.measureText(t).width;
    let count = text.length;
    if (width(text) > room) {
      count = Math.floor(count * room / width(text));
      while (count > 1 && width(text.slice(0, count) + "…") > room) count--;
      if (count < 2) return;
      text = text.slice(0, count) + "…";
    }
    f.context.fillStyle = colour;
    f.context.fillText(text, x0 + 4, y);
  }

  function label(f, row, focused) {
    const { context, c, left } = f;
    const { lane, y } = row;
    context.fillStyle = c.page;
    context.fillRect(0, y - 2, left, row.height + 4);
    context.fillStyle = lane.different ? c.bad : c.ink;
    context.font = (focused || lane.different ? "bold " : "") + "11px system-ui, sans-serif";
    context.fillText((focused ? "▸" : "") + (lane.different ? "≠ " : "") + lane.name, 4, y + ROW);
    context.font = "9px system-ui, sans-serif";
    context.fillStyle = c.dim;
    context.fillText("M", left - 12, y + ROW / 2 + 1);
    context.fillText("R", left - 12, y + ROW * 1.5 + 2);
    context.font = "11px system-ui, sans-serif";
  }

  function slices(f, lane, side, y, above) {
    const first = Lanes.above(side.end, f.from), last = Lanes.above(side.start, f.to, first);
    if (last - first > 1.5 * f.width) density(f, lane, side, y, first, last);
    else single(f, lane, side, y, first, last);
    if (lane.differences) hatched(f, lane, side, y, first, last);
  }

  // The height of a pixel is its fraction of busy cycles; rare events stay visible.
  function density(f, lane, side, y, first, last) {
    const { context } = f;
    context.fillStyle = fill(lane, f.c);
    let i = Lanes.above(side.start, f.from, 0, last), before = Lanes.busyUpTo(side, lane.kind, f.from, i);
    for (let x = 0; x < f.width; x++) {
      const t = f.from + (x + 1) / f.scale;
      i = Lanes.above(side.start, t, i, last);
      const now = Lanes.busyUpTo(side, lane.kind, t, i), share = (now - before) * f.scale;
      before = now;
      if (share > 0) {
        const height = Math.max(2, Math.min(1, share) * ROW);
        context.fillRect(f.left + x, y + ROW - height, 1, height);
      }
    }
  }

  function single(f, lane, side, y, first, last) {
    const { context, c } = f;
    const solid = fill(lane, c), names = f.state.instructions.name;
    for (let i = first; i < last; i++) {
      const x0 = Math.max(f.left - 2, f.left + (side.start[i] - f.from) * f.scale);
      const x1 = Math.min(f.left + f.width + 2, f.left + (side.end[i] - f.from) * f.scale);
      const gap = x1 - x0 > 3 ? 1 : 0;
      if (lane.kind === "warp") {
        const at = Math.max(x0, f.left + (side.end[i] - 1 - f.from) * f.scale);
        context.fillStyle = c.held;
        context.fillRect(x0, y + ROW - 4, Math.max(0.5, x1 - x0 - gap), 4);
        context.fillStyle = solid;
        const empty = side.code[i] & 1;
        context.fillRect(at, empty ? y + ROW - 4 : y, Math.max(0.8, x1 - at - gap), empty ? 4 : ROW);
        const name = names[side.code[i] >> 1];
        if (x1 - at > 24) words(f, empty ? `(${name})` : name, at, x1, y + ROW / 2, c.page);
        else if (at - x0 > 30) words(f, name, x0, at, y + ROW / 2 - 1, c.ink);
      } else {
        context.fillStyle = solid;
        context.fillRect(x0, y, Math.max(0.8, x1 - x0 - gap), ROW);
        if (x1 - x0 > 24 && side.code) entry(f, side.code[i], x0, x1, y + ROW / 2 + 1);
      }
    }
  }

  // The instruction of an engine, with its operator if both fit.
  function entry(f, code, x0, x1, y) {
    const name = f.state.instructions.name[code >> 1], both = Words.short(f.state, code);
    words(f, f.context.measureText(both).width + 8 < x1 - x0 ? both : name, x0, x1, y, f.c.page);
  }

  function hatched(f, lane, side, y, first, last) {
    const { context, c } = f, counts = lane.differences;
    context.strokeStyle = context.fillStyle = c.bad;
    context.lineWidth = 1.5;
    if (last - first > 1.5 * f.width) {
      let i = first;
      for (let x = 0; x < f.width; x++) {
        const next = Lanes.above(side.start, f.from + (x + 1) / f.scale, i, last);
        if (counts[next] > counts[i]) context.fillRect(f.left + x, y, 1, 3);
        i = next;
      }
      return;
    }
    const end = side.end || side.start;
    for (let i = first; i < last; i++) {
      if (counts[i + 1] === counts[i]) continue;
      const x0 = Math.max(f.left - 3, f.left + (side.start[i] - f.from) * f.scale);
      const x1 = Math.min(f.left + f.width + 3, Math.max(x0 + 2, f.left + (end[i] - f.from) * f.scale));
      context.strokeRect(x0 + 0.5, y + 0.5, Math.max(1, x1 - x0 - 1), ROW - 1);
      context.beginPath();
      for (let x = x0 + 6; x < x1; x += x1 - x0 > 60 ? 18 : 6) {
        context.moveTo(x, y + 1);
        context.lineTo(x - 4, y + ROW - 1);
      }
      context.stroke();
    }
  }

  // Tokens of a channel as steps; each pixel shows the maximum.
  function tokens(f, lane, side, y) {
    const { context, c } = f;
    const last = Lanes.above(side.start, f.to), most = Math.max(lane.model.most, lane.rtl.most);
    let i = Math.max(0, Lanes.above(side.start, f.from) - 1);
    const from = i;
    context.fillStyle = c.accent;
    for (let x = 0; x < f.width && side.count; x++) {
      const next = Lanes.above(side.start, f.from + (x + 1) / f.scale, i, last);
      let high = side.tokens[Math.max(0, i)];
      for (let j = i; j < next; j++) high = Math.max(high, side.tokens[j]);
      i = Math.max(i, next - 1);
      if (high > 0) {
        const height = Math.max(2, high / most * ROW);
        context.fillRect(f.left + x, y + ROW - height, 1, height);
      }
    }
    if (lane.differences) hatched(f, lane, side, y, from, last);
  }

  function marks(f, size) {
    const { context, c, state } = f;
    const line = (cycle, colour, text) => {
      if (cycle < f.from || cycle > f.to) return;
      const x = f.left + (cycle - f.from) * f.scale;
      context.fillStyle = colour;
      context.fillRect(x - 0.75, 14, 1.5, size.height - 14);
      context.beginPath();
      context.moveTo(x - 6, 12);
      context.lineTo(x + 6, 12);
      context.lineTo(x, 21);
      context.fill();
      if (text) {
        const wide = context.measureText(text).width + 8, right = x + wide + 8 > size.width;
        context.fillText(text, right ? x - wide - 2 : x + 10, 47);
      }
    };
    if (state.selected) {
      const { row, above, index } = state.selected;
      const place = state.rows.find(r => r.lane === row);
      const side = above ? row.model : row.rtl;
      if (place && side.count > index) {
        const x0 = f.left + (side.start[index] - f.from) * f.scale;
        const x1 = side.end ? f.left + (side.end[index] - f.from) * f.scale : x0 + 2;
        const a = Math.max(f.left - 4, x0), b = Math.min(f.left + f.width + 4, x1);
        if (b > a) {
          context.strokeStyle = c.ink;
          context.lineWidth = 2;
          context.strokeRect(a - 1, place.y + (above ? 0 : ROW + 1) - 1, Math.max(3, b - a) + 1, ROW + 2);
        }
      }
    }
    if (state.divergence) line(state.divergence.cycle, c.bad, "≠ first divergence");
  }

  return { paint, layout, colours, ROW };
})();
