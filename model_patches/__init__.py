"""Where step caching meets ComfyUI: the table of models, the interception of their blocks, the wrappers of a run."""
