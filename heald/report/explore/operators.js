"use strict";
// The operators of the selected point: unpacked on demand, as pictures and as a table.

const Operators = (() => {
  const byId = id => document.getElementById(id), n = Numbers.plain;
  const sum = values => values.reduce((a, b) => a + b, 0);
  const HEADS = [["#", "number"], ["Operator", "name"], ["Kind"], ["Runs on"], ["From cycle", "number"], ["To", "number"],
    ["Cycles", "number"], ["Lower bound", "number"], ["Bound by"], ["MACs", "number"], ["Bytes moved", "number"]];

  // The columns of a model as one object per operator.
  function listed(points, model) {
    const { resources, operators } = points.data;
    return operators[model.operators].map(([name, op, where], i) => {
      const bounds = Object.entries(model.bounds).map(([key, values]) => [key, values[i]]);
      const [bound, least] = bounds.reduce((best, each) => each[1] > best[1] ? each : best, ["", 0]);
      const macs = model.macs[i], start = model.start[i], end = model.end[i];
      return { number: i + 1, name, op, where: where === "machine" ? (macs ? "array" : "grid") : where, macs, start, end,
        cycles: model.own[i], span: end - start, moved: sum(Object.values(model.moved).map(values => values[i])),
        bound: resources[bound] || bound, least };
    });
  }

  function table(place, list) {
    const row = (cells, tag, parent) => {
      const made = parent.insertRow();
      cells.forEach((text, i) => {
        const cell = document.createElement(tag);
        if (tag === "th") cell.scope = "col";
        cell.className = HEADS[i][1] || "";
        cell.textContent = text;
        if (HEADS[i][1] === "name") cell.title = text;
        made.append(cell);
      });
    };
    place.replaceChildren();
    row(HEADS.map(([text]) => text), "th", place.createTHead());
    const body = place.createTBody();
    for (const o of list) {
      row([o.number, o.name, o.op, o.where, n(o.start), n(o.end), n(o.cycles), o.least ? n(o.least) : "–", o.bound || "–",
        n(o.macs), n(o.moved)], "td", body);
    }
  }

  // The bounds of a machine; null if its fields are not known.
  function machineOf(points, i) {
    const get = name => points.machine(name, i), { ports, resources } = points.data;
    const peak = get("rows") * get("cols"), rates = new Map();
    for (const port of ports) {
      const rate = get(`${port}_bytes`);
      rates.set(rate, [...rates.get(rate) || [], resources[port]]);
    }
    const rate = sum(ports.map(port => get(`${port}_bytes`)));
    return peak && rate ? { peak, rate, ports: [...rates].map(([each, names]) => [each, names.join(" or ")]) } : null;
  }

  // A model in a sentence, with the component that takes most of its energy.
  function told(model) {
    const energy = sum(Object.values(model.energy)), name = model.name.split("/").pop();
    const parts = [`${name}: ${n(model.cycles)} cycles`, `${n(model.total_macs)} MACs`,
      `${n(model.instructions)} instructions`, `${model.programs} program${model.programs === 1 ? "" : "s"}`,
      `${Numbers.prefixed(sum(Object.values(model.bytes)), "B")} moved`, Numbers.prefixed(energy * 1e-12, "J")];
    const most = Object.entries(model.energy).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]).slice(0, 3)
      .map(([component, value]) => `${component.replaceAll("_", " ")} ${(100 * value / energy).toFixed(0)} %`);
    return `${parts.join(", ")}${most.length ? ` (most of it: ${most.join(", ")})` : ""}.`;
  }

  function create(app) {
    const { points } = app, groups = new Map(), select = byId("model");
    let models = [], shown = -1;

    // The models of a point; a group of points is unpacked once.
    async function load(i) {
      const group = Math.floor(i / points.data.group);
      if (!groups.has(group)) groups.set(group, Packed.string(byId(`group-${group}`).textContent).then(JSON.parse));
      return (await groups.get(group))[i % points.data.group];
    }

    function draw() {
      const model = models[select.selectedIndex], list = listed(points, model), machine = machineOf(points, shown);
      byId("point-told").textContent = told(model);
      Pictures.timeline(byId("timeline"), list, model.cycles);
      const left = machine ? list.length - Pictures.roofline(byId("roofline"), list, machine) : 0;
      if (!machine) byId("roofline").textContent = "The machine is not known.";
      const are = left === 1 ? "1 operator is" : `${left} operators are`;
      byId("roofline-told").textContent = left ? `${are} not drawn: no MACs, or nothing moved.` : "";
      table(byId("operators"), list);
    }

    async function show(i) {
      shown = i;
      byId("point-number").textContent = i < 0 ? "–" : points.data.number[i];
      const loaded = i < 0 ? [] : await load(i);
      // Another point may have been selected in the meantime.
      if (shown !== i) return;
      models = loaded;
      const before = select.value, nothing = i < 0 ? "No point is selected." : "Nothing is known of its operators.";
      select.replaceChildren(...models.map(m => new Option(m.name)));
      if (models.some(m => m.name === before)) select.value = before;
      byId("model-choice").hidden = models.length < 2;
      byId("diagrams").hidden = byId("operator-details").hidden = !models.length;
      if (models.length) draw();
      else byId("point-told").textContent = nothing;
    }

    select.addEventListener("change", draw);
    return { show };
  }

  return { create };
})();
