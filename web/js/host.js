/** ComfyUI's page, with types for what is used of it. */

// @ts-expect-error: served by ComfyUI
import { api as hostApi } from "../../../scripts/api.js";
// @ts-expect-error: served by ComfyUI
import { app as hostApp } from "../../../scripts/app.js";

/** @typedef {{name: string, type: string, serialize?: boolean, value: unknown}} Widget */

/**
 * @typedef {object} LGraphNode
 * @property {string} type
 * @property {[number, number]} size
 * @property {Widget[]} [widgets]
 * @property {LGraph} [subgraph]
 * @property {(name: string, type: string, element: HTMLElement, options: object) => Widget} addDOMWidget
 * @property {(widget: Widget) => void} removeWidget
 * @property {() => [number, number]} computeSize
 * @property {(size: [number, number]) => void} setSize
 */

/** @typedef {{id: string, getNodeById(id: string | number): LGraphNode | null, setDirtyCanvas(foreground: boolean, background?: boolean): void}} LGraph */

/**
 * @typedef {object} App
 * @property {LGraph} graph
 * @property {LGraph} [rootGraph]
 * @property {{canvas: HTMLCanvasElement}} canvas
 * @property {(extension: object) => void} registerExtension
 */

/** @type {App} */
export const app = hostApp;

/** @type {EventTarget & {fetchApi(route: string): Promise<Response>}} */
export const api = hostApi;

/** The workflow that is open, whatever subgraph of it is shown. */
export const root = () => app.rootGraph ?? app.graph;
