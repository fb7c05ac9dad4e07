import assert from "node:assert/strict";
import { test } from "node:test";
import { Runs } from "../../web/js/runs.js";

const HEAD = { version: 1, prompt_id: "p", node: "2", workflow: "w", run: 0, method: "TeaCache", steps: 4 };

function evaluation(index, action = "computed", more = {}) {
  return { index, action, signal: null, threshold: null, ...more };
}

function news(evaluations, more = {}) {
  return { ...HEAD, evaluations, ...more };
}

function report(trace, more = {}) {
  return { ...HEAD, evaluations: trace.length, trace, finished: true, reused: 1, speedup: 2, cache_bytes: 3, ...more };
}

const actions = (run) => run.evaluations.map(({ action }) => action);

test("messages about one run are put together", () => {
  const runs = new Runs();
  runs.add(news([evaluation(0)]));
  runs.add(news([evaluation(1, "reused"), evaluation(2)]));
  const [run, ...others] = runs.of("2");
  assert.deepEqual(actions(run), ["computed", "reused", "computed"]);
  assert.equal(run.report, null);
  assert.equal(others.length, 0);
});

test("the report completes a run, also where messages were missed", () => {
  const runs = new Runs();
  runs.add(news([evaluation(2)]));
  runs.add(report([evaluation(0), evaluation(1, "reused"), evaluation(2), evaluation(3)]));
  const [run] = runs.of("2");
  assert.equal(run.evaluations.length, 4);
  assert.equal(run.report.speedup, 2);
});

test("several runs of a prompt are kept in their order", () => {
  const runs = new Runs();
  runs.add(news([evaluation(0)], { run: 1 }));
  runs.add(news([evaluation(0)], { run: 0 }));
  assert.deepEqual(
    runs.of("2").map((run) => run.number),
    [0, 1],
  );
});

test("another prompt ends the rows of the one before, on its node alone", () => {
  const runs = new Runs();
  runs.add(news([evaluation(0)]));
  runs.add(news([evaluation(0)], { node: "12:3" }));
  runs.add(news([evaluation(0, "reused")], { prompt_id: "q" }));
  assert.deepEqual(
    runs.of("2").map((run) => run.prompt),
    ["q"],
  );
  assert.deepEqual(
    runs.of("12:3").map((run) => run.prompt),
    ["p"],
  );
});

test("what the server kept completes a run that goes on, and does not undo a newer prompt", () => {
  const runs = new Runs();
  runs.add(news([evaluation(2)]));
  runs.restore(report([evaluation(0), evaluation(1)], { finished: false }));
  assert.equal(runs.of("2")[0].evaluations.filter(Boolean).length, 3);
  assert.equal(runs.of("2")[0].report, null);
  runs.restore(report([evaluation(0)], { prompt_id: "older" }));
  assert.deepEqual(
    runs.of("2").map((run) => run.prompt),
    ["p"],
  );
});

test("a message of a version to come is not understood", () => {
  const runs = new Runs();
  assert.equal(runs.add(news([evaluation(0)], { version: 2 })), false);
  assert.deepEqual(runs.of("2"), []);
});
