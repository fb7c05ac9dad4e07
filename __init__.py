"""StepCache: diffusion-transformer step caching for ComfyUI. Everything else is imported when ComfyUI asks for it."""

WEB_DIRECTORY = "./web"
"""The page's modules in `js/`, and help pages: `docs/<node id>/<language>.md`."""


async def comfy_entrypoint():
    """The extension that ComfyUI loads."""
    from comfy_api.latest import ComfyExtension, io

    from .nodes import NODES
    from .nodes.progress import add_route
    from .nodes.replacements import register_replacements

    class StepCacheExtension(ComfyExtension):
        async def on_load(self) -> None:
            add_route()
            await register_replacements()

        async def get_node_list(self) -> list[type[io.ComfyNode]]:
            return NODES

    return StepCacheExtension()
