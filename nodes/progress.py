"""What a run tells the page while it samples and when it ends. `docs/events.md` describes the messages."""

from __future__ import annotations

import time

from ..cache_core.report import RunReport
from .recent_runs import RECENT, Place, ShownRun

INTERVAL = 0.25
"""Seconds between two messages about a run."""

EVALUATIONS_EVENT = "stepcache.evaluations"
REPORT_EVENT = "stepcache.report"
RUNS_ROUTE = "/stepcache/runs"


class NodeProgress:
    """Listener that shows runs on a node: evaluations while they sample, and the report when they have ended.

    Without a client nothing is made or sent.
    """

    def __init__(self, node_id: str | None):
        self.node_id = node_id

    def __call__(self, report: RunReport) -> None:
        from server import PromptServer

        server = getattr(PromptServer, "instance", None)
        if self.node_id is None or server is None or server.client_id is None:
            return
        run = RECENT.find(report) or RECENT.begin(place(server, self.node_id), report)
        now = time.monotonic()
        if server.client_id in server.sockets and (report.finished or now - run.sent_at >= INTERVAL):
            run.sent_at = now
            send(server, run)


def send(server, run: ShownRun) -> None:
    """To the client of the running prompt, and to nobody else."""
    client = server.client_id
    if run.report.finished:
        server.send_sync(REPORT_EVENT, run.whole(), client)
    else:
        server.send_sync(EVALUATIONS_EVENT, run.news(), client)


def place(server, node_id: str) -> Place:
    """Where what is sampled now belongs. A node that another one made at run time is shown on that one."""
    from comfy_execution.progress import get_progress_state

    state = get_progress_state()
    running = list(server.prompt_queue.currently_running.values())
    extra = next((item[3] for item in running if item[1] == state.prompt_id), {})
    workflow = (extra.get("extra_pnginfo") or {}).get("workflow") or {}
    return Place(state.prompt_id, state.dynprompt.get_display_node_id(node_id), workflow.get("id"))


def add_route() -> None:
    """Let a page ask for the last runs of a workflow."""
    from aiohttp import web
    from server import PromptServer

    server = getattr(PromptServer, "instance", None)
    if server is None:
        return

    @server.routes.get(RUNS_ROUTE)
    async def runs(request):
        found = RECENT.of_workflow(request.query.get("workflow", ""))
        return web.json_response({"runs": [run.whole() for run in found]})
