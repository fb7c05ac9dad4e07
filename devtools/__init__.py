"""Developer tooling behind `dev.py`: set-up, a real ComfyUI server, its client, and the demo.

It is always imported as the package `devtools`, never by putting a folder on `sys.path`: the repository root
would hide ComfyUI's `nodes.py`, and this folder its `server.py`.
"""
