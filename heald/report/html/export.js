"use strict";
// Saves pictures as SVG, and as PNG at twice their size, including the page's styles.

const Export = (() => {
  const STYLE = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity",
    "font", "text-anchor", "paint-order"];

  const escaped = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");

  const page = () => getComputedStyle(document.documentElement).getPropertyValue("--page").trim();

  // An element as the text of a separate file, on a background.
  function text(svg, background = page()) {
    const made = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")];
    [made, ...made.querySelectorAll("*")].forEach((element, i) => {
      if (["title", "style", "defs"].includes(element.tagName)) return;
      const style = getComputedStyle(from[i]);
      for (const name of STYLE) element.style.setProperty(name, style.getPropertyValue(name));
    });
    const box = svg.viewBox.baseVal, size = box && box.width ? box : svg.getBoundingClientRect();
    const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of Object.entries({ x: box.x, y: box.y, width: size.width, height: size.height, fill: background })) {
      back.setAttribute(key, value);
    }
    made.prepend(back);
    made.setAttribute("width", size.width);
    made.setAttribute("height", size.height);
    made.removeAttribute("class");
    return new XMLSerializer().serializeToString(made);
  }

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  async function png(svg) {
    const image = new Image(), root = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    const box = (root.getAttribute("viewBox") || "").split(/[\s,]+/);
    // The browser would choose a size for an image without one.
    if (box.length === 4) {
      root.setAttribute("width", box[2]);
      root.setAttribute("height", box[3]);
    }
    image.src = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" }));
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * image.naturalWidth;
    canvas.height = 2 * image.naturalHeight;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    return new Promise(done => canvas.toBlob(done, "image/png"));
  }

  // Buttons after an element that save the SVG text returned by `picture`.
  function offer(element, name, picture) {
    const tools = document.createElement("p"), stem = name.replace(/[^\w.-]+/g, "-");
    tools.className = "save";
    for (const kind of ["SVG", "PNG"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind;
      button.setAttribute("aria-label", `Save ${name} as ${kind}`);
      button.addEventListener("click", async () => {
        const svg = await picture();
        if (svg) save(kind === "SVG" ? new Blob([svg], { type: "image/svg+xml" }) : await png(svg), `${stem}.${kind.toLowerCase()}`);
      });
      tools.append(button);
    }
    element.after(tools);
  }

  // Adds buttons to all diagrams that are elements of the page.
  function diagrams() {
    for (const element of document.querySelectorAll("[data-picture]")) {
      offer(element, element.dataset.picture, () => {
        const svg = element.querySelector("svg");
        return svg && text(svg);
      });
    }
  }

  // A stand-in for a canvas whose drawing becomes SVG elements.
  class Recorder {
    constructor(width, height, measure) {
      Object.assign(this, { width, height, measureText: measure, parts: [], path: "", depth: [], clips: 0 });
      Object.assign(this, { globalAlpha: 1, turned: "" });
      Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, font: "11px sans-serif", textAlign: "left", textBaseline: "middle" });
    }
    rectangle(x, y, w, h, style) {
      if (w > 0 && h > 0) this.parts.push(`<rect x="${x.toFixed(2)}" y="${y.toFixed(2)}" width="${w.toFixed(2)}" height="${h.toFixed(2)}" ${style}/>`);
    }
    clearRect() { }
    fillRect(x, y, w, h) { this.rectangle(x, y, w, h, `fill="${this.fillStyle}" fill-opacity="${this.globalAlpha}"`); }
    strokeRect(x, y, w, h) { this.rectangle(x, y, w, h, `fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"`); }
    beginPath() { this.path = ""; }
    moveTo(x, y) { this.path += `M${x.toFixed(2)} ${y.toFixed(2)}`; }
    lineTo(x, y) { this.path += `L${x.toFixed(2)} ${y.toFixed(2)}`; }
    rect(x, y, w, h) { this.path += `M${x} ${y}h${w}v${h}h${-w}z`; }
    arc(x, y, r) { this.path += `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`; }
    closePath() { this.path += "z"; }
    setTransform() { }
    translate(x, y) { this.turned += `translate(${x} ${y})`; }
    rotate(angle) { this.turned += `rotate(${angle * 180 / Math.PI})`; }
    fill() { this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}" fill-opacity="${this.globalAlpha}"/>`); }
    stroke() { this.parts.push(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"/>`); }
    save() { this.depth.push(0); }
    clip() {
      const name = `clip${this.clips++}`;
      this.parts.push(`<clipPath id="${name}"><path d="${this.path}"/></clipPath><g clip-path="url(#${name})">`);
      this.depth[this.depth.length - 1]++;
    }
    restore() {
      this.parts.push("</g>".repeat(this.depth.pop() || 0));
      this.turned = "";
    }
    fillText(text, x, y) {
      const anchor = { left: "start", right: "end", center: "middle", start: "start", end: "end" }[this.textAlign];
      const turned = this.turned ? ` transform="${this.turned}"` : "";
      const middle = this.textBaseline === "middle" ? ' dominant-baseline="central"' : "";
      this.parts.push(`<text x="${x.toFixed(2)}" y="${y.toFixed(2)}" text-anchor="${anchor}"${middle}${turned} fill="${this.fillStyle}" style="font:${escaped(this.font)}">${escaped(text)}</text>`);
    }
    text() {
      const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
      return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${this.parts.join("")}</svg>`;
    }
  }

  return { text, offer, diagrams, save, Recorder };
})();
