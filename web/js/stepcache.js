/** Shows on each node what its cache computes and reuses, while it samples and afterwards. */

import { nodeAt } from "./graph.js";
import { api, app, root } from "./host.js";
import { addStyle } from "./panel.js";
import { Runs } from "./runs.js";
import { STYLE, Strip } from "./strip.js";

/** @typedef {import("./runs.js").News} News */
/** @typedef {import("./runs.js").Report} Report */
/** @typedef {import("./host.js").LGraphNode} LGraphNode */

const SHOWN = "StepCache.Strip.Shown";
const DETAIL = "StepCache.Strip.Detail";
const CELLS = "cells only";
const CELLS_AND_SIGNAL = "cells and signal";

const runs = new Runs();
/** @type {Map<LGraphNode, Strip>} of the workflow that is open */
const strips = new Map();

/** As the user set them; ComfyUI tells them when it has read them, and at each change. */
const settings = { shown: true, withSignal: true };

/** @param {News | Report} message */
function receive(message) {
  if (!settings.shown || (message.workflow && message.workflow !== root().id)) return;
  if (runs.add(message)) show(message.node);
}

/** @param {string} id */
function show(id) {
  const node = nodeAt(root(), id);
  if (!node) return;
  const strip = strips.get(node) ?? new Strip(node, settings, app.canvas.canvas);
  strips.set(node, strip);
  strip.show(runs.of(id));
}

/** Show what the server kept of the last runs of this workflow. */
async function restore() {
  const workflow = root().id;
  if (!settings.shown || !workflow) return;
  const answer = await api.fetchApi(`/stepcache/runs?workflow=${encodeURIComponent(workflow)}`);
  if (!answer.ok || root().id !== workflow) return;
  /** @type {{runs: Report[]}} */
  const kept = await answer.json();
  for (const report of kept.runs) runs.restore(report);
  for (const node of new Set(kept.runs.map((report) => report.node))) show(node);
}

function removeAll() {
  runs.clear();
  for (const strip of strips.values()) strip.remove();
  strips.clear();
}

app.registerExtension({
  name: "StepCache.Strip",
  settings: [
    {
      id: SHOWN,
      name: "Show on the node what was computed and reused",
      category: ["StepCache", "Strip", "Shown"],
      sortOrder: 2, // the highest is first
      type: "boolean",
      defaultValue: true,
      /** @param {boolean} shown @param {boolean} [before] undefined when the page is loaded */
      onChange: (shown, before) => {
        settings.shown = shown;
        if (!shown) removeAll();
        else if (before === false) restore();
      },
    },
    {
      id: DETAIL,
      name: "Detail",
      category: ["StepCache", "Strip", "Detail"],
      sortOrder: 1,
      type: "combo",
      options: [CELLS, CELLS_AND_SIGNAL],
      defaultValue: CELLS_AND_SIGNAL,
      /** @param {string} detail */
      onChange: (detail) => {
        settings.withSignal = detail === CELLS_AND_SIGNAL;
        for (const strip of strips.values()) strip.redraw();
      },
    },
  ],
  setup() {
    addStyle(STYLE);
    for (const event of ["stepcache.evaluations", "stepcache.report"]) {
      api.addEventListener(event, (message) => receive(/** @type {CustomEvent} */ (message).detail));
    }
  },
  afterConfigureGraph() {
    runs.clear();
    strips.clear(); // their nodes are gone
    return restore();
  },
});
