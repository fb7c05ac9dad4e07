"""Where step caching meets ComfyUI: the table of models, the interception of their blocks, and the wrappers of a run."""
