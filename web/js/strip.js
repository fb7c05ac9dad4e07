/** The strip on a node: for each run a row of cells, the signal against the threshold, and a caption. */

import { drawing, evaluationAt } from "./layout.js";
import { addPanel, LINE, LOOKS, leaveToCanvas } from "./panel.js";
import { caption, detail, notes } from "./text.js";

/** @typedef {import("./runs.js").Run} Run */
/** @typedef {import("./host.js").LGraphNode} LGraphNode */

export const WIDGET = "stepcache_strip";
const ROWS = 4; // the last runs of a prompt; more would push the node off the screen
const NOTE_LINES = 3; // the rest is shown under the pointer
const PADDING = 6;
const SVG = "http://www.w3.org/2000/svg";
const PATHS = /** @type {const} */ (["expected", "computed", "reused", "threshold", "signal"]);

/** Colours are of the theme but for the reused cells: these stand out from light and dark backgrounds alike. */
export const STYLE = `
.stepcache-strip { ${LOOKS} padding: ${PADDING}px; }
.stepcache-strip .row + .row { margin-top: ${PADDING}px; }
.stepcache-strip svg { display: block; width: 100%; overflow: visible; }
.stepcache-strip .caption { padding-top: 2px; height: ${LINE}px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
  font-variant-numeric: tabular-nums; }
.stepcache-strip .notes { opacity: .75; white-space: pre-line; overflow: hidden; display: -webkit-box;
  -webkit-box-orient: vertical; -webkit-line-clamp: ${NOTE_LINES}; }
.stepcache-strip .computed { fill: currentColor; opacity: .7; }
.stepcache-strip .reused { fill: #d0631a; }
.stepcache-strip .expected { fill: currentColor; opacity: .25; }
.stepcache-strip .signal { fill: none; stroke: currentColor; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round; }
.stepcache-strip .threshold { fill: none; stroke: #d0631a; stroke-width: 1; stroke-dasharray: 3 2; }
`;

export class Strip {
  /** @param {LGraphNode} node @param {{withSignal: boolean}} settings @param {HTMLElement} canvas */
  constructor(node, settings, canvas) {
    this.node = node;
    this.settings = settings;
    this.canvas = canvas;
    /** @type {Run[]} */
    this.runs = [];
    this.numbered = false;
    this.frame = 0;
    this.height = 0; // in pixels, of the whole strip
    this.plain = node.size[1]; // the node's height without it
    this.element = document.createElement("div");
    this.element.className = "stepcache-strip";
    this.element.setAttribute("role", "group");
    this.rows = this.element.appendChild(document.createElement("div"));
    this.notes = this.element.appendChild(document.createElement("div"));
    this.notes.className = "notes";
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(this.element);
    this.pointed();
    this.widget = addPanel(node, WIDGET, this.element, () => this.height);
  }

  /** Show these runs at the next frame. @param {Run[]} runs */
  show(runs) {
    this.runs = runs.slice(-ROWS);
    this.numbered = runs.length > 1;
    this.redraw();
  }

  redraw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /** Not while it is out of sight and has no size; it is drawn when it gets one. */
  draw() {
    const width = this.element.clientWidth - 2 * PADDING;
    if (width <= 0) return;
    while (this.rows.children.length > this.runs.length) this.rows.lastElementChild?.remove();
    while (this.rows.children.length < this.runs.length) this.rows.append(newRow());
    const captions = this.runs.map((run) => caption(run, this.numbered));
    this.runs.forEach((run, index) => {
      fill(this.rows.children[index], drawing(run, width, this.settings.withSignal), captions[index]);
    });
    const last = this.runs.at(-1);
    this.notes.textContent = this.notes.title = last ? notes(last) : "";
    this.element.setAttribute("aria-label", captions.join("; "));
    const height = 2 * PADDING + this.rows.offsetHeight + this.notes.offsetHeight;
    if (height !== this.height) this.resize(height);
  }

  /** Make room in the node, or give it back. @param {number} height of the strip */
  resize(height) {
    const [wide, tall] = this.node.size;
    const freed = Math.max(0, this.height - height);
    this.height = height;
    this.element.style.height = `${height}px`;
    this.node.setSize([wide, Math.max(tall - freed, Math.min(tall, this.plain), this.node.computeSize()[1])]);
  }

  /** Tell of the evaluation under the pointer, and leave dragging and zooming to the canvas. */
  pointed() {
    this.rows.addEventListener("pointermove", (event) => {
      const index = [...this.rows.children].findIndex((row) => row.contains(/** @type {Node} */ (event.target)));
      if (index < 0) return;
      const box = this.rows.children[index].getBoundingClientRect();
      const evaluation = evaluationAt(this.runs[index], (event.clientX - box.left) / box.width);
      this.rows.title = evaluation ? detail(evaluation) : "";
    });
    leaveToCanvas(this.element, this.canvas, ["pointerdown", "wheel"]);
  }

  remove() {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
    this.node.removeWidget(this.widget);
    this.element.remove();
    this.resize(0);
  }
}

function newRow() {
  const row = document.createElement("div");
  row.className = "row";
  const svg = row.appendChild(document.createElementNS(SVG, "svg"));
  for (const name of PATHS) svg.appendChild(document.createElementNS(SVG, "path")).setAttribute("class", name);
  row.appendChild(document.createElement("div")).className = "caption";
  return row;
}

/** @param {Element} row @param {import("./layout.js").Drawing} drawn @param {string} text */
function fill(row, drawn, text) {
  const [svg, caption] = row.children;
  svg.setAttribute("height", String(drawn.height));
  for (const [index, name] of PATHS.entries()) svg.children[index].setAttribute("d", drawn[name]);
  caption.textContent = text;
}
