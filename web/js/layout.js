/** Where things of one run are drawn, as SVG paths: a few paths however many evaluations there are. */

/** @typedef {import("./runs.js").Run} Run */
/** @typedef {{width: number, height: number, computed: string, reused: string, expected: string, signal: string, threshold: string}} Drawing */

export const CELLS = 16;
export const SIGNAL = 24;
const GAP = 4;
const REUSED = 0.3; // of a cell's height: the shape tells it apart where the colour does not
const ROOM = 1.2; // times the highest threshold: what is always shown
const CLIP = 2; // times that: a signal above is drawn at the top

/**
 * @param {Run} run
 * @param {number} width in pixels
 * @param {boolean} withSignal
 * @returns {Drawing}
 */
export function drawing(run, width, withSignal) {
  const lines = withSignal ? signalLines(run, width) : { signal: "", threshold: "" };
  const top = lines.signal ? SIGNAL + GAP : 0;
  return { width, height: top + CELLS, ...cells(run, width, top), ...lines };
}

/**
 * Cells of a run: one for each evaluation, and for each step that is yet to come or that an interrupt cut off.
 * @param {Run} run
 */
export function cellCount({ steps, evaluations, report }) {
  return Math.max(steps - (report?.steps_saved ?? 0), evaluations.length, 1);
}

/**
 * The evaluation under a horizontal position, if there is one.
 * @param {Run} run
 * @param {number} share of the width, from 0 to 1
 */
export function evaluationAt(run, share) {
  return run.evaluations[Math.floor(share * cellCount(run))];
}

/** @param {Run} run @param {number} width @param {number} top */
function cells(run, width, top) {
  const count = cellCount(run);
  const pitch = width / count;
  const wide = pitch - Math.min(2, pitch / 4);
  const paths = { computed: "", reused: "", expected: "" };
  for (let index = 0; index < count; index++) {
    const evaluation = run.evaluations[index];
    const x = index * pitch;
    if (!evaluation) {
      paths.expected += bar(x, top + CELLS - 2, wide, 2);
      continue;
    }
    const actions = evaluation.branches?.length ? evaluation.branches : [evaluation.action];
    const high = CELLS / actions.length;
    actions.forEach((action, branch) => {
      const tall = action === "reused" ? high * REUSED : high - (branch > 0 ? 1 : 0);
      paths[action === "reused" ? "reused" : "computed"] += bar(x, top + (branch + 1) * high - tall, wide, tall);
    });
  }
  return paths;
}

/** @param {Run} run @param {number} width */
function signalLines(run, width) {
  const pitch = width / cellCount(run);
  const signals = Array.from(run.evaluations, (evaluation) => evaluation?.signal ?? null);
  const thresholds = Array.from(run.evaluations, (evaluation) => evaluation?.threshold ?? null);
  const limit = highest(thresholds);
  const top = limit ? Math.min(Math.max(limit * ROOM, highest(signals)), limit * CLIP) : highest(signals);
  if (!(top > 0)) return { signal: "", threshold: "" };
  /** @param {number} value */
  const y = (value) => 1 + (SIGNAL - 2) * (1 - Math.min(value, top) / top);
  return { signal: line(signals, pitch, y), threshold: line(thresholds, pitch, y) };
}

/** Of the values there are, and at least 0. @param {(number | null)[]} values */
function highest(values) {
  return values.reduce((/** @type {number} */ most, value) => Math.max(most, value ?? 0), 0);
}

/**
 * A line through the middles of the cells, broken where there is no value.
 * @param {(number | null)[]} values
 * @param {number} pitch
 * @param {(value: number) => number} y
 */
function line(values, pitch, y) {
  let path = "";
  let pen = "M";
  values.forEach((value, index) => {
    if (value === null) {
      pen = "M";
      return;
    }
    const point = `${round((index + 0.5) * pitch)} ${round(y(value))}`;
    path += pen === "M" ? `M${point}h0` : `L${point}`; // h0: a lone point is seen too
    pen = "L";
  });
  return path;
}

/** @param {number} x @param {number} y @param {number} wide @param {number} tall */
function bar(x, y, wide, tall) {
  return `M${round(x)} ${round(y)}h${round(wide)}v${round(tall)}h${round(-wide)}z`;
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 100) / 100;
}
