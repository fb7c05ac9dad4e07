"""Every case runs for every method, on an image model and on a video model (5-D latents)."""

import pytest

from ..caching import METHODS
from ..tiny_models import shared


@pytest.fixture(params=METHODS)
def method(request) -> str:
    return request.param


@pytest.fixture(params=["flux_dev", "wan_t2v"])
def tiny(request):
    return shared(request.param)
