"use strict";
// Starts the page: sortable tables, the timeline, then drawings.

(() => {
  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const worth = (row, i) => {
      const cell = row.cells[i], value = cell.dataset.value;
      return value === undefined ? cell.textContent.trim() : Number(value);
    };
    heads.forEach((head, i) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort"), other = { ascending: "descending", descending: "ascending" };
        const order = other[now] || head.dataset.first, sign = order === "ascending" ? 1 : -1;
        for (const each of heads) if (each.hasAttribute("aria-sort")) each.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", order);
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const x = worth(a, i), y = worth(b, i);
          return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  // A drawing in its own shadow tree, so that its styles and names stay inside.
  async function kernel(article, described) {
    const input = article.querySelector("input"), output = article.querySelector("output");
    const contexts = (await Packed.string(described.drawings)).split("\0");
    const root = article.querySelector(".drawing").attachShadow({ mode: "open" });
    const show = () => {
      const number = Number(input.value);
      output.textContent = `${number} of ${described.ii}`;
      root.innerHTML = contexts[number];
      const svg = root.querySelector("svg");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `${described.name}, step ${number} of ${described.ii}`);
    };
    Export.offer(article.querySelector(".drawing"), described.name,
      () => Export.text(root.querySelector("svg"), "#ffffff"));
    input.addEventListener("input", show);
    show();
  }

  async function tiling(details, described) {
    const picture = await Packed.string(described.picture), image = details.querySelector("img");
    Export.offer(image.parentElement, described.title, () => Promise.resolve(picture));
    image.src = URL.createObjectURL(new Blob([picture], { type: "image/svg+xml" }));
  }

  async function drawings() {
    const described = JSON.parse(document.getElementById("drawings").textContent);
    for (const article of document.querySelectorAll(".kernel")) {
      await kernel(article, described.mappings[Number(article.dataset.kernel)]);
    }
    for (const details of document.querySelectorAll(".tiling")) {
      await tiling(details, described.tilings[Number(details.dataset.tiling)]);
    }
  }

  async function start() {
    for (const table of document.querySelectorAll("table.sortable")) sortable(table);
    Export.diagrams();
    const text = id => document.getElementById(id).textContent;
    const [description, data] = await Promise.all(
      [Packed.string(text("timeline-description")), Packed.bytes(text("timeline-columns"))]);
    Timeline.open(Lanes.unpack(JSON.parse(description), data));
    Export.offer(document.getElementById("board"), "timeline", Timeline.picture);
    document.documentElement.dataset.firstPicture = Math.round(performance.now());
    // Later, one at a time, so that the timeline appears first.
    await drawings();
    document.documentElement.dataset.complete = "yes";
  }

  start().catch(error => {
    document.getElementById("loading").hidden = false;
    document.getElementById("loading").textContent =
      `The page cannot be shown whole: ${error.message}. Chromium 103, Firefox 113 or a later one is needed.`;
    throw error;
  });
})();
