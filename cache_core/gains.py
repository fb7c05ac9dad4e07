"""How much of an error made at a step is left at the end of a run: estimated, or measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .recording import Recording

INJECTED = 8
"""Steps at which a gain is measured; between them it is interpolated."""


def general_gains(sigmas: Sequence[float], flow: bool) -> tuple[float, ...]:
    """How much of an error is left at the end, for a model of which nothing was measured.

    An error in the latent is taken for a difference of the picture, of which a flow model's latent holds only 1 - sigma:
    so it grows to 1 / (1 - sigma). The 0.05 is from measured gains, which stay finite. Other models' latents hold the
    picture in full.
    """
    return tuple(1 / (1.05 - min(sigma, 1.0)) if flow else 1.0 for sigma in sigmas[:-1])


def measured_gains(recording: Recording, left: Callable[[int], float]) -> tuple[float, ...]:
    """How much of an error made at a step is left at the end, measured at `INJECTED` steps by holding an output there.

    Args:
        recording: of the run that `left` repeats, of 2 steps at least.
        left: (step) -> root mean square of the difference at the end when the output before is held at this step. Slow, as
            it samples a picture.
    """
    gains = []
    for step in sorted({1 + round(n * (recording.steps - 2) / (INJECTED - 1)) for n in range(INJECTED)}):
        made = recording.distance(step - 1, step) * (recording.sigmas[step] - recording.sigmas[step + 1])
        gains.append((step, max(left(step) / max(made, 1e-12), 1e-6)))
    return gains_at(gains, recording.steps)


def gains_at(injected: Sequence[tuple[int, float]], steps: int) -> tuple[float, ...]:
    """A gain for each step from those measured at some: linear in the logarithm between them, the nearest outside.

    Args:
        injected: (step, gain), in order.
    """
    at, gains = zip(*injected, strict=True)
    return tuple(float(value) for value in np.exp(np.interp(np.arange(steps), at, np.log(gains))))
