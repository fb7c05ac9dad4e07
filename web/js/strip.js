/** The strip on a node: for each run a row of cells, the signal against the threshold, and a caption. */

import { drawing, evaluationAt } from "./layout.js";
import { caption, detail } from "./text.js";

/** @typedef {import("./runs.js").Run} Run */
/** @typedef {import("./host.js").LGraphNode} LGraphNode */

export const WIDGET = "stepcache_strip";
const ROWS = 4; // the last runs of a prompt; more would push the node off the screen
const CAPTION = 16;
const PADDING = 6;
const SVG = "http://www.w3.org/2000/svg";
const PATHS = /** @type {const} */ (["expected", "computed", "reused", "threshold", "signal"]);

/** Colours are of the theme but for the reused cells: these stand out from light and dark backgrounds alike. */
const STYLE = `
.stepcache-strip { box-sizing: border-box; padding: ${PADDING}px; overflow: hidden; border-radius: 6px;
  background: var(--comfy-input-bg, #222); color: var(--input-text, #ddd); font: 11px/${CAPTION}px sans-serif; }
.stepcache-strip svg { display: block; width: 100%; overflow: visible; }
.stepcache-strip .caption { height: ${CAPTION}px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
  font-variant-numeric: tabular-nums; }
.stepcache-strip .computed { fill: currentColor; opacity: .7; }
.stepcache-strip .reused { fill: #d0631a; }
.stepcache-strip .expected { fill: currentColor; opacity: .25; }
.stepcache-strip .signal { fill: none; stroke: currentColor; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round; }
.stepcache-strip .threshold { fill: none; stroke: #d0631a; stroke-width: 1; stroke-dasharray: 3 2; }
`;

export class Strip {
  /** @param {LGraphNode} node @param {{withSignal: () => boolean, canvas: () => HTMLElement}} page */
  constructor(node, page) {
    this.node = node;
    this.page = page;
    /** @type {Run[]} */
    this.runs = [];
    this.frame = 0;
    this.height = 0;
    this.element = document.createElement("div");
    this.element.className = "stepcache-strip";
    this.element.setAttribute("role", "img");
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(this.element);
    this.pointed();
    const height = () => this.height;
    const options = { serialize: false, hideOnZoom: false, hideInPanel: true, getMinHeight: height, getMaxHeight: height };
    this.widget = node.addDOMWidget(WIDGET, WIDGET, this.element, options);
    this.widget.serialize = false;
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

  draw() {
    const width = (this.element.clientWidth || this.node.size[0] - 20) - 2 * PADDING;
    while (this.element.children.length > this.runs.length) this.element.lastElementChild?.remove();
    while (this.element.children.length < this.runs.length) this.element.append(newRow());
    let height = 2 * PADDING;
    this.runs.forEach((run, index) => {
      const drawn = drawing(run, width, this.page.withSignal());
      fill(this.element.children[index], drawn, caption(run, this.numbered ?? false));
      height += drawn.height + CAPTION;
    });
    this.element.setAttribute("aria-label", this.runs.map((run) => caption(run, this.numbered ?? false)).join("; "));
    if (height !== this.height) this.grow(height);
  }

  /** @param {number} height */
  grow(height) {
    const [wide, tall] = this.node.size;
    const added = height - this.height;
    this.height = height;
    this.element.style.height = `${height}px`;
    this.node.setSize([wide, Math.max(added < 0 ? tall + added : tall, this.node.computeSize()[1])]);
  }

  /** Tell of the evaluation under the pointer, and leave dragging and zooming to the canvas. */
  pointed() {
    this.element.addEventListener("pointermove", (event) => {
      const row = /** @type {Element} */ (event.target).closest(".stepcache-strip > div");
      const run = row && this.runs[[...this.element.children].indexOf(row)];
      if (!row || !run) return;
      const box = row.getBoundingClientRect();
      const evaluation = evaluationAt(run, (event.clientX - box.left) / box.width);
      this.element.title = evaluation ? detail(evaluation) : "";
    });
    for (const kind of ["pointerdown", "wheel"]) {
      this.element.addEventListener(kind, (event) => {
        const Kind = /** @type {any} */ (event.constructor);
        this.page.canvas().dispatchEvent(new Kind(kind, event));
        event.preventDefault();
      });
    }
  }

  remove() {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
    this.node.removeWidget(this.widget);
    this.element.remove();
    const [wide, tall] = this.node.size;
    this.node.setSize([wide, Math.max(tall - this.height, this.node.computeSize()[1])]);
  }
}

export function addStyle() {
  const style = document.createElement("style");
  style.textContent = STYLE;
  document.head.append(style);
}

function newRow() {
  const row = document.createElement("div");
  const svg = row.appendChild(document.createElementNS(SVG, "svg"));
  for (const name of PATHS) svg.appendChild(document.createElementNS(SVG, "path")).setAttribute("class", name);
  row.appendChild(document.createElement("div")).className = "caption";
  return row;
}

/** @param {Element} row @param {import("./layout.js").Drawing} drawn @param {string} text */
function fill(row, drawn, text) {
  const [svg, caption] = row.children;
  svg.setAttribute("height", String(drawn.height));
  PATHS.forEach((name, index) => svg.children[index].setAttribute("d", drawn[name]));
  caption.textContent = text;
}
