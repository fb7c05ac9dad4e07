/** What a node of ours shows below its inputs: an element that is no input and is not saved. */

/** @typedef {import("./host.js").LGraphNode} LGraphNode */

export const LINE = 16; // height of a line of text
const MARGIN = 8; // around it, in the classic canvas

/** Its looks, for a rule of a style: colours and letters are of the theme. */
export const LOOKS = `box-sizing: border-box; overflow: hidden; border-radius: 6px;
  background: var(--component-node-widget-background, var(--comfy-input-bg, #222)); color: var(--input-text, #ddd);
  font: 11px/${LINE}px sans-serif;`;

/** @param {LGraphNode} node @param {string} name @param {HTMLElement} element @param {() => number} height in pixels */
export function addPanel(node, name, element, height) {
  const tall = () => height() + 2 * MARGIN;
  const look = { margin: MARGIN, hideOnZoom: false, hideInPanel: true };
  const options = { serialize: false, ...look, getMinHeight: tall, getMaxHeight: tall };
  const widget = node.addDOMWidget(name, name, element, options);
  widget.serialize = false;
  return widget;
}

/** Pass on what happens at an element that is in front of the canvas. @param {HTMLElement} element @param {HTMLElement} canvas @param {string[]} kinds */
export function leaveToCanvas(element, canvas, kinds) {
  for (const kind of kinds) {
    element.addEventListener(kind, (event) => {
      if (!element.closest(".dom-widget")) return; // in the Vue renderer it is not in front of the canvas
      const Kind = /** @type {any} */ (event.constructor);
      canvas.dispatchEvent(new Kind(kind, event));
      event.preventDefault();
    });
  }
}

/** @param {string} rules */
export function addStyle(rules) {
  const style = document.createElement("style");
  style.textContent = rules;
  document.head.append(style);
}
