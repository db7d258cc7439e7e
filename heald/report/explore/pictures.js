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
      // A strip to rest the pointer on, wherever in the row.
      element(group, "rect", { class: "row", x: 0, y, width, height: row });
      element(group, "text", { class: "small", x: 0, y: y + row - 6 }, short);
      bar("bar pale-bar", o.start, 0);
      bar("bar", own, 1);
    });
  }

  // A frame of logarithmic axes: where operational intensities and rates are.
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

  // Draws what it can, and returns how many operators these are.
  function roofline(place, list, machine) {
    const found = list.filter(o => o.macs && o.moved && o.span > 0)
      .map(o => ({ ...o, x: o.macs / o.moved, y: o.macs / o.span, most: o.least ? o.macs / o.least : 0 }));
    const width = 720, height = 430, frame = { left: 60, right: width - 16, top: 24, bottom: height - 44 };
    const { peak, rate } = machine, ridge = peak / rate, room = 1.6;
    const across = [...found.map(o => o.x), ridge / 4, ridge * 4], up = [...found.map(o => o.y), peak, peak / 16];
    const xs = Numbers.scale(Math.min(...across) / room, Math.max(...across) * room, true);
    const ys = Numbers.scale(Math.min(...up) / room, Math.max(...up) * room, true);
    const svg = drawing(place, width, height, `Roofline: peak ${peak} MACs per cycle, ${found.length} operators`);
    const [x, y] = axes(svg, xs, ys, frame);
    roofs(svg, machine, xs, ys, x, y, frame.right);
    marks(svg, found, x, y);
    names(svg, found, x, y, frame.right);
    return found.length;
  }

  function roofs(svg, { peak, rate, ports }, xs, ys, x, y, right) {
    element(svg, "path", { class: "roof", d: `M${x(Math.max(xs.low, peak / rate))} ${y(peak)}H${right}` });
    const text = `array: ${n(peak)} MACs per cycle`;
    element(svg, "text", { class: "small halo end", x: right - 4, y: y(peak) - 7 }, text);
    const alone = ports.map(([each, name]) => [each, `${name} alone`, "roof dashed"]);
    for (const [each, name, style] of [[rate, "all ports together", "roof"], ...alone]) {
      const low = Math.max(xs.low, ys.low / each), high = Math.min(xs.high, peak / each);
      if (low >= high) continue;
      const [x0, y0, x1, y1] = [x(low), y(low * each), x(high), y(high * each)];
      element(svg, "path", { class: style, d: `M${x0} ${y0}L${x1} ${y1}` });
      // The text stands along the line, above it.
      const turn = Math.atan2(y1 - y0, x1 - x0) * 180 / Math.PI;
      const tx = x0 + 0.06 * (x1 - x0), ty = y0 + 0.06 * (y1 - y0) - 6;
      const attributes = { class: "small halo", x: tx, y: ty, transform: `rotate(${turn} ${tx} ${ty})` };
      element(svg, "text", attributes, `${name}: ${each} bytes per cycle`);
    }
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

  // Numbers of operators: points side by side have one text, and no text covers another one.
  function names(svg, found, x, y, right) {
    const groups = new Map(), taken = [];
    for (const o of found) {
      const key = `${Math.round(x(o.x) / 48)},${Math.round(y(o.y) / 16)}`;
      groups.set(key, [...groups.get(key) || [], o]);
    }
    for (const group of [...groups.values()].sort((a, b) => a[0].x - b[0].x)) {
      const numbers = group.map(o => o.number), at = group.map(o => x(o.x)), beyond = Math.max(...at) > right - 60;
      const text = numbers.slice(0, 4).join(", ") + (numbers.length > 4 ? " …" : ""), long = 7 * text.length;
      const tx = beyond ? Math.min(...at) - 10 : Math.max(...at) + 8, from = beyond ? tx - long : tx, to = from + long;
      let ty = Math.max(...group.map(o => y(o.y))) + 14;
      while (taken.some(t => from < t.to && to > t.from && Math.abs(t.ty - ty) < 12)) ty += 12;
      taken.push({ from, to, ty });
      element(svg, "text", { class: beyond ? "small end" : "small", x: tx, y: ty }, text);
    }
  }

  return { timeline, roofline };
})();
