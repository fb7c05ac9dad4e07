/** The node that a message is about. */

/** @typedef {{id: string, getNodeById(id: string | number): Node | null}} Graph */
/** @typedef {{subgraph?: Graph}} Node */

/**
 * A node by its id in the prompt: "7", or "12:7" for node 7 in the subgraph that is node 12.
 * @template {Graph} T
 * @param {T} graph
 * @param {string} id
 * @returns {ReturnType<T["getNodeById"]> | null}
 */
export function nodeAt(graph, id) {
  const path = id.split(":");
  const last = /** @type {string} */ (path.pop());
  /** @type {Graph | undefined} */
  let inner = graph;
  for (const step of path) inner = inner?.getNodeById(step)?.subgraph;
  return /** @type {any} */ (inner?.getNodeById(last) ?? null);
}
