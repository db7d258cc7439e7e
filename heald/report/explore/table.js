"use strict";
// The table of all points; only visible rows are in the page.

const Table = (() => {
  const ROW = 29, SPARE = 12;

  function create(app) {
    const { points } = app, { data } = points, place = document.getElementById("table");
    const columns = columnsOf();
    let order = [], sorted = { name: "point", down: false }, first = -1, last = -1;
    const table = document.createElement("table"), body = document.createElement("tbody");

    function columnsOf() {
      const made = [{ name: "point", label: "point", number: true }, { name: "state", label: "state" }];
      for (const { name, values, meaning } of data.parameters) {
        made.push({ name, label: name, number: typeof values[0] === "number", title: meaning });
      }
      for (const m of data.metrics) {
        const title = `${m.meaning || m.label} (${m.name})`;
        made.push({ name: m.name, label: m.label, number: true, metric: m, title, down: m.direction === data.maximize });
      }
      made.push({ name: "front", label: "front" });
      if (Object.keys(data.confirmations).length) made.push({ name: "confirmed", label: "RTL" });
      if (data.reasons.length) made.push({ name: "reason", label: "reason" });
      for (const c of made) c.get = points.field(c.name);
      return made;
    }

    function text(column, i) {
      const value = column.get(i);
      if (column.name === "front") return value === "yes" ? "✓" : "";
      if (column.name === "confirmed") return value === null ? "" : value === "yes" ? "✓" : "✗ differs";
      if (value === null) return column.name === "reason" ? "" : "–";
      return column.metric ? Numbers.metric(column.metric, value) : String(value);
    }

    // Fixed widths, from the texts of some points; with those of visible rows, columns would jump.
    function width(column) {
      const sample = Math.max(1, Math.floor(points.count / 300));
      let most = Math.ceil(1.1 * column.label.length) + 3;
      for (let i = 0; i < points.count; i += sample) most = Math.max(most, text(column, i).length);
      return column.name === "reason" ? Math.min(most, 90) : Math.min(most, 28);
    }

    function build() {
      const group = document.createElement("colgroup"), head = table.createTHead().insertRow();
      for (const column of columns) {
        const [col, cell, button] = ["col", "th", "button"].map(tag => document.createElement(tag));
        col.style.width = `calc(${width(column)}ch + 22px)`;
        group.append(col);
        cell.scope = "col";
        cell.className = column.number ? "number" : "";
        cell.setAttribute("aria-sort", "none");
        button.type = "button";
        button.textContent = column.label;
        if (column.title) cell.title = column.title;
        button.addEventListener("click", () => sort(column.name));
        cell.append(button);
        head.append(cell);
        column.head = cell;
      }
      table.className = "sortable points-table";
      table.style.width = `calc(${columns.reduce((sum, c) => sum + width(c), 0)}ch + ${22 * columns.length}px)`;
      table.prepend(group);
      table.append(body);
      place.replaceChildren(table);
      place.addEventListener("scroll", () => requestAnimationFrame(() => draw(false)));
      place.addEventListener("keydown", key);
      body.addEventListener("click", event => {
        const row = event.target.closest("tr[data-point]");
        if (row) app.select(Number(row.dataset.point));
      });
      body.addEventListener("pointerover", event => {
        const row = event.target.closest("tr[data-point]");
        if (app.plot) app.plot.mark(row ? Number(row.dataset.point) : -1);
      });
      body.addEventListener("pointerleave", () => app.plot && app.plot.mark(-1));
      new ResizeObserver(() => draw(false)).observe(place);
    }

    function sort(name) {
      const column = columns.find(c => c.name === name);
      sorted = { name, down: sorted.name === name ? !sorted.down : column.down === true };
      arrange();
    }

    // Points without a value come last in both orders.
    function arrange() {
      const { get } = columns.find(c => c.name === sorted.name), sign = sorted.down ? -1 : 1;
      const keys = new Array(points.count);
      order = [];
      for (let i = 0; i < points.count; i++) {
        if (!app.shown[i]) continue;
        keys[i] = get(i);
        order.push(i);
      }
      order.sort((i, j) => {
        const a = keys[i], b = keys[j];
        if (a === b) return i - j;
        if (a === null || b === null) return a === null ? 1 : -1;
        return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1);
      });
      const way = sorted.down ? "descending" : "ascending";
      for (const c of columns) c.head.setAttribute("aria-sort", c.name === sorted.name ? way : "none");
      table.setAttribute("aria-rowcount", order.length + 1);
      place.scrollTop = 0;
      draw(true);
    }

    function spacer(rows) {
      const row = document.createElement("tr"), cell = document.createElement("td");
      row.className = "spacer";
      row.setAttribute("aria-hidden", "true");
      cell.colSpan = columns.length;
      cell.style.height = `${rows * ROW}px`;
      row.append(cell);
      return row;
    }

    function row(at) {
      const i = order[at], made = document.createElement("tr");
      made.dataset.point = i;
      made.id = `row-${i}`;
      made.setAttribute("aria-rowindex", at + 2);
      made.setAttribute("aria-selected", i === app.selected);
      for (const column of columns) {
        const cell = document.createElement("td"), told = text(column, i);
        cell.textContent = told;
        if (column.number) cell.className = "number";
        if (told.length > 28) cell.title = told;
        made.append(cell);
      }
      return made;
    }

    function draw(anew) {
      const from = Math.max(0, Math.floor(place.scrollTop / ROW) - SPARE);
      const to = Math.min(order.length, Math.ceil((place.scrollTop + (place.clientHeight || 560)) / ROW) + SPARE);
      if (!anew && from === first && to === last) return;
      [first, last] = [Math.min(from, to), to];
      const rows = [];
      if (first) rows.push(spacer(first));
      for (let at = first; at < last; at++) rows.push(row(at));
      if (last < order.length) rows.push(spacer(order.length - last));
      body.replaceChildren(...rows);
    }

    function key(event) {
      const page = Math.max(1, Math.floor(place.clientHeight / ROW) - 2), now = order.indexOf(app.selected);
      const moves = { ArrowDown: now + 1, ArrowUp: now - 1, PageDown: now + page, PageUp: now - page, Home: 0,
        End: order.length - 1 };
      const isOther = event.target !== place || event.ctrlKey || event.metaKey || event.altKey;
      if (!(event.key in moves) || isOther || !order.length) return;
      event.preventDefault();
      app.select(order[Math.min(Math.max(moves[event.key], 0), order.length - 1)]);
    }

    // Marks the row of the selected point and scrolls to it.
    function reveal() {
      const at = order.indexOf(app.selected);
      if (at >= 0) {
        const head = table.tHead.offsetHeight, top = at * ROW, room = place.clientHeight - head - ROW;
        if (top < place.scrollTop || top > place.scrollTop + room) place.scrollTop = Math.max(0, top - room / 2);
        place.setAttribute("aria-activedescendant", `row-${app.selected}`);
      }
      draw(true);
    }

    build();
    return { arrange, reveal, sort, order: () => order };
  }

  return { create };
})();
