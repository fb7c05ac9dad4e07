"""Every case runs for every method, on an image model or on a video model (5-D latents); some methods on both."""

import pytest

from ..caching import METHODS, OTHERS
from ..tiny_models import shared

MODELS = ("flux_dev", "wan_t2v")
OF_OTHERS = [(method, MODELS[index % 2]) for index, method in enumerate(OTHERS) if method != "taylorseer_2"]
OF_OTHERS += [("stepcache", "flux_dev")]
PAIRS = [(method, name) for method in METHODS for name in MODELS] + OF_OTHERS


def pytest_generate_tests(metafunc):
    if {"method", "tiny"} <= set(metafunc.fixturenames):
        metafunc.parametrize(("method", "tiny"), PAIRS, indirect=["tiny"])
    elif "method" in metafunc.fixturenames:
        metafunc.parametrize("method", [*METHODS, *(method for method, _ in OF_OTHERS)])
    elif "tiny" in metafunc.fixturenames:
        metafunc.parametrize("tiny", MODELS, indirect=True)


@pytest.fixture
def tiny(request):
    return shared(request.param)
