"""`dev.py models`, and the table in the README that it makes."""

import json

from devtools import models
from stepcache.model_patches.architectures import ARCHITECTURES


def test_the_table_in_the_readme_is_current():
    readme = models.README.read_text(encoding="utf-8")
    assert models.with_table(readme) == readme, "run `python3 dev.py models --readme`"


def test_every_architecture_has_a_row_with_its_figures_and_versions():
    rows = {row["class"]: row for row in models.rows()}
    assert rows.keys() == ARCHITECTURES.keys()
    assert "FLUX.1-dev" in rows["Flux"]["teacache"] and rows["Flux"]["blocks"] == ["double_blocks", "single_blocks"]
    assert all(row["versions"][-1] == "0.30.0" for row in rows.values())


def test_a_row_names_the_versions_that_have_the_model(monkeypatch, tmp_path):
    proved = {"1.0": {"absent": []}, "2.0": {"absent": ["Flux"]}, "3.0": {"absent": []}}
    monkeypatch.setattr(models.places, "PROVED", tmp_path / "proved.json")
    models.places.PROVED.write_text(json.dumps(proved), encoding="utf-8")
    assert models.versions("Flux") == ["1.0", "3.0"]
    assert models.span(models.versions("Flux"), list(proved)) == "1.0, 3.0"
    assert models.span(models.versions("Chroma"), list(proved)) == "1.0 to 3.0"
    assert models.span(["3.0"], list(proved)) == "3.0"
