"""What a run did: the text on the node, the log line, and what tests read are all made from this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from textwrap import wrap
from typing import Any

VERSION = 1
"""Of the dictionary made by `RunReport.as_dict`; rises when a field changes its meaning or goes away."""

BUDGET_TOLERANCE = 0.05
"""Of the evaluations asked for, and one at least: computing more or fewer is told."""

NODE_WIDTH = 36
"""Characters that fit into a line on a node."""


@dataclass
class Evaluation:
    """One call of the denoiser by the sampler; it may need several model calls (branches, windows)."""

    index: int
    position: float | None = None  # in the schedule; None if no model call was observed
    sigma: float | None = None
    reason: str = "no cached model was called"
    signal: float | None = None  # the score that the policy judged; None where there was nothing finite
    computed_calls: int = 0
    reused_calls: int = 0
    seconds: float = 0.0  # start of this evaluation to start of the next
    threshold: float | None = None  # that the signal was held against; None where none decided
    branches: list[tuple[int, str]] = field(default_factory=list)  # place and action of each that was called
    landing: float | None = None  # of samplers that choose their steps: the sigma that they stepped to,
    stride: float | None = None  # in how many intervals of the schedule at its start,
    headroom: float | None = None  # and which part of the threshold was left; None where all was computed

    def ran(self, action: str, branches: Iterable[int]) -> None:
        """A model call was "computed" or "reused"; `branches` are the places (0 positive, 1 negative) of those in it."""
        if action == "reused":
            self.reused_calls += 1
        else:
            self.computed_calls += 1
        self.branches += [(place, action) for place in branches]

    @property
    def reused(self) -> bool:
        return self.reused_calls > 0 and self.computed_calls == 0

    @property
    def action(self) -> str:
        return "reused" if self.reused else "computed"

    @property
    def differing(self) -> list[str]:
        """The actions of the branches, positive first, where they were not the same; else empty."""
        return [action for _, action in sorted(self.branches)] if self.reused_calls and self.computed_calls else []

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"action": self.action, "branches": self.differing}

    def as_short_dict(self) -> dict[str, Any]:
        """What is shown while the run goes on; with `branches` only where they differ."""
        short = {"index": self.index, "action": self.action, "signal": self.signal, "threshold": self.threshold}
        return short | ({"branches": self.differing} if self.differing else {})


@dataclass
class RunReport:
    """One sampling run under a cache. Times are seconds, sizes bytes."""

    method: str
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    steps: int = 0
    trace: list[Evaluation] = field(default_factory=list)
    cache_bytes: int = 0  # the most that was held between evaluations
    device_reads: int = 0  # values fetched from the device to decide; each may wait for it
    seconds: float = 0.0
    finished: bool = False
    asked: float = 0.0  # how many times fewer evaluations shall be computed; 0 where a threshold or a plan decides
    steps_saved: int = 0  # steps of the schedule that an adaptive sampler did without

    @property
    def evaluations(self) -> int:
        return len(self.trace)

    @property
    def reused(self) -> int:
        return sum(evaluation.reused for evaluation in self.trace)

    @property
    def computed(self) -> int:
        return self.evaluations - self.reused

    @property
    def sigmas(self) -> list[float]:
        """The realised schedule: where evaluations were, and where the last of them led if that is known."""
        ends = [evaluation.landing for evaluation in self.trace[-1:]]
        return [sigma for sigma in (*(evaluation.sigma for evaluation in self.trace), *ends) if sigma is not None]

    @property
    def speedup(self) -> float:
        """Estimated: what all evaluations would have taken at the median time of a computed one, over what they took.

        All means also those that an adaptive sampler did without.
        The first evaluation is left out where others were computed too, as it may include loading.
        """
        counted = self.trace[1:] if self.computed > 1 else self.trace
        computed = [evaluation.seconds for evaluation in counted if not evaluation.reused]
        taken = sum(evaluation.seconds for evaluation in counted)
        if not (self.reused and computed and taken > 0):
            return 1.0
        return (len(counted) + self.steps_saved) * median(computed) / taken

    def message(self, text: str) -> None:
        """Note something the user should know; the same text is kept once."""
        if text not in self.messages:
            self.messages.append(text)

    def note_budget(self) -> None:
        """Show where the threshold was moved to, and say so if a run that came to its end missed what was asked for."""
        if not self.asked:
            return
        used = [evaluation.threshold for evaluation in self.trace if evaluation.threshold]
        if used:
            self.settings = {**self.settings, "threshold": f"{min(used):.3g} to {max(used):.3g}"}
        asked, ended = self.evaluations / self.asked, self.trace and (self.trace[-1].position or 0) > self.steps - 2
        if ended and abs(self.computed - asked) > max(1.0, BUDGET_TOLERANCE * asked):
            missed = f"{self.computed} evaluations computed instead of {asked:.3g}{self._forced()}"
            self.message(f"The budget was not kept: {missed}")

    def _forced(self) -> str:
        """What computed most evaluations, whatever the budget."""
        reasons = Counter(each.reason for each in self.trace if not each.reused and each.threshold is None)
        return "".join(f" ({count} by: {reason})" for reason, count in reasons.most_common(1))

    def summary(self) -> str:
        """The short text shown on the node, in lines that fit it."""
        text = f"{self.reused} of {self.evaluations} reused"
        if self.finished:
            text += f" · {self.speedup:.2f}x · {self.cache_bytes / 2**20:.1f} MiB"
        asked = [f"asked for {self.asked:.2f}x: {self.computed} of {self.evaluations} computed"] if self.asked else []
        lines = [text, *asked, *self._saved(), *(f"{name}: {value}" for name, value in self.settings.items())]
        for message in self.messages:
            lines += wrap(message, NODE_WIDTH)
        return "\n".join(lines)

    def _saved(self) -> list[str]:
        """What an adaptive sampler made of the schedule, in a list of one text, or none."""
        longest = max((evaluation.stride or 0.0 for evaluation in self.trace), default=0.0)
        if not (self.finished and longest):
            return []
        return [f"{self.evaluations} for {self.steps} steps, the longest {longest:.1f}"]

    def log_line(self) -> str:
        """The one line written to the log at the end of a run."""
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        asked = f", asked for {self.asked:.2f}x" if self.asked else ""
        line = (
            f"StepCache {self.method} on {self.model} ({settings}){asked}: {self.computed} of {self.evaluations} evaluations "
            f"computed, {self.reused} reused, about {self.speedup:.2f}x, {self.seconds:.1f} s, "
            f"cache {self.cache_bytes / 2**20:.1f} MiB"
        )
        return ". ".join([line, *self._saved(), *(message.removesuffix(".") for message in self.messages)])

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values, with a `version`."""
        return {
            "version": VERSION,
            "method": self.method,
            "model": self.model,
            "settings": dict(self.settings),
            "messages": list(self.messages),
            "steps": self.steps,
            "asked": self.asked,
            "evaluations": self.evaluations,
            "computed": self.computed,
            "reused": self.reused,
            "speedup": round(self.speedup, 2),  # as in the texts; the page rounds a third place otherwise
            "seconds": self.seconds,
            "cache_bytes": self.cache_bytes,
            "device_reads": self.device_reads,
            "finished": self.finished,
            "steps_saved": self.steps_saved,
            "sigmas": self.sigmas,
            "trace": [evaluation.as_dict() for evaluation in self.trace],
        }
