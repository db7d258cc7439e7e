"use strict";
// The Pareto plot: points on one canvas, pointed-at and selected ones on another above it.

const Plot = (() => {
  const LEFT = 74, RIGHT = 18, TOP = 14, BOTTOM = 48, NEAR = 18;
  const byId = id => document.getElementById(id);

  function create(app) {
    const { points } = app, base = byId("plot-base"), top = byId("plot"), tip = byId("tip");
    const view = { x: null, y: null, logX: false, logY: false, zoom: null };
    let width = 0, height = 0, xs = null, ys = null, drawn = [], px = new Float32Array(points.count),
      py = new Float32Array(points.count), line = [], hovered = -1, drag = null;

    const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const known = axis => points.known[view[axis]];

    function range(name, log, indices) {
      let low = Infinity, high = -Infinity;
      for (const i of indices) {
        const value = points.metric[name][i];
        if (value < low) low = value;
        if (value > high) high = value;
      }
      return low > high ? Numbers.scale(0, 1, false) : Numbers.around(low, high, log && low > 0);
    }

    function isWide(name) {
      let low = Infinity, high = -Infinity;
      for (let i = 0; i < points.count; i++) {
        if (!points.isComplete(i) || !points.has(name, i)) continue;
        low = Math.min(low, points.metric[name][i]);
        high = Math.max(high, points.metric[name][i]);
      }
      return low > 0 && high / low > 20;
    }

    function place() {
      const { x, y } = view;
      drawn = [];
      for (let i = 0; i < points.count; i++) if (isPlaced(i)) drawn.push(i);
      xs = view.zoom ? Numbers.scale(...view.zoom.x, view.zoom.logX) : range(x, view.logX, drawn);
      ys = view.zoom ? Numbers.scale(...view.zoom.y, view.zoom.logY) : range(y, view.logY, drawn);
      const across = width - LEFT - RIGHT, up = height - TOP - BOTTOM;
      for (const i of drawn) {
        px[i] = LEFT + xs.at(points.metric[x][i]) * across;
        py[i] = height - BOTTOM - ys.at(points.metric[y][i]) * up;
      }
      line = Points.front(points, drawn.filter(i => points.isComplete(i) && app.shown[i]), x, y);
      byId("zoom-out").disabled = !view.zoom;
    }

    const isInside = i => px[i] >= LEFT - 1 && px[i] <= width - RIGHT + 1
      && py[i] >= TOP - 1 && py[i] <= height - BOTTOM + 1;

    function context(canvas) {
      const ratio = Math.max(2, window.devicePixelRatio || 1);
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
      }
      const c = canvas.getContext("2d");
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.clearRect(0, 0, width, height);
      return c;
    }

    function axes(c) {
      const ink = colour("ink"), dim = colour("dim"), pale = colour("line");
      c.font = "12px system-ui, sans-serif";
      c.lineWidth = 1;
      c.strokeStyle = pale;
      c.fillStyle = dim;
      c.textAlign = "center";
      for (const value of Numbers.ticks(xs, Math.max(3, Math.floor((width - LEFT) / 90)))) {
        const at = Math.round(LEFT + xs.at(value) * (width - LEFT - RIGHT)) + 0.5;
        stroke(c, at, TOP, at, height - BOTTOM);
        c.fillText(Numbers.tick(known("x"), value), at, height - BOTTOM + 16);
      }
      c.textAlign = "right";
      for (const value of Numbers.ticks(ys, Math.max(3, Math.floor(height / 55)))) {
        const at = Math.round(height - BOTTOM - ys.at(value) * (height - TOP - BOTTOM)) + 0.5;
        stroke(c, LEFT, at, width - RIGHT, at);
        c.fillText(Numbers.tick(known("y"), value), LEFT - 7, at + 4);
      }
      c.strokeStyle = dim;
      c.strokeRect(LEFT + 0.5, TOP + 0.5, width - LEFT - RIGHT - 1, height - TOP - BOTTOM - 1);
      c.fillStyle = ink;
      c.font = "13px system-ui, sans-serif";
      c.textAlign = "center";
      c.fillText(title("x"), (LEFT + width - RIGHT) / 2, height - 9);
      c.save();
      c.translate(14, (TOP + height - BOTTOM) / 2);
      c.rotate(-Math.PI / 2);
      c.fillText(title("y"), 0, 0);
      c.restore();
    }

    function title(axis) {
      const metric = known(axis), better = points.directions[metric.name] > 0 ? "less is better" : "more is better";
      const { log } = axis === "x" ? xs : ys;
      const unit = metric.style === "whole" && metric.unit ? `, ${metric.unit}` : "";
      return `${metric.label}${unit} (${better}${log ? ", log" : ""})`;
    }

    function stroke(c, x0, y0, x1, y1) {
      c.beginPath();
      c.moveTo(x0, y0);
      c.lineTo(x1, y1);
      c.stroke();
    }

    function discs(c, indices, radius) {
      c.beginPath();
      for (const i of indices) {
        c.moveTo(px[i] + radius, py[i]);
        c.arc(px[i], py[i], radius, 0, 2 * Math.PI);
      }
      c.fill();
    }

    // Drawn one by one, so that overlapping points are darker.
    function dots(c, indices, radius) {
      for (const i of indices) {
        c.beginPath();
        c.arc(px[i], py[i], radius, 0, 2 * Math.PI);
        c.fill();
      }
    }

    // The border of the area that the front dominates: no known point lies beyond it.
    function staircase(c) {
      if (!line.length) return;
      const s = points.directions[view.x] > 0, t = points.directions[view.y] > 0;
      const endX = s ? width - RIGHT : LEFT, startY = t ? TOP : height - BOTTOM;
      c.strokeStyle = colour("accent");
      c.lineWidth = 1.6;
      c.beginPath();
      c.moveTo(px[line[0]], startY);
      line.forEach((i, n) => {
        c.lineTo(px[i], py[i]);
        c.lineTo(n + 1 < line.length ? px[line[n + 1]] : endX, py[i]);
      });
      c.stroke();
    }

    function draw() {
      const box = byId("board").getBoundingClientRect();
      width = Math.max(240, Math.floor(base.clientWidth || box.width));
      height = base.clientHeight || 460;
      place();
      const groups = { out: [], beyond: [], behind: [], front: [] };
      for (const i of drawn) {
        const group = !app.shown[i] ? "out" : points.isInfeasible(i) ? "beyond" : points.onFront[i] ? "front" : "behind";
        groups[group].push(i);
      }
      paint(context(base), groups);
      overlay();
      legend(groups);
      return groups;
    }

    function paint(c, groups) {
      axes(c);
      c.save();
      c.beginPath();
      c.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM);
      c.clip();
      c.fillStyle = colour("line");
      discs(c, groups.out, 1.5);
      // Thousands of points are drawn translucent.
      c.globalAlpha = Math.max(0.22, Math.min(0.6, 300 / groups.behind.length));
      c.fillStyle = colour("dim");
      dots(c, groups.behind, groups.behind.length > 2000 ? 2.2 : 3.2);
      c.globalAlpha = 1;
      crosses(c, groups.beyond, colour("bad"), 3);
      staircase(c);
      c.fillStyle = colour("accent");
      discs(c, groups.front, 4.6);
      for (const i of drawn) confirmed(c, i);
      c.restore();
    }

    // The visible plot as SVG text.
    function picture() {
      const recorded = new Export.Recorder(width, height, text => base.getContext("2d").measureText(text));
      recorded.fillStyle = colour("page");
      recorded.textBaseline = "alphabetic";
      recorded.fillRect(0, 0, width, height);
      paint(recorded, draw());
      return recorded.text();
    }

    function crosses(c, indices, style, size) {
      c.strokeStyle = style;
      c.lineWidth = 1.2;
      c.beginPath();
      for (const i of indices) {
        c.moveTo(px[i] - size, py[i] - size);
        c.lineTo(px[i] + size, py[i] + size);
        c.moveTo(px[i] - size, py[i] + size);
        c.lineTo(px[i] + size, py[i] - size);
      }
      c.stroke();
    }

    function confirmed(c, i) {
      const found = points.confirmation(i);
      if (found === null || !app.shown[i]) return;
      c.strokeStyle = colour(found.confirmed ? "good" : "bad");
      c.lineWidth = 2;
      if (found.confirmed) {
        c.beginPath();
        c.arc(px[i], py[i], 7.5, 0, 2 * Math.PI);
        c.stroke();
      } else {
        crosses(c, [i], colour("bad"), 7);
      }
    }

    function overlay() {
      const c = context(top), ink = colour("ink");
      for (const [i, size] of [[app.selected, 9], [hovered, 6]]) {
        if (i < 0 || !isPlaced(i) || !isInside(i)) continue;
        c.fillStyle = points.onFront[i] ? colour("accent") : points.isInfeasible(i) ? colour("bad") : ink;
        discs(c, [i], 4.6);
        c.strokeStyle = ink;
        c.lineWidth = i === app.selected ? 2.4 : 1.4;
        c.beginPath();
        c.arc(px[i], py[i], size, 0, 2 * Math.PI);
        c.stroke();
      }
      if (drag && drag.moved) {
        c.fillStyle = colour("accent");
        c.globalAlpha = 0.15;
        c.fillRect(drag.x, drag.y, drag.toX - drag.x, drag.toY - drag.y);
        c.globalAlpha = 1;
        c.strokeStyle = colour("accent");
        c.strokeRect(drag.x, drag.y, drag.toX - drag.x, drag.toY - drag.y);
      }
    }

    const isPlaced = i => points.has(view.x, i) && points.has(view.y, i)
      && (points.isComplete(i) || byId("show-infeasible").checked && points.isInfeasible(i));

    function legend(groups) {
      const told = [["front", `on the front of all objectives (${groups.front.length})`],
        ["behind", `dominated (${groups.behind.length})`], ["step", `front of these two axes (${line.length})`]];
      if (groups.out.length) told.push(["out", `filtered out (${groups.out.length})`]);
      if (groups.beyond.length) told.push(["beyond", `beyond a limit (${groups.beyond.length})`]);
      const ran = drawn.map(points.confirmation).filter(c => c !== null);
      if (ran.some(c => c.confirmed)) told.push(["ran", "confirmed on the RTL"]);
      if (ran.some(c => !c.confirmed)) told.push(["differs", "differs on the RTL"]);
      byId("plot-legend").replaceChildren(...told.map(([kind, text]) => {
        const item = document.createElement("li"), mark = document.createElement("span");
        mark.className = `mark ${kind}`;
        mark.setAttribute("aria-hidden", "true");
        item.append(mark, text);
        return item;
      }));
    }

    function nearest(x, y) {
      let found = -1, best = NEAR * NEAR;
      for (const i of drawn) {
        if (!app.shown[i] || !isInside(i)) continue;
        // Of points almost equally near, prefer those of the front.
        const distance = (px[i] - x) ** 2 + (py[i] - y) ** 2 - (points.onFront[i] ? 9 : 0);
        if (distance < best) {
          best = distance;
          found = i;
        }
      }
      return found;
    }

    function hover(i) {
      hovered = i;
      overlay();
      tip.hidden = i < 0;
      if (i < 0) return;
      tip.textContent = app.tell(i);
      const right = px[i] + 16 + tip.offsetWidth < width;
      tip.style.left = `${right ? px[i] + 14 : Math.max(0, px[i] - 14 - tip.offsetWidth)}px`;
      tip.style.top = `${Math.max(0, Math.min(py[i] - 20, height - tip.offsetHeight - 4))}px`;
    }

    function step(list, by) {
      if (!list.length) return;
      const now = list.indexOf(hovered >= 0 ? hovered : app.selected);
      const next = now < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(now + by, 0), list.length - 1);
      hover(list[next]);
      byId("told").textContent = app.tell(list[next]).replaceAll("\n", ", ");
    }

    function key(event) {
      const across = () => drawn.filter(i => app.shown[i] && isInside(i)).sort((i, j) => px[i] - px[j] || py[i] - py[j]);
      const along = () => line.filter(isInside).sort((i, j) => px[i] - px[j]);
      const actions = { ArrowRight: () => step(across(), 1), ArrowLeft: () => step(across(), -1),
        n: () => step(along(), 1), p: () => step(along(), -1), Escape: whole,
        Enter: () => hovered >= 0 && app.select(hovered), " ": () => hovered >= 0 && app.select(hovered) };
      if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      actions[event.key]();
    }

    function whole() {
      view.zoom = null;
      hover(-1);
      draw();
    }

    function at(event) {
      const box = top.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    function zoom() {
      const clamp = (v, a, b) => Math.min(Math.max(v, a), b);
      const shareX = v => (clamp(v, LEFT, width - RIGHT) - LEFT) / (width - LEFT - RIGHT);
      const shareY = v => (height - BOTTOM - clamp(v, TOP, height - BOTTOM)) / (height - TOP - BOTTOM);
      const sort = list => list.sort((a, b) => a - b);
      view.zoom = { x: sort([drag.x, drag.toX].map(v => xs.from(shareX(v)))), logX: xs.log,
        y: sort([drag.y, drag.toY].map(v => ys.from(shareY(v)))), logY: ys.log };
    }

    function pointers() {
      top.addEventListener("pointermove", event => {
        const [x, y] = at(event);
        if (!drag) return hover(nearest(x, y));
        Object.assign(drag, { toX: x, toY: y, moved: drag.moved || Math.hypot(x - drag.x, y - drag.y) > 6 });
        overlay();
      });
      top.addEventListener("pointerleave", () => drag || hover(-1));
      top.addEventListener("pointerdown", event => {
        if (event.button) return;
        const [x, y] = at(event);
        drag = { x, y, toX: x, toY: y, moved: false };
        top.setPointerCapture(event.pointerId);
        tip.hidden = true;
      });
      top.addEventListener("pointercancel", () => {
        drag = null;
        overlay();
      });
      top.addEventListener("pointerup", event => {
        if (!drag) return;
        if (drag.moved && Math.min(Math.abs(drag.toX - drag.x), Math.abs(drag.toY - drag.y)) > 4) zoom();
        else if (!drag.moved) {
          const found = nearest(...at(event));
          if (found >= 0) app.select(found);
        }
        drag = null;
        draw();
      });
      top.addEventListener("keydown", key);
    }

    function chooser(axis, first) {
      const select = byId(`axis-${axis}`), log = byId(`log-${axis}`), flag = axis === "x" ? "logX" : "logY";
      for (const metric of points.data.metrics) select.add(new Option(metric.label, metric.name));
      const choose = name => {
        view[axis] = select.value = name;
        view[flag] = log.checked = isWide(name);
        view.zoom = null;
      };
      choose(first);
      select.addEventListener("change", () => {
        choose(select.value);
        draw();
      });
      log.addEventListener("change", () => {
        view[flag] = log.checked;
        view.zoom = null;
        draw();
      });
    }

    function start() {
      const wanted = Object.keys(points.data.objectives).filter(name => points.known[name]);
      const names = [...wanted, ...points.data.metrics.map(m => m.name).filter(name => !wanted.includes(name))];
      // The first objective upwards; the second, mostly a cost, across.
      chooser("y", names[0]);
      chooser("x", names[1] || names[0]);
      byId("infeasible-choice").hidden = !points.infeasible;
      // If no point is feasible, show all of them.
      byId("show-infeasible").checked = points.infeasible > 0 && !points.data.number.some((_, i) => points.isComplete(i));
      byId("show-infeasible").addEventListener("change", draw);
      byId("zoom-out").addEventListener("click", whole);
      pointers();
      new ResizeObserver(() => draw()).observe(byId("board"));
      for (const query of ["(prefers-color-scheme: dark)", "print"]) {
        matchMedia(query).addEventListener("change", () => draw());
      }
    }

    // A point that the pointer rests on elsewhere.
    function mark(i) {
      hovered = i;
      overlay();
    }

    start();
    return { draw, picture, overlay, mark, view, place: i => [px[i], py[i]], line: () => line, hovered: () => hovered };
  }

  return { create };
})();
