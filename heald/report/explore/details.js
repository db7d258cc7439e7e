"use strict";
// The card of the selected point: configuration, metrics, RTL run, its file.

const Details = (() => {
  function create(app) {
    const { points } = app, { data } = points, card = document.getElementById("card");
    const best = Object.fromEntries(data.metrics.map(m => [m.name, bestOf(m.name)]));

    function bestOf(name) {
      const values = points.metric[name].filter((value, i) => points.isComplete(i) && !Number.isNaN(value));
      return values.reduce((a, b) => points.directions[name] * (a - b) <= 0 ? a : b, values[0]);
    }

    function add(parent, tag, text, style) {
      const made = document.createElement(tag);
      if (text !== undefined) made.textContent = text;
      if (style) made.className = style;
      parent.append(made);
      return made;
    }

    // Less or more than the best, as a factor of at least 1.
    function factor(name, value) {
      if (!(best[name] > 0) || !(value > 0)) return "";
      const times = points.directions[name] > 0 ? value / best[name] : best[name] / value;
      if (times < 1.0005) return times < 0.9995 ? "" : "best";
      return points.directions[name] > 0 ? `${times.toFixed(2)} × best` : `best / ${times.toFixed(2)}`;
    }

    function metrics(i) {
      const table = add(card, "table", undefined, "plain");
      for (const metric of data.metrics) {
        if (!points.has(metric.name, i)) continue;
        const row = table.insertRow(), head = add(row, "th", metric.label);
        head.scope = "row";
        head.title = metric.meaning;
        if (metric.name in data.objectives) row.className = "objective";
        add(row, "td", Numbers.metric(metric, points.metric[metric.name][i]), "number");
        add(row, "td", points.isComplete(i) ? factor(metric.name, points.metric[metric.name][i]) : "", "number note");
      }
    }

    function configuration(i) {
      const meaning = new Map(data.fields), varied = data.parameters.map(p => p.name);
      const list = (parent, rows) => {
        const table = add(parent, "table", undefined, "plain");
        for (const [name, value] of rows) {
          const row = table.insertRow(), head = add(row, "th", name, "mono");
          head.scope = "row";
          head.title = meaning.get(name) || "";
          add(row, "td", value, "number");
        }
      };
      list(card, varied.map(name => [name, data.parameter[name][i]]));
      const others = data.fields.map(([name]) => name)
        .filter(name => !varied.includes(name) && points.machine(name, i) !== null);
      if (!others.length) return;
      const details = add(card, "details");
      add(details, "summary", `${others.length} other fields`);
      list(details, others.map(name => [name, points.machine(name, i)]));
    }

    function heading(i) {
      const state = points.field("state")(i), head = add(card, "h3", `Point ${data.number[i]}`);
      add(head, "span", points.onFront[i] ? "on the front" : state, `tag ${points.onFront[i] ? "front" : state}`);
      const reason = points.field("reason")(i), found = points.confirmation(i), n = Numbers.plain;
      if (reason !== null) add(card, "p", reason, "reason");
      if (found === null) {
        add(card, "p", "Not run on the RTL.", "note");
      } else if (found.confirmed) {
        add(card, "p", `✓ Confirmed on the RTL: ${n(found.cycles)} cycles, ${n(found.events)} events.`, "answer-good");
      } else {
        add(card, "p", `✗ Differs on the RTL: ${found.difference}`, "answer-bad");
      }
    }

    function show(i) {
      card.replaceChildren();
      if (i < 0) {
        add(card, "p", "No point is selected.", "note");
        return;
      }
      heading(i);
      const tools = add(card, "div", undefined, "tools");
      if (Files.isWhole(points, i)) {
        const button = add(tools, "button", "Configuration (TOML)");
        button.type = "button";
        button.id = "toml";
        const name = `${data.name}-${data.number[i]}.toml`;
        button.addEventListener("click", () => Files.save(name, Files.toml(points, i), "application/toml"));
      } else {
        add(tools, "span", "This machine cannot be built.", "note");
      }
      configuration(i);
      metrics(i);
    }

    return { show };
  }

  return { create };
})();
