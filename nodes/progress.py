"""What a run tells the page while it samples and when it ends."""

from __future__ import annotations

import time

from ..cache_core.report import RunReport

INTERVAL = 0.25
"""Seconds between two texts on a node."""

EVENT = "stepcache.report"


class NodeProgress:
    """Listener that shows a run's report on a node, and sends it as an event when the run has ended.

    Without a connected client nothing is sent.
    """

    def __init__(self, node_id: str | None):
        self.node_id = node_id
        self.last_sent = 0.0

    def __call__(self, report: RunReport) -> None:
        now = time.monotonic()
        if self.node_id is None or (now - self.last_sent < INTERVAL and not report.finished):
            return
        self.last_sent = now
        from server import PromptServer

        server = getattr(PromptServer, "instance", None)
        if server is None or server.client_id is None:
            return
        server.send_progress_text(report.summary(), self.node_id, server.client_id)
        if report.finished:
            server.send_sync(EVENT, {"node": self.node_id} | report.as_dict(), server.client_id)
