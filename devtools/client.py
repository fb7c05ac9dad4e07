"""A client of ComfyUI's HTTP and WebSocket API: queue a workflow, follow it, fetch what it made."""

from __future__ import annotations

import json
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

Workflow = dict[str, dict[str, Any]]
TEXT_EVENT = 3  # binary message: length of node id, node id, text
EVALUATIONS_EVENT = "stepcache.evaluations"
REPORT_EVENT = "stepcache.report"


class WorkflowRefused(Exception):
    """The server did not accept the workflow; the message is the server's."""


class WorkflowFailed(Exception):
    """A node raised; the message names the node and the error."""


class WorkflowInterrupted(Exception):
    """Somebody interrupted the run."""


@dataclass
class Outcome:
    """What one run showed: node times in seconds, progress as (node, value, max), texts and images.

    `news` are the events with evaluations, `reports` those with whole runs; docs/events.md describes both.
    """

    prompt_id: str
    seconds: dict[str, float] = field(default_factory=dict)
    progress: list[tuple[str, int, int]] = field(default_factory=list)
    news: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)

    def steps(self, node: str) -> int:
        """The last progress value of a node."""
        return max((value for name, value, _ in self.progress if name == node), default=0)


class Client:
    """One connection; use as `async with Client(address) as client`."""

    def __init__(self, address: str):
        self.url = f"http://{address}"
        self.id = uuid.uuid4().hex

    async def __aenter__(self) -> Client:
        self.session = aiohttp.ClientSession()
        self.socket = await self.session.ws_connect(f"{self.url}/ws?clientId={self.id}", max_msg_size=0)
        return self

    async def __aexit__(self, *exception) -> None:
        await self.socket.close()
        await self.session.close()

    async def get(self, path: str) -> Any:
        async with self.session.get(self.url + path) as answer:
            return await answer.json()

    async def queue(self, workflow: Workflow) -> str:
        """Returns the prompt id. Raises WorkflowRefused with the server's reasons."""
        async with self.session.post(self.url + "/prompt", json={"prompt": workflow, "client_id": self.id}) as answer:
            body = await answer.json()
        if answer.status != 200:
            raise WorkflowRefused(reasons(body))
        return body["prompt_id"]

    async def interrupt(self) -> None:
        await self.session.post(self.url + "/interrupt")

    async def run(self, workflow: Workflow, on_progress: Callable[[str, int, int], Any] | None = None) -> Outcome:
        """Queue a workflow, follow it to its end and fetch its images."""
        return await self.follow(await self.queue(workflow), on_progress)

    async def follow(self, prompt_id: str, on_progress: Callable[[str, int, int], Any] | None = None) -> Outcome:
        outcome, current, since = Outcome(prompt_id), None, time.perf_counter()
        async for message in self.socket:
            if message.type == aiohttp.WSMsgType.BINARY:
                self._note_binary(message.data, outcome)
                continue
            event = json.loads(message.data)
            kind, data = event["type"], event["data"]
            if data.get("prompt_id") != prompt_id:
                continue
            if kind == EVALUATIONS_EVENT:
                outcome.news.append(data)
            elif kind == REPORT_EVENT:
                outcome.reports.append(data)
            elif kind == "executing":
                now = time.perf_counter()
                if current is not None:
                    outcome.seconds[current] = outcome.seconds.get(current, 0.0) + now - since
                current, since = data["node"], now
                if current is None:  # the last message of a run, sent when its history is complete
                    outcome.images = await self.images(prompt_id)
                    return outcome
            elif kind == "progress":
                outcome.progress.append((data["node"], data["value"], data["max"]))
                if on_progress:
                    await maybe(on_progress(*outcome.progress[-1]))
            elif kind == "execution_error":
                raise WorkflowFailed(f"{data['node_type']}: {data['exception_message'].strip()}")
            elif kind == "execution_interrupted":
                raise WorkflowInterrupted(prompt_id)
        raise ConnectionError("the server closed the connection")

    def _note_binary(self, data: bytes, outcome: Outcome) -> None:
        kind = struct.unpack(">I", data[:4])[0]
        if kind == TEXT_EVENT:
            length = struct.unpack(">I", data[4:8])[0]
            outcome.texts.append((data[8 : 8 + length].decode(), data[8 + length :].decode()))

    async def images(self, prompt_id: str) -> list[bytes]:
        """The pictures that a finished workflow saved, in order."""
        history = (await self.get(f"/history/{prompt_id}"))[prompt_id]
        found = []
        for output in history["outputs"].values():
            for image in output.get("images", ()):
                async with self.session.get(self.url + "/view", params=image) as answer:
                    found.append(await answer.read())
        return found


async def maybe(result: Any) -> None:
    """Wait for a callback's result if it is something to wait for."""
    if hasattr(result, "__await__"):
        await result


def reasons(body: dict[str, Any]) -> str:
    """The server's answer to a refused workflow, as one text."""
    found = [body.get("error", {}).get("message", "refused")]
    for node in body.get("node_errors", {}).values():
        found += [f"{node['class_type']}: {error['message']}: {error['details']}" for error in node["errors"]]
    return "; ".join(found)
