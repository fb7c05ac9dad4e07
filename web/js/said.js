/** What a node found, as text on it after it has run: ComfyUI's page shows text on nodes of its own alone. */

import { nodeAt } from "./graph.js";
import { app, root } from "./host.js";
import { addPanel, addStyle, LOOKS, leaveToCanvas } from "./panel.js";

/** @typedef {import("./host.js").LGraphNode} LGraphNode */

const NODES = ["StepCacheCalibrate", "StepCacheSaveProfile"];
const STYLE = `
.stepcache-said { ${LOOKS} user-select: text; }
.stepcache-said > div { padding: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
`;

class Said {
  /** @param {LGraphNode} node */
  constructor(node) {
    this.node = node;
    this.height = 0; // in pixels, of the text
    this.element = document.createElement("div");
    this.element.className = "stepcache-said";
    this.text = this.element.appendChild(document.createElement("div"));
    new ResizeObserver(() => this.fit()).observe(this.text);
    leaveToCanvas(this.element, app.canvas.canvas, ["wheel"]);
    addPanel(node, "stepcache_said", this.element, () => this.height);
  }

  /** Make room in the node for a text that needs more; not while it is out of sight and has no size. */
  fit() {
    const height = this.text.offsetHeight;
    if (height === 0 || height === this.height) return;
    this.height = height;
    this.element.style.height = `${height}px`;
    const [wide, tall] = this.node.size;
    this.node.setSize([wide, Math.max(tall, this.node.computeSize()[1])]);
  }
}

/** @type {WeakMap<LGraphNode, Said>} */
const shown = new WeakMap();

/** @param {LGraphNode} node @param {{text?: string[]}} output of its last run */
function show(node, output) {
  if (!output.text) return;
  const said = shown.get(node) ?? new Said(node);
  shown.set(node, said);
  said.text.textContent = output.text.join("\n");
}

app.registerExtension({
  name: "StepCache.Said",
  setup: () => addStyle(STYLE),
  /** @param {{prototype: {onExecuted?: Function}}} kind @param {{name: string}} definition */
  beforeRegisterNodeDef(kind, definition) {
    if (!NODES.includes(definition.name)) return;
    const before = kind.prototype.onExecuted;
    /** @this {LGraphNode} @param {{text?: string[]}} output */
    kind.prototype.onExecuted = function (output) {
      before?.call(this, output);
      show(this, output);
    };
  },
  /** When the tab of a workflow is opened again. @param {Record<string, {text?: string[]}>} outputs by node */
  onNodeOutputsUpdated(outputs) {
    for (const [id, output] of Object.entries(outputs)) {
      const node = nodeAt(root(), id);
      if (node && NODES.includes(node.type)) show(node, output);
    }
  },
});
