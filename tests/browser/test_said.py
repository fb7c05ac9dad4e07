"""The text on Calibrate and Save Profile, in ComfyUI's own page on a real server."""

import pytest

from devtools.server import running_server

from .comfy_page import demo_graph

ADD_NODES = """(seed) => {
  const add = (type, x) => {
    const node = LiteGraph.createNode(type);
    node.pos = [x, 1200];
    app.graph.add(node);
    return node;
  };
  const calibrate = add('StepCacheCalibrate', 460), save = add('StepCacheSaveProfile', 800);
  [1, 4, 5, 6].forEach((id, slot) => app.graph.getNodeById(id).connect(0, calibrate, slot));
  calibrate.connect(0, save, 0);
  const values = {seed, steps: 12, runs: 1, trials: 1};
  for (const [name, value] of Object.entries(values)) calibrate.widgets.find((widget) => widget.name === name).value = value;
  return [calibrate.id, save.id];
}"""

READ_SAID = """() => [...document.querySelectorAll('.stepcache-said')].map((said) => ({
  text: said.innerText,
  whole: said.clientHeight >= said.scrollHeight && said.clientWidth >= said.scrollWidth,
}))"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Of a server of its own, as what is calibrated changes what the other nodes do from then on."""
    folder = tmp_path_factory.mktemp("calibrating")
    with running_server(log=folder / "server.log", user=folder / "user") as address:
        yield address


def test_what_was_found_is_shown_on_the_node_and_is_not_found_again(page):
    page.load(demo_graph(steps=12, size=64))
    calibrate, save = page.page.evaluate(ADD_NODES, page.seed)
    saved, heights = page.saved_values(calibrate), [page.node_height(node) for node in (calibrate, save)]
    page.queue()
    page.look_at(calibrate, 1)
    page.wait_for_queue()
    page.page.wait_for_function("() => document.querySelectorAll('.stepcache-said').length === 2")
    page.page.wait_for_timeout(300)
    summary, place = page.page.evaluate(READ_SAID)
    assert summary["text"].startswith("Flux: one picture of 12 steps\ntuned for 2.0x: 6 steps computed")
    assert place["text"].startswith("saved as ") and place["text"].endswith("my-model.json")
    assert summary["whole"] and place["whole"]
    assert [page.node_height(node) for node in (calibrate, save)] > heights
    assert page.saved_values(calibrate) == saved, "neither the text is saved nor is there another seed"
    page.shot("said")
