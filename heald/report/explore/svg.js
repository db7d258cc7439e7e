"use strict";
// Pictures of a few elements, whose colours are the page's.

const Svg = (() => {
  const NAMES = "http://www.w3.org/2000/svg";

  // An element at the end of its parent; `tip` is shown where a pointer rests on it.
  function element(parent, name, attributes, text, tip) {
    const made = document.createElementNS(NAMES, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (tip) element(made, "title", {}, tip);
    parent.append(made);
    return made;
  }

  return { element };
})();
