"use strict";
// Pictures of the operators of one point on its machine: timeline and roofline.

const Pictures = (() => {
  const { element } = Svg, n = Numbers.plain;

  function drawing(place, width, height, label) {
    place.replaceChildren();
    return element(place, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  }

  function told(o) {
    const lines = [`${o.number} ${o.name} (${o.op}, ${o.where})`,
      `${n(o.cycles)} cycles; a span of ${n(o.span)}, from ${n(o.start)} to ${n(o.end)}`];
    if (o.least) lines.push(`lower bound ${n(o.least)} by ${o.bound}`);
    if (o.macs) lines.push(`${n(o.macs)} MACs`);
    if (o.moved) lines.push(`${Numbers.prefixed(o.moved, "B")} moved`);
    return lines.join("\n");
  }

  function timeline(place, list, cycles) {
    const width = 720, label = 190, row = list.length > 80 ? 14 : 19, top = 26, right = 16;
    const height = top + list.length * row + 6;
    const svg = drawing(place, width, height, `Timeline of ${list.length} operators in ${n(cycles)} cycles`);
    const scale = Numbers.scale(0, cycles || 1, false), at = cycle => label + scale.at(cycle) * (width - label - right);
    for (const tick of Numbers.ticks(scale, 6)) {
      element(svg, "path", { class: "pale", d: `M${at(tick)} ${top - 6}V${height}` });
      element(svg, "text", { class: "small middle", x: at(tick), y: top - 11 }, Numbers.prefixed(tick, "", 3));
    }
    list.forEach((o, i) => {
      const y = top + i * row, group = element(svg, "g", { class: `operator ${o.where}` }, undefined, told(o));
      const name = `${o.number} ${o.name}`, own = Math.max(o.start, o.end - o.cycles);
      const short = name.length > 29 ? `${name.slice(0, 12)}…${name.slice(-16)}` : name;
      const bar = (style, from, least) => element(group, "rect", { class: style, x: at(from), y: y + 3,
        width: Math.max(at(o.end) - at(from), least), height: row - 6 });
      // An invisible strip that makes the whole row respond to the pointer.
      element(group, "rect", { class: "row", x: 0, y, width, height: row });
      element(group, "text", { class: "small", x: 0, y: y + row - 6 }, short);
      bar("bar pale-bar", o.start, 0);
      bar("bar", own, 1);
    });
  }

  // A frame with logarithmic axes for operational intensities and rates.
  function axes(svg, xs, ys, frame) {
    const { left, right, top, bottom } = frame;
    const x = v => left + xs.at(v) * (right - left), y = v => bottom - ys.at(v) * (bottom - top);
    for (const tick of Numbers.ticks(xs, 7)) {
      element(svg, "path", { class: "pale", d: `M${x(tick)} ${top}V${bottom}` });
      element(svg, "text", { class: "small middle", x: x(tick), y: bottom + 16 }, n(tick));
    }
    for (const tick of Numbers.ticks(ys, 7)) {
      element(svg, "path", { class: "pale", d: `M${left} ${y(tick)}H${right}` });
      element(svg, "text", { class: "small end", x: left - 6, y: y(tick) + 4 }, n(tick));
    }
    const middle = (top + bottom) / 2, turned = { transform: `rotate(-90 13 ${middle})` };
    element(svg, "text", { class: "middle", x: (left + right) / 2, y: bottom + 36 }, "MACs per byte moved");
    element(svg, "text", { class: "middle", x: 13, y: middle, ...turned }, "MACs per cycle");
    return [x, y];
  }

  // Draws as many operators as it can, and returns their number.
  function roofline(place, list, machine) {
    const found = list.filter(o => o.macs && o.moved && o.span > 0)
      .map(o => ({ ...o, x: o.macs / o.moved, y: o.macs / o.span, most: o.least ? o.macs / o.least : 0 }));
    const width = 720, height = 430, frame = { left: 60, right: width - 16, top: 24, bottom: height - 44 };
    const { peak, rate } = machine, ridge = peak / rate, room = 1.6;
    const across = [...found.map(o => o.x), ridge / 4, ridge * 4], up = [...found.map(o => o.y), peak, peak / 16];
    const xs = Numbers.scale(Math.min(...across) / room, Math.max(...across) * room, true);
    const ys = Numbers.scale(Math.min(...up) / room, Math.max(...up) * room, true);
    const lines = roofs(machine), label = `Roofline: peak ${peak} MACs per cycle, ${found.length} operators`;
    const svg = drawing(place, width, height + 18 * lines.length, label);
    const [x, y] = axes(svg, xs, ys, frame);
    lines.forEach(({ each, style, text }, i) => {
      const low = Math.max(xs.low, ys.low / each), high = Math.min(xs.high, peak / each);
      if (!each) element(svg, "path", { class: style, d: `M${frame.left} ${y(peak)}H${frame.right}` });
      else if (low < high) element(svg, "path", { class: style, d: `M${x(low)} ${y(low * each)}L${x(high)} ${y(high * each)}` });
      const at = height + 8 + 18 * i;
      element(svg, "path", { class: style, d: `M${frame.left} ${at}h40` });
      element(svg, "text", { class: "small", x: frame.left + 48, y: at + 4 }, text);
    });
    marks(svg, found, x, y);
    names(svg, found, x, y, y(peak), frame);
    return found.length;
  }

  // The lines of a machine: the array's peak, and the bandwidth of its ports (`each` in bytes per cycle).
  function roofs({ peak, rate, ports }) {
    const told = (each, name, style) => ({ each, style, text: `${name}: ${n(each)} bytes per cycle` });
    return [{ each: 0, style: "roof array", text: `array: ${n(peak)} MACs per cycle` },
      told(rate, "all ports together", "roof"), ...ports.map(([each, name]) => told(each, `${name} alone`, "roof dashed"))];
  }

  function marks(svg, found, x, y) {
    for (const o of found) {
      if (!o.most) continue;
      element(svg, "path", { class: "pale dashed", d: `M${x(o.x)} ${y(o.y)}V${y(o.most)}` });
      element(svg, "path", { class: "limit", d: `M${x(o.x) - 7} ${y(o.most)}H${x(o.x) + 7}` });
    }
    for (const o of found) {
      const most = o.most ? `, at most ${n(o.most)}` : "";
      const tip = `${told(o)}\n${n(o.y)} MACs per cycle${most}; ${n(o.x)} per byte`;
      element(svg, "circle", { class: "mark array", cx: x(o.x), cy: y(o.y), r: 6 }, undefined, tip);
    }
  }

  // Offsets of a text from its point, in order of preference.
  const AROUND = [[10, 4], [10, -8], [10, 16], [-10, 4], [-10, -8], [-10, 16],
    ...[34, 50, 66, 82, -26, -42].flatMap(dy => [[14, dy], [-14, dy]])];

  // Names of operators, largest first; coinciding points share a name, and no text covers another.
  function names(svg, found, x, y, peak, frame) {
    const groups = new Map(), taken = [[frame.left, peak - 2, frame.right, peak + 2]];
    for (const o of [...found].sort((a, b) => b.cycles - a.cycles)) {
      const key = `${Math.round(x(o.x) / 14)},${Math.round(y(o.y) / 14)}`;
      groups.set(key, [...groups.get(key) || [], o]);
      taken.push([x(o.x) - 8, y(o.y) - 8, x(o.x) + 8, y(o.y) + 8]);
      if (o.most) taken.push([x(o.x) - 8, y(o.most) - 4, x(o.x) + 8, y(o.most) + 4]);
    }
    const free = b => b[0] >= frame.left && b[1] >= 0 && b[2] <= frame.right && b[3] <= frame.bottom
      && taken.every(t => b[2] <= t[0] || t[2] <= b[0] || b[3] <= t[1] || t[3] <= b[1]);
    for (const group of groups.values()) {
      const numbers = group.map(o => o.number).sort((a, b) => a - b), told = group[0], cx = x(told.x), cy = y(told.y);
      const short = numbers.slice(0, 4).join(", ") + (numbers.length > 4 ? " …" : "");
      const name = told.name.length > 24 ? `${told.name.slice(0, 23)}…` : told.name;
      place: for (const text of [`${short} ${name}`, short]) {
        for (const [dx, dy] of AROUND) {
          const long = 7.2 * text.length, left = dx > 0 ? cx + dx : cx + dx - long, box = [left, cy + dy - 11, left + long, cy + dy + 4];
          if (!free(box)) continue;
          taken.push(box);
          if (dy < -13 || dy > 23) element(svg, "path", { class: "pale", d: `M${cx} ${cy}L${cx + dx} ${cy + dy - 4}` });
          element(svg, "text", { class: dx > 0 ? "small halo" : "small halo end", x: cx + dx, y: cy + dy }, text);
          break place;
        }
      }
    }
  }

  return { timeline, roofline };
})();
