"""Training data of a few painted scenes, made in this process."""

from functools import cache

import numpy
import torch

from stepcache_tiny_model.training import clips, dataset
from stepcache_tiny_model.training.dataset import SIZES, SceneData, as_floats, encode_with_mirror
from stepcache_tiny_model.training.latent import LinearLatent

NUMBERS = range(3)


@cache
def scene_data() -> SceneData:
    painted = [dataset.render(number) for number in NUMBERS]
    pictures = {size: as_floats([each[size] for each, _ in painted]) for size in SIZES}
    latent = LinearLatent.fit(pictures[256], seed=0)
    latents = {size: encode_with_mirror(latent, pictures[size]) for size in SIZES}
    return SceneData(latent, latents, torch.tensor([ids for _, ids in painted]), (pictures[256] * 255).byte())


@cache
def clip_data() -> clips.ClipData:
    pictures, ids = zip(*(clips.render(number) for number in NUMBERS), strict=True)
    return clips.ClipData(scene_data().latent, torch.from_numpy(numpy.stack(pictures)), torch.tensor(ids))
