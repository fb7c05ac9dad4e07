"""ComfyUI's page in a real browser, as far as the tests need it."""

import copy
import json
import urllib.request

from devtools import places

SCREENSHOTS = places.WORK / "screenshots"
STRIP = ".stepcache-strip"
CACHE, SAMPLER = 2, 7
"""Nodes of the demo workflow."""

KNOWN = ("404 (Not Found)", "ComfyApp graph accessed before initialization", "Content Security Policy")
"""Errors that ComfyUI's own page writes without any pack: files of a new user, its start, sizes of models it names."""

READ_STRIP = """() => [...document.querySelectorAll('.stepcache-strip')].map((strip) => ({
  label: strip.getAttribute('aria-label'),
  notes: strip.querySelector('.notes').textContent,
  width: strip.clientWidth,
  visible: strip.checkVisibility({visibilityProperty: true}),
  rows: [...strip.querySelectorAll('.row')].map((row) => Object.fromEntries(
    ['computed', 'reused', 'expected', 'signal', 'threshold'].map((name) =>
      [name, (row.querySelector('.' + name).getAttribute('d') || '').split('M').length - 1]))),
}))"""

READ_COLOURS = """() => {
  const of = (selector, name) => getComputedStyle(document.querySelector('.stepcache-strip' + selector))[name]
    .match(/[\\d.]+/g).slice(0, 3).map(Number);
  return {behind: of('', 'backgroundColor'), text: of('', 'color'), reused: of(' .reused', 'fill')};
}"""

WATCH = """() => {
  window.seenLabels = [];
  const look = () => {
    const label = document.querySelector('.stepcache-strip')?.getAttribute('aria-label');
    if (label && label !== window.seenLabels.at(-1)) window.seenLabels.push(label);
    requestAnimationFrame(look);
  };
  look();
}"""


def demo_graph(steps: int = 28, size: int = 256, threshold: float = 0.1) -> dict:
    """The demo workflow as the page has it."""
    graph = json.loads((places.WORKFLOWS / "tiny_demo.json").read_text(encoding="utf-8"))
    for node in graph["nodes"]:
        if node["type"] == "KSampler":
            node["widgets_values"][2] = steps
        if node["type"] == "StepCacheTeaCache":
            node["widgets_values"][0] = threshold
        if node["type"] == "EmptySD3LatentImage":
            node["widgets_values"][:2] = [size, size]
    return graph


def short_graph(steps: int = 12) -> dict:
    """A small picture in few steps, of which some are reused."""
    return demo_graph(steps, size=128, threshold=0.3)


def with_second_sampler(graph: dict) -> dict:
    """Sampler, decoder and output once more, on the same cached model."""
    graph = copy.deepcopy(graph)
    nodes = {node["id"]: node for node in graph["nodes"]}
    twins = {7: 17, 9: 19, 10: 20}
    for old, new in twins.items():
        nodes[new] = copy.deepcopy(nodes[old]) | {"id": new, "pos": [nodes[old]["pos"][0], 560]}
        for output in nodes[new].get("outputs", []):
            output["links"] = []
    number = max(link[0] for link in graph["links"])
    for _, source, slot, target, place, kind in list(graph["links"]):
        if target in twins:
            number += 1
            source, target = twins.get(source, source), twins[target]
            graph["links"].append([number, source, slot, target, place, kind])
            nodes[target]["inputs"][place]["link"] = number
            nodes[source]["outputs"][slot]["links"].append(number)
    return graph | {"nodes": list(nodes.values()), "last_link_id": number, "last_node_id": max(nodes)}


def contrast(one: list[float], other: list[float]) -> float:
    """Of two sRGB colours (0 to 255), from 1 to 21. Source: WCAG 2.2, contrast ratio and relative luminance."""

    def luminance(colour: list[float]) -> float:
        shares = [value / 255 for value in colour]
        red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


