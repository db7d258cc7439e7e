"""Finds layout faults of a page in Chromium: overlapping or clipped texts, tables that are too wide."""

from __future__ import annotations

from typing import Any

#: Pixels by which boxes of lines may overlap: letters do not fill them.
SLACK = 3

_TEXTS = """
    const slack = arguments[0], found = [];
    const shadows = [...document.querySelectorAll("*")].map(e => e.shadowRoot);
    const roots = [document, ...shadows.filter(Boolean)];
    const pictures = roots.flatMap(root => [...root.querySelectorAll("svg")])
      .filter(s => s.getClientRects().length);
    for (const svg of pictures) {
      const around = svg.getBoundingClientRect(), label = svg.getAttribute("aria-label") || "";
      const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect(), t]);
      const told = texts.filter(([text]) => text.trim());
      told.forEach(([text, box, element], i) => {
        if (box.left < around.left - 1 || box.right > around.right + 1 || box.top < around.top - 2
            || box.bottom > around.bottom + 2) found.push(`${label}: ${text} leaves the picture`);
        const own = element.previousElementSibling;
        if (own && own.matches(".tensor:not(.strip)")) {
          const held = own.getBoundingClientRect();
          if (box.right > held.right + 1 || box.bottom > held.bottom + slack || box.top < held.top - slack)
            found.push(`${label}: ${text} leaves its box`);
        }
        for (const [other, b] of told.slice(i + 1)) {
          const wide = Math.min(box.right, b.right) - Math.max(box.left, b.left);
          const high = Math.min(box.bottom, b.bottom) - Math.max(box.top, b.top);
          if (wide > slack && high > slack) found.push(`${label}: ${text} on ${other}`);
        }
      });
    }
    return [pictures.length, found];
"""

_CANVAS = """
    const [redraw] = arguments, kind = CanvasRenderingContext2D.prototype, texts = [], found = [];
    const plain = kind.fillText;
    kind.fillText = function (text, x, y) {
      const m = this.measureText(text), at = this.getTransform(), ratio = window.devicePixelRatio || 1;
      const corners = [[x - m.actualBoundingBoxLeft, y - m.actualBoundingBoxAscent],
        [x + m.actualBoundingBoxRight, y + m.actualBoundingBoxDescent]].map(([a, b]) =>
          [(at.a * a + at.c * b + at.e) / ratio, (at.b * a + at.d * b + at.f) / ratio]);
      const xs = corners.map(c => c[0]), ys = corners.map(c => c[1]);
      texts.push({ text, left: Math.min(...xs), right: Math.max(...xs),
        top: Math.min(...ys), bottom: Math.max(...ys),
        width: this.canvas.width / ratio, height: this.canvas.height / ratio });
      plain.call(this, text, x, y);
    };
    try { new Function(redraw)(); } finally { kind.fillText = plain; }
    texts.forEach((a, i) => {
      if (a.left < -1 || a.right > a.width + 1 || a.top < -1 || a.bottom > a.height + 1)
        found.push(`${a.text} leaves the canvas`);
      for (const b of texts.slice(i + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        if (wide > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
          found.push(`${a.text} on ${b.text}`);
      }
    });
    return [texts.length, found];
"""

_TABLES = """
    for (const details of document.querySelectorAll("details")) details.open = true;
    const found = [];
    const tables = [...document.querySelectorAll("table")]
      .filter(t => t.getClientRects().length && !t.closest(arguments[0] || "#none"));
    for (const table of tables) {
      const around = table.closest(".scroll") || table.parentElement;
      if (table.offsetWidth > around.clientWidth + 1) {
        const name = around.getAttribute("aria-label") || table.id || table.className;
        found.push(`${name}: ${table.offsetWidth} pixels in ${around.clientWidth}`);
      }
    }
    const whole = document.documentElement.scrollWidth;
    if (whole > innerWidth) found.push(`the page: ${whole}`);
    return [tables.length, found];
"""

_CONTRAST = """
    const light = text => {
      const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const page = light(getComputedStyle(document.body).backgroundColor), found = [];
    const texts = [...document.querySelectorAll("svg text")].filter(t => t.getClientRects().length);
    for (const text of texts) {
      const own = text.previousElementSibling;
      const back = own && own.matches(".tensor:not(.strip)") ? light(getComputedStyle(own).fill) : page;
      const [dark, bright] = [light(getComputedStyle(text).fill), back].sort((a, b) => a - b);
      const ratio = (bright + 0.05) / (dark + 0.05);
      if (ratio < 4.5) found.push(`${text.textContent}: contrast ${ratio.toFixed(1)}`);
    }
    return [texts.length, found];
"""


def _told(browser: Any, script: str, *given: Any) -> list[str]:
    count, found = browser.execute_script(script, *given)
    assert count, "there is nothing to look at"
    return list(found)


def texts(browser: Any) -> list[str]:
    """Texts of pictures that lie on each other, or leave their picture or box."""
    return _told(browser, _TEXTS, SLACK)


def canvas_texts(browser: Any, redraw: str) -> list[str]:
    """Texts of a canvas that lie on each other or leave it, as a statement draws it again."""
    return _told(browser, _CANVAS, redraw)


def tables(browser: Any, but: str = "") -> list[str]:
    """Tables that are wider than what is around them, all details open, and a page wider than the window."""
    return _told(browser, _TABLES, but)


def contrast(browser: Any) -> list[str]:
    """Texts of pictures that are hard to read on what is behind them."""
    return _told(browser, _CONTRAST)


def scheme(browser: Any, name: str) -> None:
    """Show pages `light` or `dark`."""
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
