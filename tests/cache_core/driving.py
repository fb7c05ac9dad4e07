"""Drive methods on plain tensors: policies by given scores, a stack of blocks, or whole runs through a session."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from stepcache.cache_core.branch import Branch, BranchState
from stepcache.cache_core.method import CacheMethod, Level
from stepcache.cache_core.policies import Policy
from stepcache.cache_core.report import RunReport
from stepcache.cache_core.session import CacheSession
from stepcache.cache_core.types import Run, Step

FLUX_RATIOS = (
    1.0, 1.21094, 1.11719, 1.07812, 1.0625, 1.03906, 1.03125, 1.03906, 1.02344, 1.03125, 1.02344, 0.98047, 1.01562, 1.00781,
    1.0, 1.00781, 1.0, 1.00781, 1.0, 1.0, 0.99609, 0.99609, 0.98047, 0.98828, 0.96484, 0.95703, 0.93359, 0.89062,
)  # fmt: skip

POSITIONS = {
    "euler": lambda steps: [float(i) for i in range(steps)],
    "heun": lambda steps: [0.0, *(float(i) for i in range(1, steps) for _ in range(2))],
    "dpm_2": lambda steps: [i / 2 for i in range(2 * steps - 1)],
    "three a step": lambda steps: [i / 4 for i in range(4 * steps - 3) if i % 4 < 3],
    "heunpp2": lambda steps: [0.0, 1.0, 1.0, *(float(i) for i in range(2, steps) for _ in range(3))],
}
"""Of the evaluations of samplers, by the number of steps."""


def run_of(steps: int, **facts: float) -> Run:
    return Run(tuple(1 - i / steps for i in range(steps + 1)), start_sigma=1e9, end_sigma=0.0, **facts)


def steps_of(run: Run) -> list[Step]:
    return [Step(index, run.steps, *sigmas) for index, sigmas in enumerate(pairwise(run.sigmas))]


def mask_of(policy: Policy, steps: int, scores: Sequence[float] | None = None, run: Run | None = None) -> str:
    """'1' for computed, '0' for reused, of a policy that is told its scores; the first evaluation is computed."""
    run, mask = run or run_of(steps), ""
    policy.begin(run, 0)
    for step in steps_of(run):
        reuse = bool(mask) and policy.decide(step, scores[step.index] if scores else None).reuse
        policy.reused(step) if reuse else policy.computed(step, ())
        mask += "01"[not reuse]
    return mask


def computed_in(mask: str) -> list[int]:
    return [index for index, flag in enumerate(mask) if flag == "1"]


def mask_from(steps: Iterable[int], total: int) -> str:
    chosen = set(steps)
    return "".join("01"[index in chosen] for index in range(total))


# -- the stack of four blocks of EX-F2 and EX-D1 --------------------------------------------------------------------------

WEIGHTS = (0.5, 0.4, 0.3, 0.2)
STACK_INPUTS = torch.tensor([[1, -0.5], [0.9, -0.45], [0.8, -0.4], [0.7, -0.3]], dtype=torch.float64)
UNCACHED = ([2.208096, -1.373661], [2.108096, -1.134111], [2.008096, -0.829932], [1.908096, -0.3])


def through(blocks: Iterable[int], h: Tensor, time: float) -> Tensor:
    for i in blocks:
        h = h + WEIGHTS[i] * torch.tanh(h + time)
    return h


def run_stack(method: CacheMethod, inputs: Tensor = STACK_INPUTS) -> tuple[str, list[Tensor], list[float]]:
    """Mask, outputs and scores of a method that skips the stack between its head and its tail."""
    policy, predictor = method.new_policy(), method.new_predictor()
    policy.begin(run_of(99), 0)
    first, last = method.boundary.head, len(WEIGHTS) - method.boundary.tail
    mask, outputs, scores = "", [], []
    for index, x in enumerate(inputs):
        step, time = Step(index, 99, 0.5), 0.1 * index  # the example has no last step
        entry = through(range(first), x, time)
        score = policy.observe(entry - x)
        scores.append(math.nan if score is None else float(score))
        if index and policy.decide(step, scores[-1]).reuse:
            policy.reused(step)
            end = entry + predictor.predict(step)[0]
            mask += "0"
        else:
            end = through(range(first, last), entry, time)
            policy.computed(step, (end - entry,))
            predictor.update(step, (end - entry,))
            mask += "1"
        outputs.append(through(range(last, len(WEIGHTS)), end, time))
    return mask, outputs, scores


# -- whole runs of a small model --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallView:
    """What a probe sees of the small model: its tokens lie in rows of two."""

    tokens: Tensor
    sigma: float

    def modulated_input(self) -> Tensor:
        return self.tokens * (1 + 0.1 * self.sigma)

    def time_embedding(self) -> Tensor:
        return torch.full((1, 4), 1 + self.sigma)

    def head_residual(self) -> Tensor:
        return 0.2 * torch.tanh(self.tokens + self.sigma)

    def model_input(self) -> Tensor:
        return self.tokens.clone()

    def signal_and_noise(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(1 - self.sigma), torch.tensor(self.sigma)

    def grid(self, tokens: Tensor) -> tuple[int, ...]:
        return tokens.shape[1] // 2, 2


@dataclass
class Sampled:
    """A run: one character, one list of latents and one of outputs for each evaluation."""

    report: RunReport
    mask: str = ""
    latents: list[list[Tensor]] = field(default_factory=list)
    outputs: list[list[Tensor]] = field(default_factory=list)
    states: list[BranchState] = field(default_factory=list)


def noise(branches: int = 2, seed: int = 0, shape: tuple[int, ...] = (1, 6, 4)) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=drawn) for _ in range(branches)]


def sample(
    method: CacheMethod,
    steps: int = 10,
    latents: list[Tensor] | None = None,
    first: int = 0,
    between: Callable[[CacheSession, int, list[Tensor]], list[Tensor] | None] = lambda session, index, latents: None,
    facts: Callable[[Tensor], object] = lambda latent: None,
) -> Sampled:
    """Euler with a small model, in a session; each branch has a latent of its own and one call an evaluation.

    `between` may look at the session and exchange the latents before each evaluation; `first` is the step to start at.
    """
    run, latents = run_of(steps), noise() if latents is None else latents
    sampled = Sampled(RunReport(method.name))
    session = CacheSession(method, run, sampled.report)
    for step in steps_of(run)[first:]:
        latents = between(session, step.index, latents) or latents
        session.next_evaluation(torch.tensor([step.sigma], dtype=torch.float64))
        sampled.latents.append(latents)
        sampled.outputs.append(
            [_evaluated(session, order, latent, step, facts(latent)) for order, latent in enumerate(latents)]
        )
        sampled.mask += "01"[not sampled.report.trace[-1].reused]
        latents = [
            (latent + (step.next_sigma - step.sigma) * output).to(latent.dtype)
            for latent, output in zip(latents, sampled.outputs[-1], strict=True)
        ]
    sampled.states = list(session.branches.values())
    session.end()
    return sampled


def network(x: Tensor, order: int, sigma: float) -> Tensor:
    return torch.tanh(x * (1 + sigma) + 0.3 * order) * (1 + 0.1 * order)


def _evaluated(session: CacheSession, order: int, x: Tensor, step: Step, facts: object) -> Tensor:
    boundary = session.method.boundary
    call = session.open_call([Branch("model", order, f"uuid{order}", facts)])
    assert call
    entry = (x,) if boundary.level is not Level.BLOCKS else None
    if call.decide(session.method.probe.signal(SmallView(x, step.sigma)), (x.shape, x.dtype), entry=entry):
        (value,) = call.predict()
        assert value is not None
        call.reused()
        return value + x if boundary.difference else value
    output = network(x, order, step.sigma)
    call.computed((output - x if boundary.difference else output,))
    return output
