"""Tiny trained landscape models for StepCache demos and tests, as a ComfyUI node pack of its own.

Loading the pack makes the files in `weights/` visible to the stock nodes "Load Diffusion Model" and
"Load VAE" and adds one node, "Load Tiny CLIP (StepCache demo)".
"""


async def comfy_entrypoint():
    from .nodes_tiny import TinyModelExtension, register_weights_folder

    register_weights_folder()
    return TinyModelExtension()
