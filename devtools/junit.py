"""What a pytest run showed, read from the report it writes with --junitxml."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ABSENT = re.compile(r"ComfyUI \S+ has no (\w+)")
"""How a test says that this ComfyUI lacks a model: see `tests/tiny_models.py`."""


@dataclass(frozen=True)
class Counts:
    """`absent` are the models for whose want tests were skipped."""

    passed: int = 0
    skipped: int = 0
    failed: int = 0  # with errors in set-up and collection
    absent: tuple[str, ...] = ()
    first_error: str | None = None


def read_counts(report: Path) -> Counts:
    """The counts of a report; all zero if there is none, as when pytest itself did not start."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return Counts()
    skipped = [case for case in cases if case.find("skipped") is not None]
    failed = [case for case in cases if problem_of(case) is not None]
    reasons = (case.find("skipped").get("message", "") for case in skipped)  # type: ignore[union-attr]
    return Counts(
        passed=len(cases) - len(skipped) - len(failed),
        skipped=len(skipped),
        failed=len(failed),
        absent=tuple(sorted({found[1] for reason in reasons if (found := ABSENT.search(reason))})),
        first_error=described(failed[0]) if failed else None,
    )


def problem_of(case: ElementTree.Element) -> ElementTree.Element | None:
    """The entry that says what went wrong with a test, if anything did."""
    found = [entry for entry in case if entry.tag in ("failure", "error")]
    return found[0] if found else None


def described(case: ElementTree.Element) -> str:
    """A failed test and the last line of what it raised."""
    problem = problem_of(case)
    assert problem is not None
    lines = [line[1:].strip() for line in (problem.text or "").splitlines() if line.startswith("E ")]
    return f"{case.get('name')}: {(lines or [problem.get('message', 'failed').strip()])[0]}"
