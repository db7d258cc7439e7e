"use strict";
// Starts the page, and keeps its parts consistent: filtered points, and the selected one.

const Explore = { selected: -1 };

(() => {
  const byId = id => document.getElementById(id);

  // A point as lines of text: its number, varying fields, metrics.
  function tell(points, i) {
    const { data } = points, confirmation = points.confirmation(i);
    const lines = [`Point ${data.number[i]}`];
    if (points.onFront[i]) lines[0] += ", on the front";
    else if (!points.isComplete(i)) lines[0] += `, ${points.field("state")(i)}`;
    if (confirmation) lines[0] += confirmation.confirmed ? ", confirmed on the RTL" : ", differs on the RTL";
    lines.push(data.parameters.map(p => `${p.name} ${data.parameter[p.name][i]}`).join(", "));
    for (const metric of data.metrics) {
      const value = points.metric[metric.name][i];
      if (points.has(metric.name, i)) lines.push(`${metric.label}: ${Numbers.metric(metric, value)}`);
    }
    return lines.join("\n");
  }

  function apply() {
    const { points } = Explore, told = byId("filter-told"), text = byId("filter").value;
    let test;
    try {
      test = Filter.parse(text, points);
    } catch (error) {
      told.textContent = `The filter is not used: ${error.message}.`;
      told.className = "flag";
      return;
    }
    const states = new Set([...document.querySelectorAll("#state-choice input:checked")].map(box => Number(box.value)));
    let count = 0;
    for (let i = 0; i < points.count; i++) {
      Explore.shown[i] = states.has(points.data.state[i]) && test(i) ? 1 : 0;
      count += Explore.shown[i];
    }
    told.className = "";
    told.textContent = `${Numbers.plain(count)} of ${Numbers.plain(points.count)} points`;
    Explore.table.arrange();
    if (Explore.plot) Explore.plot.draw();
    Explore.influence.later();
  }

  function select(i) {
    Explore.selected = i;
    Explore.details.show(i);
    Explore.table.reveal();
    if (Explore.plot) Explore.plot.overlay();
    return Explore.operators.show(i);
  }

  function setFilter(text) {
    byId("filter").value = text;
    for (const box of document.querySelectorAll("#state-choice input")) box.checked = true;
    apply();
  }

  function addTerm(term) {
    const name = term.split("=")[0], terms = byId("filter").value.match(/(?:"[^"]*"|[^\s"])+/g) || [];
    const kept = terms.filter(each => !each.startsWith(`${name}=`));
    byId("filter").value = [...kept, term].join(" ");
    apply();
  }

  function controls(points) {
    const counts = points.data.states.map((_, s) => points.data.state.filter(each => each === s).length);
    points.data.states.forEach((name, s) => {
      if (!counts[s]) return;
      const label = document.createElement("label"), box = document.createElement("input");
      Object.assign(box, { type: "checkbox", value: s, checked: true });
      box.addEventListener("change", apply);
      label.append(box, ` ${name} (${Numbers.plain(counts[s])})`);
      byId("state-choice").append(label);
    });
    byId("filter").addEventListener("input", apply);
    byId("clear").addEventListener("click", () => setFilter(""));
    byId("csv").addEventListener("click", () => {
      Files.save(`${points.data.name}.csv`, Files.csv(points, Explore.table.order()), "text/csv");
    });
    const short = Object.entries(points.aliases).map(([name, full]) => `${name} (${full})`);
    byId("filter-names").textContent = [...points.fields.keys(), ...short].join(", ");
    for (const button of document.querySelectorAll("button[data-cause]")) {
      button.addEventListener("click", () => {
        setFilter(`cause=${button.dataset.cause}`);
        byId("points").scrollIntoView();
      });
    }
  }

  async function start() {
    const points = Points.open(JSON.parse(await Packed.string(byId("data").textContent)));
    Object.assign(Explore, { points, shown: new Uint8Array(points.count).fill(1), select, addTerm, setFilter,
      tell: i => tell(points, i) });
    // From here on the parts have their sizes.
    document.documentElement.dataset.started = "yes";
    controls(points);
    Explore.table = Table.create(Explore);
    Explore.details = Details.create(Explore);
    Explore.operators = Operators.create(Explore);
    Explore.influence = Influence.create(Explore);
    const hasFigures = points.data.metrics.length > 0;
    document.documentElement.dataset.figures = hasFigures ? "yes" : "no";
    if (hasFigures) {
      Explore.plot = Plot.create(Explore);
      Export.offer(byId("board"), "front", Explore.plot.picture);
    }
    Export.diagrams();
    apply();
    const [first] = [...points.data.front, ...points.data.number];
    await select(first === undefined ? -1 : points.place.get(first));
    byId("loading").hidden = true;
    document.documentElement.dataset.complete = Math.round(performance.now());
  }

  start().catch(error => {
    byId("loading").hidden = false;
    byId("loading").textContent =
      `The page cannot be shown whole: ${error.message}. Chromium 103, Firefox 113 or a later one is needed.`;
    throw error;
  });
})();
