"""When to reuse.

A policy sees the evaluations of one branch in this order: `observe` (every evaluation, no host read), `decide` (only
if this branch leads the evaluation), then `computed` or `reused`, whichever really happened. A policy that only heard
its own proposals would drift as soon as something else forces a compute.
"""

from .change import AccumulatedChange, ChangeFromAnchor, ChangeFromBefore
from .limits import Guarded, StepMask
from .planned import MagnitudeBudget, Scheduled
from .policy import Policy, StepPlan
from .predicted import PredictedChange

__all__ = [
    "AccumulatedChange",
    "ChangeFromAnchor",
    "ChangeFromBefore",
    "Guarded",
    "MagnitudeBudget",
    "Policy",
    "PredictedChange",
    "Scheduled",
    "StepMask",
    "StepPlan",
]
