"""Step caching on plain tensors: no ComfyUI in here, so every rule can be tested on its own."""
