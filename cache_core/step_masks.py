"""Step masks by named policies: which steps are computed, made for any number of steps.

A mask alternates bins of computed and of skippable steps, dense at the start. The tables are for 4, 6, 8, 9, 15 and 28
steps; others are grown or trimmed from the next.

Source: the step computation masks of cache-dit (vipshop/cache-dit). For 5 and 7 steps, which it refuses, the next larger
table is trimmed, and fewer than 4 are all computed; both are ours.
"""

from __future__ import annotations

from .types import Run

Bins = tuple[tuple[int, ...], tuple[int, ...]]
"""(lengths of the computed bins, lengths of the skippable ones between them)"""

SHORT = {4: ((2, 1), (1,)), 6: ((3, 1), (2,))}
TABLES: dict[str, dict[int, Bins]] = {
    "slow": SHORT
    | {
        8: ((5, 1, 1), (1,)),
        9: ((5, 2, 1), (1,)),
        15: ((4, 2, 2, 2, 1), (1, 1, 1, 1)),
        28: ((8, 3, 3, 2, 1, 1), (1, 2, 2, 2, 3)),
    },
    "medium": SHORT
    | {
        8: ((4, 1, 1), (1, 1)),
        9: ((5, 1, 1), (1, 1)),
        15: ((4, 2, 1, 1, 1), (1, 1, 2, 2)),
        28: ((6, 2, 2, 2, 2, 1), (1, 3, 3, 3, 3)),
    },
    "fast": SHORT
    | {
        8: ((3, 1, 1), (1, 2)),
        9: ((4, 1, 1), (1, 2)),
        15: ((3, 1, 1, 1, 1), (1, 2, 2, 3)),
        28: ((6, 1, 1, 1, 1, 1), (1, 3, 4, 5, 4)),
    },
    "ultra": SHORT
    | {
        8: ((2, 1, 1), (2, 2)),
        9: ((3, 1, 1), (2, 2)),
        15: ((2, 1, 1, 1, 1), (1, 2, 3, 3)),
        28: ((4, 1, 1, 1, 1), (2, 5, 6, 7)),
    },
}
POLICIES = tuple(TABLES)


def step_mask(policy: str, steps: int) -> frozenset[int]:
    """The steps that a policy computes, of 0 .. steps - 1; always the first and the last.

    >>> "".join("01"[i in step_mask("fast", 8)] for i in range(8))
    '11101001'
    """
    if steps < 4:
        return frozenset(range(steps))
    computed, skippable = TABLES[policy][next((size for size in (4, 6, 8, 9, 15, 28) if steps <= size), 28)]
    computed, skippable = list(computed), list(skippable)
    if steps > 28:
        _grow(computed, skippable, steps)
    _trim(computed, skippable, steps)
    flags: list[bool] = []
    for i, count in enumerate(computed):
        flags += [True] * count + [False] * (skippable[i] if i < len(skippable) else 0)
    return frozenset(i for i, flag in enumerate(flags[:steps]) if flag) | {0, steps - 1}


def masked_steps(policy: str, run: Run) -> frozenset[int]:
    """`step_mask` for a run."""
    return step_mask(policy, run.steps)


def _grow(computed: list[int], skippable: list[int], steps: int) -> None:
    """Lengthen bin after bin in proportion to what the table gives it, until there are enough steps."""
    bins = [(computed, i) for i in range(len(computed))] + [(skippable, i) for i in range(len(skippable))]
    bins.sort(key=lambda bin_: (bin_[1], bin_[0] is skippable))
    additions = [max(int(lengths[i] * (steps / 28) * 0.5), 1) for lengths, i in bins]
    while True:
        for (lengths, i), addition in zip(bins, additions, strict=True):
            lengths[i] += addition
            if sum(computed) + sum(skippable) >= steps:
                return


def _trim(computed: list[int], skippable: list[int], steps: int) -> None:
    """Shorten the last bins by one step at a time, skippable and computed in turn."""
    lengths = skippable
    while sum(computed) + sum(skippable) > steps:
        last = max((i for i, length in enumerate(lengths) if length), default=None)
        if last is not None:
            lengths[last] -= 1
        lengths = computed if lengths is skippable else skippable
