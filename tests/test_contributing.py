"""The examples of CONTRIBUTING.md work as they stand there."""

import re
from pathlib import Path

from stepcache.cache_core.method import CacheMethod
from stepcache.model_patches.calibration import Calibration
from stepcache.nodes import threshold_nodes

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_new_method_and_its_node_can_be_made():
    section = TEXT[TEXT.index("## Add a method") : TEXT.index("## Add a model")]
    method, node = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names = {"__package__": "stepcache.cache_core.methods", "__name__": "stepcache.cache_core.methods.drift"}
    exec(method, names)
    assert isinstance(names["drift_cache"](0.1, max_consecutive=2), CacheMethod)
    names = dict(vars(threshold_nodes)) | {"drift_cache": names["drift_cache"]}
    exec(node, names)
    drift = names["DriftCache"]
    assert drift.define_schema().inputs[1].id == "threshold"
    assert drift.method(0.1, Calibration("general rule", 0.1), {}).name == "Drift Cache"


def test_every_file_that_is_named_exists():
    tree = TEXT[TEXT.index("## Where things are") :]
    tree = tree[tree.index("```") : tree.index("```\n\nWho")]
    folder = ROOT
    for line in tree.splitlines()[1:]:
        name = line.split()[0]
        if not line.startswith(" "):
            folder = ROOT / name if name.endswith("/") else ROOT
        assert (ROOT / name).exists() or (folder / name).exists(), name
