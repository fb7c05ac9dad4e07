/** What is known of the runs of each node, put together from the messages of `docs/events.md`. */

/** @typedef {{index: number, action: "computed" | "reused", branches?: string[], signal: number | null, threshold: number | null, stride?: number | null, reason?: string}} Evaluation */

/** @typedef {{version: number, prompt_id: string, node: string, workflow: string | null, run: number, method: string, steps: number}} Head */

/** @typedef {Head & {evaluations: Evaluation[]}} News Evaluations that ended since the last message about the run. */

/** @typedef {Head & {evaluations: number, trace: Evaluation[], asked: number, computed: number, reused: number, speedup: number, cache_bytes: number, steps_saved: number, settings: Record<string, unknown>, messages: string[], finished: boolean}} Report */

/** @typedef {{number: number, prompt: string, method: string, steps: number, evaluations: Evaluation[], report: Report | null}} Run */

export const VERSION = 1;

export class Runs {
  constructor() {
    /** @type {Map<string, Run[]>} by node; all of one prompt, in their order */
    this.byNode = new Map();
  }

  clear() {
    this.byNode.clear();
  }

  /** @param {string} node */
  of(node) {
    return this.byNode.get(node) ?? [];
  }

  /**
   * Take in a message; one of another prompt ends the rows of the prompt before. Returns whether it was understood.
   * @param {News | Report} message
   */
  add(message) {
    if (message.version !== VERSION) return false;
    const run = this.runOf(message);
    const evaluations = "trace" in message ? message.trace : message.evaluations;
    for (const evaluation of evaluations) run.evaluations[evaluation.index] = evaluation;
    if ("trace" in message && message.finished) run.report = message;
    return true;
  }

  /**
   * Take in what the server kept. What came as a message since then is newer.
   * @param {Report} report
   */
  restore(report) {
    const known = this.of(report.node);
    if (known.length && known[0].prompt !== report.prompt_id) return;
    this.add(report);
  }

  /** @param {Head} message @returns {Run} */
  runOf({ node, prompt_id: prompt, run: number, method, steps }) {
    const runs = this.of(node).filter((run) => run.prompt === prompt);
    let found = runs.find((run) => run.number === number);
    if (!found) {
      found = { number, prompt, method, steps, evaluations: [], report: null };
      runs.push(found);
      runs.sort((one, other) => one.number - other.number);
    }
    this.byNode.set(node, runs);
    return found;
  }
}
