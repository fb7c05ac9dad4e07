"""The pack of the tiny models, and what its tests share."""

import pytest

from devtools.pack import ROOT, load_package

load_package("stepcache_tiny_model", ROOT / "tiny_model")


@pytest.fixture(scope="session")
def videos():
    """The tiny Wan as the benchmark loads it."""
    from devtools.bench_stepcache import scenes_of

    return scenes_of(video=True)
