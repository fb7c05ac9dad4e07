"""Training of the tiny models: scenes, latent space, decoder and transformers. Needs no ComfyUI."""
