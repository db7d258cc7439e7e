"use strict";
// Files that the page writes: a configuration as TOML, points as CSV.

const Files = (() => {
  // Whether all fields of a machine are known; those of refused points may not be.
  const isWhole = (points, i) => points.data.fields.every(([field]) => points.machine(field, i) !== null);

  // In the format of `hw.config.to_toml`, including the fabric if the page has it.
  function toml(points, i) {
    const { data } = points, name = `${data.name}-${data.number[i]}`;
    const lines = [`name = ${JSON.stringify(name)}`], tables = [];
    for (const [field, meaning] of data.fields) {
      const value = points.machine(field, i);
      if (field === "cgra") {
        const grid = data.grids[value];
        if (value === null || value === "none") lines.push('cgra = "none"');
        else if (grid && grid.toml) tables.push("", "[cgra]", grid.toml.trimEnd().replace(/^(\[+)/gm, "$1cgra."));
        else if (grid && grid.name) lines.push(`cgra = ${JSON.stringify(grid.name)}`);
        else lines.push("# The grid is no preset: its file is needed here.", `cgra = ${JSON.stringify(value)}`);
      } else if (value !== null) {
        lines.push(`${field} = ${value}`.padEnd(28) + `# ${meaning}`);
      }
    }
    return [...lines, ...tables].join("\n") + "\n";
  }

  function cell(value) {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  // Points in a given order, with the known columns of `heald explore --csv`.
  function csv(points, order) {
    const names = ["point", "state", ...points.data.parameters.map(p => p.name),
      ...points.data.metrics.map(m => m.name), "front", "confirmed", "reason"];
    const columns = names.map(name => points.field(name));
    const rows = order.map(i => columns.map(get => cell(get(i))).join(","));
    return [names.join(","), ...rows].join("\r\n") + "\r\n";
  }

  function save(name, text, type) {
    const link = document.createElement("a"), url = URL.createObjectURL(new Blob([text], { type }));
    link.href = url;
    link.download = name.replace(/[^\w.-]+/g, "_");
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  return { isWhole, toml, csv, save };
})();
