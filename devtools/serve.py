"""`dev.py serve`: ComfyUI with this pack and the tiny model, for the browser."""

from __future__ import annotations

import time

from . import places
from .options import serve_parser
from .server import running_server


def main(arguments: list[str]) -> int:
    options = serve_parser().parse_args(arguments)
    print("Starting ComfyUI ...", flush=True)
    log = places.LOGS / "serve.log"
    with running_server(options.port, options.gpu, log) as address:
        print(f"ComfyUI runs at http://{address} (log: {log}). Ctrl-C stops it.", flush=True)
        while True:
            time.sleep(3600)
