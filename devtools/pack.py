"""Import the pack, and this package, by file path: the repository root must never be on `sys.path`.

Loadable on its own (it imports nothing of `devtools`), for a `conftest.py` that has to start somewhere.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def load_pack() -> ModuleType:
    """The pack as the package `stepcache`; afterwards `import stepcache.cache_core` works anywhere."""
    return load_package("stepcache", ROOT)


def load_devtools() -> ModuleType:
    """This folder as the package `devtools`."""
    return load_package("devtools", ROOT / "devtools")


def load_package(name: str, folder: Path) -> ModuleType:
    """Import `folder` under `name`, or return what is already imported under it.

    Raises what the folder's `__init__.py` raises, and then leaves nothing half imported behind.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules[name]
        raise
    return package
