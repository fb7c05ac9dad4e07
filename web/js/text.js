/** The words of the strip. */

/** @typedef {import("./runs.js").Run} Run */
/** @typedef {import("./runs.js").Evaluation} Evaluation */

/** @param {Run} run @param {boolean} numbered whether a node has more runs than one */
export function caption(run, numbered) {
  const counted = run.evaluations.filter(Boolean);
  const reused = counted.filter((evaluation) => evaluation.action === "reused").length;
  const parts = [`${reused} of ${counted.length} reused`];
  if (run.report) parts.push(`${run.report.speedup.toFixed(2)}×`, size(run.report.cache_bytes));
  return (numbered ? `${run.number + 1}: ` : "") + parts.join(" · ");
}

/** What was asked for, the settings that the run had, and what the user should know. @param {Run} run */
export function notes({ report }) {
  if (!report) return "";
  const { asked, computed, evaluations, settings, steps, trace, messages } = report;
  const lines = [
    Object.entries(settings)
      .map(([name, value]) => `${name} ${value}`)
      .join(" · "),
  ];
  if (asked) lines.unshift(`asked for ${asked.toFixed(2)}×: ${computed} of ${evaluations} computed`);
  const longest = Math.max(0, ...trace.map(({ stride }) => stride ?? 0)); // of samplers that choose their steps
  if (longest) lines.unshift(`${evaluations} for ${steps} steps, the longest ${longest.toFixed(1)}`);
  return [...lines, ...messages].filter(Boolean).join("\n");
}

/** What is shown under the pointer. @param {Evaluation} evaluation */
export function detail(evaluation) {
  const { index, action, branches, signal, threshold, reason } = evaluation;
  const lines = [`evaluation ${index + 1}: ${branches?.length ? branches.join(", ") : action}`];
  if (reason) lines.push(reason);
  if (signal !== null) {
    const limit = threshold === null ? "" : ` of ${threshold.toPrecision(3)}`;
    lines.push(`signal ${signal.toPrecision(3)}${limit}`);
  }
  return lines.join("\n");
}

/** @param {number} bytes */
export function size(bytes) {
  const mebibytes = bytes / 2 ** 20;
  if (mebibytes >= 1024) return `${(mebibytes / 1024).toFixed(1)} GiB`;
  return `${mebibytes.toFixed(mebibytes < 10 ? 1 : 0)} MiB`;
}
