"use strict";
// Pictures of a few elements in the page's colours.

const Svg = (() => {
  const NAMES = "http://www.w3.org/2000/svg";

  // Appends an element to its parent; `tip` appears under the pointer.
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
