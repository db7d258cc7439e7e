"use strict";
// The distribution of a metric at each value of each parameter, as small plots side by side.

const Influence = (() => {
  const WIDTH = 380, HEIGHT = 210, LEFT = 58, RIGHT = 8, TOP = 10, BOTTOM = 40, MOST = 14;
  const { element } = Svg;
  const byId = id => document.getElementById(id);

  // The values of a parameter, in ranges if there are many: text, filter, and the group of a value.
  function groupsOf({ name, values }) {
    const each = Math.ceil(values.length / MOST), of = new Map(), groups = [];
    values.forEach((value, n) => {
      of.set(value, Math.floor(n / each));
      if (n % each) return;
      const last = values[Math.min(n + each, values.length) - 1];
      const quoted = /\s/.test(value) ? `"${value}"` : value;
      if (each === 1 || last === value) groups.push({ text: String(value), filter: `${name}=${quoted}` });
      else if (typeof value === "number") groups.push({ text: `${value}–${last}`, filter: `${name}=${value}..${last}` });
      else groups.push({ text: `${value} …`, filter: `${name}=${values.slice(n, n + each).join(",")}` });
    });
    return { of, groups };
  }

  function quantile(sorted, share) {
    const at = share * (sorted.length - 1), low = Math.floor(at), rest = at - low;
    return sorted[low] + (rest ? rest * (sorted[low + 1] - sorted[low]) : 0);
  }

  function create(app) {
    const { points } = app, { data } = points, select = byId("influence-metric"), place = byId("multiples");
    const grouped = data.parameters.map(groupsOf);
    let due = 0;

    function summary(p, metric) {
      const { name } = data.parameters[p], { of, groups } = grouped[p];
      const found = groups.map(() => []), values = data.parameter[name], column = points.metric[metric];
      for (let i = 0; i < points.count; i++) {
        const group = of.get(values[i]);
        if (app.shown[i] && group !== undefined && points.has(metric, i)) found[group].push(column[i]);
      }
      return found.map(list => {
        const sorted = Float64Array.from(list).sort(), n = sorted.length;
        const [q1, median, q3] = n ? [0.25, 0.5, 0.75].map(share => quantile(sorted, share)) : [];
        return n ? { n, low: sorted[0], q1, median, q3, high: sorted[n - 1] } : null;
      });
    }

    function box(svg, x, half, y, s, group, metric) {
      const known = points.known[metric], write = value => Numbers.metric(known, value);
      const told = [`${group.text}: ${s.n} point${s.n === 1 ? "" : "s"}`, `median ${write(s.median)}`,
        `middle half ${write(s.q1)} to ${write(s.q3)}`, `all ${write(s.low)} to ${write(s.high)}`].join(", ");
      const attributes = { class: "box", tabindex: 0, role: "button", "aria-label": `${told}. Filter by it` };
      const g = element(svg, "g", attributes, undefined, told);
      element(g, "rect", { class: "row", x: x - half - 3, y: TOP, width: 2 * half + 6, height: HEIGHT - TOP - BOTTOM });
      element(g, "path", { d: `M${x} ${y(s.low)}V${y(s.high)}` });
      const tall = Math.max(1, y(s.q1) - y(s.q3));
      element(g, "rect", { class: "middle-half", x: x - half, width: 2 * half, y: y(s.q3), height: tall });
      element(g, "path", { class: "median", d: `M${x - half} ${y(s.median)}H${x + half}` });
      const best = points.directions[metric] > 0 ? s.low : s.high;
      element(g, "circle", { class: "best", cx: x, cy: y(best), r: 2.6 });
      const act = () => app.addTerm(group.filter);
      g.addEventListener("click", act);
      g.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        act();
      });
    }

    function multiple(p, metric, scale, summaries) {
      const parameter = data.parameters[p], { groups } = grouped[p], figure = document.createElement("figure");
      const caption = document.createElement("figcaption"), share = (data.importance[metric] || {})[parameter.name];
      caption.innerHTML = "<b></b> <span class='note'></span>";
      caption.firstChild.textContent = parameter.name;
      caption.lastChild.textContent = share === undefined ? "" : `${(100 * share).toFixed(1)} %`;
      caption.title = parameter.meaning;
      const label = `${metric} by ${parameter.name}`;
      const svg = element(figure, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": label });
      const y = value => HEIGHT - BOTTOM - scale.at(value) * (HEIGHT - TOP - BOTTOM);
      for (const tick of Numbers.ticks(scale, 4)) {
        element(svg, "path", { class: "pale", d: `M${LEFT} ${y(tick)}H${WIDTH - RIGHT}` });
        element(svg, "text", { class: "small end", x: LEFT - 5, y: y(tick) + 4 }, Numbers.tick(points.known[metric], tick));
      }
      const step = (WIDTH - LEFT - RIGHT) / groups.length, half = Math.min(16, step / 3), x = n => LEFT + (n + 0.5) * step;
      const longest = Math.max(...groups.map(g => g.text.length)), turned = longest * 7 > step - 4;
      const medians = summaries.map((s, n) => s && `${x(n)} ${y(s.median)}`).filter(Boolean);
      if (medians.length > 1 && typeof parameter.values[0] === "number") {
        element(svg, "path", { class: "trend", d: `M${medians.join("L")}` });
      }
      groups.forEach((group, n) => {
        if (summaries[n]) box(svg, x(n), half, y, summaries[n], group, metric);
        const short = group.text.length > 12 ? `${group.text.slice(0, 11)}…` : group.text;
        const tx = x(n) + (turned ? 4 : 0), ty = HEIGHT - BOTTOM + (turned ? 10 : 16);
        const turn = turned ? { transform: `rotate(-28 ${tx} ${ty})`, class: "small end" } : { class: "small middle" };
        element(svg, "text", { x: tx, y: ty, ...turn }, short);
      });
      figure.prepend(caption);
      Export.offer(svg, label, () => Export.text(svg));
      return figure;
    }

    function draw() {
      due = 0;
      const metric = select.value;
      if (!metric) return;
      const all = data.parameters.map((_, p) => summary(p, metric)), there = all.flat().filter(Boolean);
      const low = Math.min(...there.map(s => s.low)), high = Math.max(...there.map(s => s.high));
      if (!there.length) {
        place.textContent = "No point that the filter lets pass has figures.";
        return;
      }
      const scale = Numbers.around(low, high, low > 0 && high / low > 20);
      const shares = data.importance[metric] || {}, order = data.parameters.map((_, p) => p)
        .sort((a, b) => (shares[data.parameters[b].name] || 0) - (shares[data.parameters[a].name] || 0));
      place.replaceChildren(...order.map(p => multiple(p, metric, scale, all[p])));
    }

    // After the rest of the page, so that typing a filter stays fast.
    function later() {
      clearTimeout(due);
      due = setTimeout(draw, 80);
    }

    for (const metric of data.metrics) select.add(new Option(metric.label, metric.name));
    select.addEventListener("change", draw);
    return { draw, later };
  }

  return { create };
})();
