"""Methods that reuse nothing, or next to nothing, to find out what a model does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..measuring import Changes, Measuring
from ..method import Boundary, CacheMethod, Level
from ..planning import all_steps_but, no_steps
from ..policies import Scheduled
from ..predictors import Hold
from ..probes import ModulatedInput, Nothing

OUTPUT = Boundary(level=Level.GUIDED_PREDICTION, difference=False)


def computing_all(reason: str) -> CacheMethod:
    """Reuses nothing, for the given reason."""
    return CacheMethod("StepCache", Nothing(), Scheduled(no_steps), Hold(), OUTPUT, idle=reason)


def measuring(changes_of: Callable[[int], Changes]) -> CacheMethod:
    """Reuses nothing and notes how signal and residual of the blocks change; see `Measuring`."""
    return CacheMethod("Calibrate", ModulatedInput(), Measuring(changes_of), Hold())


def reusing_once(step: int, per_branch: bool = False) -> CacheMethod:
    """Holds the output of the step before at this one; see `stepcache` for `per_branch`."""
    plan = partial(all_steps_but, left_out=step)
    boundary = replace(OUTPUT, level=Level.MODEL_OUTPUT) if per_branch else OUTPUT
    return CacheMethod("Calibrate", Nothing(), Scheduled(plan), Hold(), boundary, last_step=False)
