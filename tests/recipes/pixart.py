"""PixArt."""

from .recipe import Draw, Recipe

PIXART = dict(hidden_size=48, depth=4, num_heads=2, in_channels=4, mlp_ratio=2.0, caption_channels=32)


def size(draw: Draw) -> dict:
    return {"width": 272, "height": 272}


RECIPES: dict[str, Recipe] = {  # below a side of 33 the class divides by zero
    "pixart_alpha": Recipe(
        "PixArtAlpha", "PixArtMS", ("blocks",),
        PIXART | dict(image_model="pixart_alpha", micro_condition=True), latent=(4, 34, 34), extra=size,
    ),
    "pixart_sigma": Recipe(
        "PixArtSigma", "PixArtMS", ("blocks",),
        PIXART | dict(image_model="pixart_sigma", micro_condition=False, model_max_length=300), latent=(4, 34, 34),
    ),
}  # fmt: skip
