"""A small client of ComfyUI's HTTP and websocket interface."""

from __future__ import annotations

import asyncio
import json
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

import aiohttp

TEXT_MESSAGE = 3  # binary event: progress text for a node
TERMINAL_EVENTS = ("execution_success", "execution_error", "execution_interrupted")
REPORT_EVENT = "stepcache.report"


@dataclass(frozen=True)
class Event:
    """One websocket message. `at` is the local monotonic time of its arrival, in seconds."""

    kind: str
    data: dict
    at: float


class PromptRefused(Exception):
    """ComfyUI did not accept a workflow. `answer` is its JSON answer; the message holds its readable parts."""

    def __init__(self, answer: dict):
        self.answer = answer
        parts = [answer.get("error", {}).get("message", "")]
        for node in answer.get("node_errors", {}).values():
            parts += [f"{node['class_type']}: {error['message']}: {error['details']}" for error in node["errors"]]
        super().__init__("; ".join(parts))


@dataclass
class PromptRun:
    """Everything that was seen of one queued workflow."""

    prompt_id: str
    events: list[Event] = field(default_factory=list)
    history: dict = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """One of TERMINAL_EVENTS."""
        return next(event.kind for event in self.events if event.kind in TERMINAL_EVENTS)

    @property
    def error(self) -> str:
        """The exception's message of a failed run, else the empty string."""
        return next((e.data["exception_message"] for e in self.events if e.kind == "execution_error"), "")

    def of_kind(self, kind: str) -> list[dict]:
        return [event.data for event in self.events if event.kind == kind]

    def reports(self) -> list[dict]:
        """What the cache nodes said at the end of each sampling run."""
        return self.of_kind(REPORT_EVENT)

    def steps_seen(self, node: str) -> int:
        """The highest progress value of `node`: for a sampler, its finished steps."""
        return max((data["value"] for data in self.of_kind("progress") if data["node"] == node), default=0)

    def seconds_in(self, node: str) -> float:
        """Seconds from the start of `node` to the start of what came next. Raises ValueError if it never ran."""
        changes = [event for event in self.events if event.kind == "executing"]
        for event, following in zip(changes, changes[1:], strict=False):
            if event.data["node"] == node:
                return following.at - event.at
        raise ValueError(f"node {node} did not run")

    def images(self) -> list[dict]:
        """Where the saved pictures are: arguments for `ComfyClient.image`."""
        return [image for output in self.history["outputs"].values() for image in output.get("images", [])]


class ComfyClient:
    """`async with ComfyClient(url) as client: run = await client.run(workflow)`.

    Raises `aiohttp.ClientError` when the connection breaks. Several `run` calls may be under way at once.
    """

    def __init__(self, url: str):
        self.url = url
        self.client_id = uuid.uuid4().hex
        self._runs: dict[str, PromptRun] = {}
        self._finished: dict[str, asyncio.Event] = {}
        self._watchers: dict[str, Callable[[Event], None]] = {}
        self._executing: str | None = None  # the prompt that messages without an id belong to

    async def __aenter__(self) -> ComfyClient:
        self._session = aiohttp.ClientSession(self.url)
        self._socket = await self._session.ws_connect(f"/ws?clientId={self.client_id}", max_msg_size=0)
        self._listener = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.cancel()
        await self._socket.close()
        await self._session.close()

    async def run(self, workflow: dict, on_event: Callable[[Event], None] | None = None) -> PromptRun:
        """Queue `workflow` (API format) and follow it to its end. Raises PromptRefused."""
        return await self.follow(await self.queue(workflow, on_event))

    async def queue(self, workflow: dict, on_event: Callable[[Event], None] | None = None) -> str:
        prompt_id = str(uuid.uuid4())  # chosen here, so that no message can arrive before we know it
        self._runs[prompt_id] = PromptRun(prompt_id)
        self._finished[prompt_id] = asyncio.Event()
        if on_event:
            self._watchers[prompt_id] = on_event
        request = {"prompt": workflow, "client_id": self.client_id, "prompt_id": prompt_id}
        async with self._session.post("/prompt", json=request) as answer:
            content = await answer.json()
        if answer.status != 200:
            raise PromptRefused(content)
        return prompt_id

    async def follow(self, prompt_id: str) -> PromptRun:
        """Wait for the end of a queued workflow, whatever it is."""
        waiting = asyncio.create_task(self._finished[prompt_id].wait())
        await asyncio.wait([waiting, self._listener], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            raise aiohttp.ClientConnectionError("ComfyUI closed the connection")
        run = self._runs.pop(prompt_id)
        run.history = (await self.get_json(f"/history/{prompt_id}"))[prompt_id]
        return run

    async def get_json(self, path: str) -> dict:
        async with self._session.get(path) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def image(self, place: dict) -> bytes:
        """The file of one entry of `PromptRun.images`."""
        async with self._session.get("/view", params=place) as answer:
            answer.raise_for_status()
            return await answer.read()

    async def interrupt(self) -> None:
        async with self._session.post("/interrupt", json={}) as answer:
            answer.raise_for_status()

    async def _listen(self) -> None:
        async for message in self._socket:
            at = time.monotonic()
            if message.type == aiohttp.WSMsgType.TEXT:
                content = json.loads(message.data)
                self._take(Event(content["type"], content.get("data", {}), at))
            elif message.type == aiohttp.WSMsgType.BINARY:
                self._take(_binary_event(message.data, at))

    def _take(self, event: Event) -> None:
        if event.kind == "execution_start":
            self._executing = event.data["prompt_id"]
        prompt_id = event.data.get("prompt_id") or self._executing
        run = self._runs.get(prompt_id or "")
        if run is None or prompt_id is None:
            return
        run.events.append(event)
        if watcher := self._watchers.get(prompt_id):
            watcher(event)
        # The last message of a prompt; only then its history is complete.
        if event.kind == "executing" and event.data["node"] is None:
            self._finished[prompt_id].set()


def _binary_event(message: bytes, at: float) -> Event:
    (kind,) = struct.unpack_from(">I", message)
    if kind != TEXT_MESSAGE:
        return Event("binary", {"kind": kind, "size": len(message)}, at)
    (length,) = struct.unpack_from(">I", message, 4)
    node, text = message[8 : 8 + length], message[8 + length :]
    return Event("progress_text", {"node": node.decode(), "text": text.decode()}, at)
