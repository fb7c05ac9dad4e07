"""Training of the tiny model: scenes, latent space, decoder and transformer. Needs no ComfyUI."""
