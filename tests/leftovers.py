"""What a run may leave behind, and what it may write into on the way."""

import gc

import comfy.patcher_extension
import pytest
import torch

OURS = {f"stepcache.{module}" for module in (
    "cache_core.session", "model_patches.fallback", "model_patches.observe", "model_patches.trial",
    "model_patches.intercept",
)}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def only_new_objects():
    """Keep what the imports made out of the walks over all objects below, which are slow otherwise."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def state_objects() -> list[str]:
    """Objects alive that belong to a run."""
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return [kind.__name__ for kind in kinds if kind.__module__ in OURS or kind.__name__ == "LiveRun"]


def fingerprint(patcher) -> dict:
    """Everything about the modules that a cache could be tempted to change."""
    model = patcher.model.diffusion_model
    attributes = {name: sorted(vars(module)) for name, module in model.named_modules()}
    hooks = {
        name: len(module._forward_hooks) + len(module._forward_pre_hooks) for name, module in model.named_modules()
    }
    weights = {name: id(parameter) for name, parameter in model.named_parameters()}
    return {"keys": list(model.state_dict()), "attributes": attributes, "hooks": hooks, "weights": weights}


def with_input_watch(patcher):
    """A clone whose list grows by whether each tensor given to a model call was written into: (clone, list)."""
    watching = patcher.clone()  # a wrapper that is there before the cache encloses it
    written: list[bool] = []

    def watch(executor, x, t, *args, **kwargs):
        given = [value for value in (x, t, *args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        copies = [tensor.clone() for tensor in given]
        output = executor(x, t, *args, **kwargs)
        written.extend(not torch.equal(*pair) for pair in zip(given, copies, strict=True))
        return output

    watching.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.APPLY_MODEL, "watch", watch)
    return watching, written
