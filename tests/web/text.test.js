import assert from "node:assert/strict";
import { test } from "node:test";
import { caption, detail, notes, size } from "../../web/js/text.js";

const some = { signal: null, threshold: null };
const evaluations = [
  { index: 0, action: "computed", ...some },
  { index: 1, action: "reused", ...some },
];
const going = { number: 0, prompt: "p", method: "m", steps: 4, evaluations, report: null };
const report = {
  speedup: 1.934,
  cache_bytes: 48 * 2 ** 20,
  asked: 0,
  computed: 1,
  evaluations: 2,
  steps: 4,
  trace: evaluations,
  settings: { threshold: 0.1, figures: "Flux" },
  messages: ["A.", "B."],
};

test("the caption counts while the run goes on, and tells the gain at its end", () => {
  assert.equal(caption(going, false), "1 of 2 reused");
  assert.equal(caption({ ...going, report }, false), "1 of 2 reused · 1.93× · 48 MiB");
  assert.equal(caption({ ...going, number: 1 }, true), "2: 1 of 2 reused");
});

test("evaluations that were missed are not counted", () => {
  const holes = [];
  holes[3] = evaluations[1];
  assert.equal(caption({ ...going, evaluations: holes }, false), "1 of 1 reused");
});

test("sizes have the figures that matter", () => {
  assert.deepEqual([0, 2 ** 19, 9.96 * 2 ** 20, 48.6 * 2 ** 20, 1.5 * 2 ** 30].map(size), [
    "0.0 MiB",
    "0.5 MiB",
    "10.0 MiB",
    "49 MiB",
    "1.5 GiB",
  ]);
});

test("the notes are settings and messages of the finished run", () => {
  assert.equal(notes(going), "");
  assert.equal(notes({ ...going, report }), "threshold 0.1 · figures Flux\nA.\nB.");
});

test("the notes tell what was asked for, and of samplers that choose their steps", () => {
  const trace = [{ stride: 1 }, { stride: 2.96 }];
  assert.equal(
    notes({ ...going, report: { ...report, messages: [], asked: 2, trace } }),
    "2 for 4 steps, the longest 3.0\nasked for 2.00×: 1 of 2 computed\nthreshold 0.1 · figures Flux",
  );
});

test("the details of an evaluation", () => {
  const full = { index: 2, action: "reused", signal: 0.04321, threshold: 0.1, reason: "change 0.04 < 0.1" };
  assert.equal(detail(full), "evaluation 3: reused\nchange 0.04 < 0.1\nsignal 0.0432 of 0.100");
  assert.equal(detail({ ...evaluations[0], branches: ["computed", "reused"] }), "evaluation 1: computed, reused");
});
