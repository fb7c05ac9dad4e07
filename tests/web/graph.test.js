import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeAt } from "../../web/js/graph.js";

/** A graph with these nodes by id. */
function graph(nodes) {
  return { id: "g", getNodeById: (id) => nodes[id] ?? null };
}

test("nodes of the graph, and of subgraphs in subgraphs", () => {
  const innermost = { name: "innermost" };
  const inner = { subgraph: graph({ 7: innermost }) };
  const outer = { subgraph: graph({ 3: inner }) };
  const root = graph({ 12: outer });
  assert.equal(nodeAt(root, "12"), outer);
  assert.equal(nodeAt(root, "12:3"), inner);
  assert.equal(nodeAt(root, "12:3:7"), innermost);
});

test("a node that is not there, or inside of one that is no subgraph", () => {
  const root = graph({ 1: {} });
  assert.equal(nodeAt(root, "2"), null);
  assert.equal(nodeAt(root, "1:2"), null);
  assert.equal(nodeAt(root, "2:1"), null);
});
