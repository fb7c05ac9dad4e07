"""`dev.py matrix`: the pack on every version of ComfyUI that it promises to work on."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field

from . import places
from .comfy import prepare_comfyui
from .junit import Counts, read_counts
from .options import matrix_parser
from .pack import load_package
from .progress import run_step
from .sources import Source, version_key

LOGS = places.LOGS / "matrix"
STAGES = {
    "import": ["tests/test_import_rules.py", "-k", "importing_the_pack"],
    "contract": ["tests/model_patches/test_contract.py", "tests/nodes"],
    "server": [
        *("tests/test_server.py", "tests/test_workflows.py", "-k"),
        "a_cached_picture or are_listed or runs_as_ours or a_report_is",
    ],
}
"""What pytest runs on each version. The server's are one workflow with each of two nodes, old nodes, and reports."""

QUICK = {"contract": ["tests/model_patches/test_contract.py", "-k", "bit_identical or on_the_same_input"]}


@dataclass
class VersionResult:
    """What one version showed; a stage that was not run is not in `stages`."""

    version: str
    stages: dict[str, Counts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.problems and self.stages.keys() == STAGES.keys()

    @property
    def absent(self) -> list[str]:
        """Models that this version does not have yet, by class."""
        return sorted({name for counts in self.stages.values() for name in counts.absent})


def main(arguments: list[str]) -> int:
    options = matrix_parser().parse_args(arguments)
    stages = STAGES | QUICK if options.quick else STAGES
    results: list[VersionResult] = []
    try:
        for source in options.versions:
            results.append(VersionResult(source.version))
            try_version(source, stages, results[-1])
    except KeyboardInterrupt:
        print(f"\nStopped; what is known so far:\n\n{table(results)}", flush=True)
        return 130
    print(f"\n{table(results)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(as_dict(results), indent=1) + "\n", encoding="utf-8")
        print(f"written to {options.json}")
    if options.record and all(result.ok for result in results):
        record(results)
    return 0 if all(result.ok for result in results) else 1


def try_version(source: Source, stages: dict[str, list[str]], result: VersionResult) -> None:
    """Run the stages on one version and note what they showed. Without the import there is no point in the others."""
    started = time.monotonic()
    for stage, tests in stages.items():
        counts, problem = run_stage(source, stage, tests)
        result.stages[stage] = counts
        result.seconds = round(time.monotonic() - started, 1)
        if problem:
            result.problems.append(problem)
            print(f"  {problem}", flush=True)
            if stage == "import":
                return


def run_stage(source: Source, stage: str, tests: list[str]) -> tuple[Counts, str | None]:
    """What one stage showed, and what is wrong: the first error, and where the whole log is."""
    log, report = (LOGS / f"{source.version}-{stage}{ending}" for ending in (".log", ".xml"))
    for file in (log, report):
        file.unlink(missing_ok=True)
    command = [sys.executable, places.ROOT / "devtools" / "__main__.py", "pytest", *tests]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}"]
    output = run_step(f"ComfyUI {source.version}: {stage}", command, log, COMFYUI_PATH=str(source.folder))
    counts = read_counts(report)
    if output is None and counts.passed:
        return counts, None
    last_line = ((output or "").strip().splitlines() or ["no test ran"])[-1]
    return counts, f"{source.version} {stage}: {counts.first_error or last_line}\n    log: {log}"


def table(results: list[VersionResult]) -> str:
    """What people read: a line for each version, then what is absent or wrong."""
    lines = [
        f"{'ComfyUI':<8} {'import':<7} {'contract: passed':>16} {'skipped':>8} {'failed':>7}  {'models':<11} "
        f"{'server':<7} {'seconds':>7}"
    ]
    for result in results:
        contract = result.stages.get("contract", Counts())
        models = f"all but {len(result.absent)}" if result.absent else "all"
        lines.append(
            f"{result.version:<8} {word(result, 'import'):<7} {contract.passed:>16} {contract.skipped:>8} "
            f"{contract.failed:>7}  {models if contract.passed else '-':<11} {word(result, 'server'):<7} "
            f"{result.seconds:>7.0f}"
        )
    lines += [f"{result.version} does not have {', '.join(result.absent)}" for result in results if result.absent]
    lines += [problem for result in results for problem in result.problems]
    return "\n".join(lines)


def word(result: VersionResult, stage: str) -> str:
    """How a stage went."""
    counts = result.stages.get(stage)
    if counts is None:
        return "not run"
    return "ok" if counts.passed and not counts.failed else "failed"


def as_dict(results: list[VersionResult]) -> dict:
    """The content of the JSON file."""
    rows = [asdict(result) | {"ok": result.ok, "absent": result.absent} for result in results]
    return {"ok": all(result.ok for result in results), "versions": rows}


def record(results: list[VersionResult]) -> None:
    """Keep for each version, oldest first, how many tests passed and which networks it does not have."""
    prepare_comfyui()  # the recipes speak of its classes
    recipes = load_package("recipes_of_tests", places.ROOT / "tests" / "recipes").RECIPES.values()
    proved = {}
    for result in sorted(results, key=lambda result: version_key(result.version)):
        present = {recipe.network for recipe in recipes if recipe.config not in result.absent}
        absent = sorted({recipe.network for recipe in recipes} - present)
        proved[result.version] = {"passed": result.stages["contract"].passed, "absent": absent}
    places.PROVED.write_text(json.dumps(proved, indent=1) + "\n", encoding="utf-8")
    print(f"recorded in {places.PROVED.relative_to(places.ROOT)}")
