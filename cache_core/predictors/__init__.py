"""What to return instead of running the blocks.

A predictor is fed with observations only: a prediction is never written back as if it had been computed, unless a paper
says so.
"""

from .chebyshev import Chebyshev
from .extrapolation import BASES, Basis, Damped, Extrapolation, Hermite, Newton, Taylor
from .fitted_line import FittedLine
from .mean_velocity import MeanVelocity
from .predictor import Hold, Predictor

__all__ = [
    "BASES",
    "Basis",
    "Chebyshev",
    "Damped",
    "Extrapolation",
    "FittedLine",
    "Hermite",
    "Hold",
    "MeanVelocity",
    "Newton",
    "Predictor",
    "Taylor",
]
