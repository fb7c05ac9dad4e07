"""Which branches a model call holds.

Neither the order of calls, nor the cond index, nor the uuid alone identifies a branch: ComfyUI batches or splits by
free memory and in either order, areas share a uuid between positive and negative, context windows and perturbed
guidance call the same conditioning several times at one sigma.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy
from torch import Tensor

from ..cache_core.branch import Branch


def branches_of(
    base, x: Tensor, options: Mapping[str, Any], control: Any, rows_exchanged: bool = False
) -> list[Branch]:
    """The branches of a model call, in batch order; empty if the batch cannot be told apart.

    Args:
        base: the BaseModel.
        x: (B, ...), B being the number of branches times the latents of each.
        options: the call's `transformer_options`.
        control: ControlNet residuals by place, or None.
        rows_exchanged: whether a result is only good for the same rows of the same batch.
    """
    order, uuids = options.get("cond_or_uncond") or (), options.get("uuids") or ()
    if not order or len(order) != len(uuids) or x.shape[0] % len(order):
        return []
    place = (id(base), x.device, context_window(options), replaced_blocks(options))
    facts = (tuple(x.shape[1:]), x.shape[0] // len(order), x.dtype, weights(base), control_places(control))
    facts += (tuple(order),) if rows_exchanged else ()
    return [Branch(place, index, uuid, facts) for index, uuid in zip(order, uuids, strict=True)]


def context_window(options: Mapping[str, Any]) -> Hashable:
    """The frames of the current context window, or None."""
    window = options.get("context_window")
    return tuple(window.index_list) if window is not None else None


def replaced_blocks(options: Mapping[str, Any]) -> Hashable:
    """The blocks that other nodes replace in this call: a perturbed call must not share anything with the plain one."""
    return frozenset(options.get("patches_replace", {}).get("dit", {}))


def weights(base) -> Hashable:
    """What the weights in use depend on: patches of the model, and hooks with their present strengths."""
    patcher = base.current_patcher
    if patcher is None:
        return None
    hooks = patcher.current_hooks.hooks if patcher.current_hooks else ()
    return patcher.patches_uuid, tuple((id(hook), getattr(hook, "strength", None)) for hook in hooks)


def control_places(control: Any) -> Hashable:
    """Where ControlNet residuals enter; appearing or vanishing ones make stored results useless."""
    if not control:
        return None
    return tuple((place, tuple(value is not None for value in values)) for place, values in sorted(control.items()))


def guided_branch(guider, x: Tensor, sigma: float) -> Branch:
    """All that guidance joins, as one branch.

    What is stored is of no use once another prompt, area or ControlNet takes part, or weights change with the schedule.
    """
    conds = [cond for several in guider.conds.values() for cond in several or ()]
    active = tuple(active_at(sigma, cond) for cond in conds)
    facts = (tuple(x.shape), x.dtype, weights(guider.inner_model), guider.cfg == 1, active)
    return Branch("guided prediction", 0, None, facts)


def active_at(sigma: float, cond: Mapping[str, Any]) -> Hashable:
    """Which parts of a conditioning take part at a sigma: itself, its ControlNets, and its hooks' keyframes."""
    spans = tuple(within(sigma, start, end) for start, end in spans_of(cond))
    return spans, tuple(keyframes_begun(sigma, hook) for hook in hooks_of(cond))


def changes(conds: Mapping[str, Sequence[Mapping[str, Any]] | None]) -> set[float]:
    """The sigmas at which conditionings, ControlNets or hooks come or go: the highest, in float32, after each change.

    Args:
        conds: of a guider, by name, during sampling.
    """
    found: set[float] = set()
    for cond in (cond for several in conds.values() for cond in several or ()):
        for start, end in spans_of(cond):
            found.update(ends_of(start, end))
        for hook in hooks_of(cond):
            for keyframe in getattr(hook.hook_keyframe, "keyframes", ()):
                found.update(ends_of(keyframe.start_t, None))
    return found


def spans_of(cond: Mapping[str, Any]) -> Iterator[tuple[float | None, float | None]]:
    """From which sigma down to which a conditioning and its ControlNets take part; None sets no end."""
    yield cond.get("timestep_start"), cond.get("timestep_end")
    control = cond.get("control")
    while control is not None:
        yield getattr(control, "timestep_range", None) or (None, None)
        control = getattr(control, "previous_controlnet", None)


def hooks_of(cond: Mapping[str, Any]) -> Sequence[Any]:
    return getattr(cond.get("hooks"), "hooks", ())


def ends_of(start: float | None, end: float | None) -> Iterator[float]:
    """The highest sigma that is within a range from `start` down to `end`, and the highest that is past it."""
    if start is not None:
        yield float(below_or_at(start))
    if end is not None:
        yield float(numpy.nextafter(below_or_at(end), numpy.float32(-1)))


def below_or_at(sigma: float) -> numpy.float32:
    """The nearest float32 that is not above."""
    near = numpy.float32(sigma)
    return near if float(near) <= float(sigma) else numpy.nextafter(near, numpy.float32(-1))


def keyframes_begun(sigma: float, hook: Any) -> int:
    """How many keyframes of a hook's strength have begun; ComfyUI itself looks only when it calls a model."""
    return sum(keyframe.start_t >= sigma for keyframe in getattr(hook.hook_keyframe, "keyframes", ()))


def within(sigma: float, start: float | None, end: float | None) -> bool:
    return (start is None or sigma <= start) and (end is None or sigma >= end)
