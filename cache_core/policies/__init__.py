"""When to reuse.

A policy sees the evaluations of one branch in this order: `observe` (every evaluation, no host read), `decide` (only
if this branch leads the evaluation), then `computed` or `reused`, whichever really happened. A policy that only heard
its own proposals would drift as soon as something else forces a compute.
"""

from .budget import Budgeted
from .change import AccumulatedChange, ChangeFromAnchor, ChangeFromBefore
from .followed import Followed
from .limits import Guarded, StepMask
from .planned import MagnitudeBudget, Scheduled
from .policy import Policy, StepPlan, Watching
from .predicted import PredictedChange

__all__ = [
    "AccumulatedChange",
    "Budgeted",
    "ChangeFromAnchor",
    "ChangeFromBefore",
    "Followed",
    "Guarded",
    "MagnitudeBudget",
    "Policy",
    "PredictedChange",
    "Scheduled",
    "StepMask",
    "StepPlan",
    "Watching",
]
