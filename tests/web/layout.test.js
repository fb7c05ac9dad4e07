import assert from "node:assert/strict";
import { test } from "node:test";
import { CELLS, drawing, evaluationAt, SIGNAL } from "../../web/js/layout.js";

/** A run of so many steps; "c" and "r" are evaluations that were computed and reused. */
function run(letters, steps = letters.length, more = []) {
  const evaluations = [...letters].map((letter, index) => ({
    index,
    action: letter === "r" ? "reused" : "computed",
    signal: null,
    threshold: null,
    ...more[index],
  }));
  return { number: 0, prompt: "p", method: "m", steps, evaluations, report: null };
}

/** The rectangles of a path as [x, y, width, height]. */
function bars(path) {
  return [...path.matchAll(/M([-\d.]+) ([-\d.]+)h([-\d.]+)v([-\d.]+)/g)].map((found) => found.slice(1).map(Number));
}

/** The points of a path; the height is downwards. */
function points(path) {
  return [...path.matchAll(/[ML]([-\d.]+) ([-\d.]+)/g)].map((found) => found.slice(1).map(Number));
}

test("one cell for each step: computed, reused, expected", () => {
  const drawn = drawing(run("crc", 5), 100, true);
  assert.deepEqual(
    bars(drawn.computed).map(([x]) => x),
    [0, 40],
  );
  assert.deepEqual(
    bars(drawn.reused).map(([x]) => x),
    [20],
  );
  assert.deepEqual(
    bars(drawn.expected).map(([x]) => x),
    [60, 80],
  );
});

test("steps that a sampler did without have no cells; those that an interrupt cut off have", () => {
  const ended = { ...run("cr", 5), report: { steps_saved: 3 } };
  const cut = { ...run("cr", 5), report: { steps_saved: 0 } };
  assert.equal(bars(drawing(ended, 100, false).expected).length, 0);
  assert.equal(bars(drawing(cut, 100, false).expected).length, 3);
});

test("a reused cell is low and a computed one high: told apart without colours", () => {
  const drawn = drawing(run("cr"), 100, false);
  const [[, computedTop, , computed]] = bars(drawn.computed);
  const [[, reusedTop, , reused]] = bars(drawn.reused);
  assert.equal(computed, CELLS);
  assert.ok(reused < computed / 2);
  assert.equal(computedTop + computed, reusedTop + reused); // they stand on one line
});

test("more evaluations than steps, and very many, stay inside the width and apart from each other", () => {
  for (const count of [7, 500]) {
    const drawn = drawing(run("c".repeat(count), 4), 100, false);
    const found = bars(drawn.computed);
    assert.equal(found.length, count);
    const [x, , width] = found.at(-1);
    assert.ok(x + width <= 100);
    assert.ok(found[0][2] > 0 && found[0][0] + found[0][2] < found[1][0]);
  }
});

test("where branches differ the cell is divided, the positive one above", () => {
  const drawn = drawing(run("c", 1, [{ branches: ["computed", "reused"] }]), 100, false);
  const [[, top, , computed]] = bars(drawn.computed);
  const [[, low, , reused]] = bars(drawn.reused);
  assert.equal(top, 0);
  assert.equal(computed, CELLS / 2);
  assert.ok(low > computed && low + reused === CELLS);
});

test("signal and threshold share a scale, and a signal beyond it is drawn at the top", () => {
  const values = [
    {},
    { signal: 0.05, threshold: 0.1 },
    { signal: 0.1, threshold: 0.1 },
    { signal: 50, threshold: 0.1 },
  ];
  const drawn = drawing(run("crcc", 4, values), 100, true);
  const signal = points(drawn.signal);
  const threshold = points(drawn.threshold);
  assert.equal(drawn.height, SIGNAL + 4 + CELLS);
  assert.deepEqual(
    signal.map(([x]) => x),
    [37.5, 62.5, 87.5],
  ); // none for the first evaluation
  assert.equal(signal[1][1], threshold[1][1]);
  assert.ok(signal[0][1] > threshold[0][1]); // below it
  assert.equal(signal[2][1], 1);
});

test("a line is broken where there is no signal", () => {
  const some = { signal: 1, threshold: null };
  const drawn = drawing(run("cccc", 4, [some, {}, some, some]), 100, true);
  assert.equal(drawn.signal.match(/M/g).length, 2);
  assert.equal(drawn.threshold, "");
});

test("evaluations that were missed leave a gap", () => {
  const made = run("c", 3, [{ signal: 1, threshold: 1 }]);
  made.evaluations[2] = { ...made.evaluations[0], index: 2 };
  const drawn = drawing(made, 90, true);
  assert.deepEqual(
    bars(drawn.expected).map(([x]) => x),
    [30],
  );
  assert.equal(drawn.signal.match(/M/g).length, 2);
});

test("without signals, or with cells only, there are only cells", () => {
  const some = { signal: 1, threshold: 2 };
  assert.equal(drawing(run("cr"), 100, true).height, CELLS);
  assert.equal(drawing(run("cr", 2, [some, some]), 100, false).height, CELLS);
});

test("the evaluation under the pointer", () => {
  const made = run("crc", 4);
  assert.equal(evaluationAt(made, 0.3).index, 1);
  assert.equal(evaluationAt(made, 0.9), undefined);
});
