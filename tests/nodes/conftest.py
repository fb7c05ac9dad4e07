"""What tests of several nodes share."""

import pytest

from stepcache.nodes import base


@pytest.fixture
def reports(monkeypatch):
    """The reports of finished runs."""
    finished = []
    listener = lambda report: finished.append(report) if report.finished else None  # noqa: E731
    monkeypatch.setattr(base, "NodeProgress", lambda _node: listener)
    return finished