class ComfyPage:
    """The page of one browser tab. `errors` are those that neither ComfyUI nor a new user explains."""

    def __init__(self, browser, address: str, vue: bool, palette: str):
        self.address, self.vue, self.name = address, vue, f"{'vue' if vue else 'classic'}-{palette}"
        self.seed = 3000 + 1000 * vue
        self.post("/api/settings", page_settings(vue, palette))
        self.page = browser.new_page(viewport={"width": 1400, "height": 900})
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._heard)
        self.page.goto(f"http://{address}")
        self._ready()

    def _heard(self, message) -> None:
        if message.type == "error" and not any(known in message.text for known in KNOWN):
            self.errors.append(message.text)

    def _ready(self) -> None:
        self.page.wait_for_function("() => window.app?.extensionManager && app.canvas?.graph", timeout=60_000)
        self.page.wait_for_function("() => app.extensions?.some(({name}) => name === 'StepCache.Strip')")
        self.page.wait_for_load_state("networkidle")

    def post(self, path: str, body: dict) -> None:
        request = urllib.request.Request(
            f"http://{self.address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=10).read()

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=10) as answer:
            return json.load(answer)

    def load(self, graph: dict) -> None:
        """Load a workflow, with seeds of its own: ComfyUI does not sample again what it sampled before."""
        for node in graph["nodes"]:
            if node["type"] == "KSampler":
                self.seed += 1
                node["widgets_values"][0] = self.seed
        self.page.evaluate("(graph) => app.loadGraphData(graph)", graph)
        self.page.wait_for_function("(count) => app.graph.nodes.length === count", arg=len(graph["nodes"]))

    def reload(self) -> None:
        self.page.wait_for_timeout(1500)  # the page stores its draft of the workflow a little later
        self.page.reload()
        self._ready()

    def other_seeds(self) -> None:
        """Of the samplers, so that they sample again."""
        self.seed += 10
        self.page.evaluate(
            """(seed) => app.graph.nodes.filter(({type}) => type === 'KSampler')
              .forEach((node, index) => { node.widgets[0].value = seed + index })""",
            self.seed,
        )

    def queue(self) -> None:
        self.page.evaluate("() => app.queuePrompt(0)")

    def wait_for_queue(self) -> None:
        """Until nothing runs and nothing waits."""
        queue = {"queue_running": [1]}
        while any(queue.values()):
            self.page.wait_for_timeout(200)
            queue = self.get("/queue")

    def set(self, setting: str, value) -> None:
        self.page.evaluate("([id, value]) => app.extensionManager.setting.set(id, value)", [setting, value])

    def strips(self) -> list[dict]:
        return self.page.evaluate(READ_STRIP)

    def wait_for_label(self, pattern: str, timeout: int = 60_000) -> str:
        """Until the strip says what fits the regular expression."""
        self.page.wait_for_function(
            "(pattern) => new RegExp(pattern).test(document.querySelector('.stepcache-strip')?.getAttribute('aria-label'))",
            arg=pattern,
            timeout=timeout,
        )
        return self.strips()[0]["label"]

    def kept_runs(self) -> list[dict]:
        return self.get(f"/stepcache/runs?workflow={self.page.evaluate('() => app.rootGraph.id')}")["runs"]

    def node_height(self, node: int = CACHE) -> float:
        return self.page.evaluate("(id) => app.graph.getNodeById(id).size[1]", node)

    def saved_values(self, node: int = CACHE) -> list:
        return self.page.evaluate("(id) => app.graph.getNodeById(id).serialize().widgets_values", node)

    def sent_inputs(self, node: str = str(CACHE)) -> dict:
        return self.page.evaluate("(id) => app.graphToPrompt().then(({output}) => output[id].inputs)", node)

    def look_at(self, node: int, scale: float) -> None:
        """Put a node near the top left corner."""
        self.page.evaluate(
            """([id, scale]) => {
              const [x, y] = app.graph.getNodeById(id).pos;
              app.canvas.ds.scale = scale;
              app.canvas.ds.offset = [120 / scale - x, 130 / scale - y];
              app.canvas.setDirty(true, true);
            }""",
            [node, scale],
        )
        self.page.wait_for_timeout(500)

    def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}-{self.name}.png")


def page_settings(vue: bool, palette: str) -> dict:
    return {
        "Comfy.TutorialCompleted": True,
        "Comfy.VueNodes.Enabled": vue,
        "Comfy.ColorPalette": palette,
        "Comfy.Minimap.Visible": False,
    }
