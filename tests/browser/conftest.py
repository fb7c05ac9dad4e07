"""A Chromium for the tests of this folder; they are skipped where there is none."""

import os
import shutil

import pytest

from .comfy_page import ComfyPage

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")


@pytest.fixture(scope="module")  # not longer: while Playwright runs, no other test can use asyncio
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.skip("no Chromium here: install it, or set CHROMIUM to its program")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module", params=[(False, "dark"), (True, "light")], ids=["classic-dark", "vue-light"])
def renderer(request):
    """Whether the Vue renderer draws the nodes, and the palette."""
    return request.param


@pytest.fixture(scope="module")
def opened(browser, address, renderer):
    page = ComfyPage(browser, address, *renderer)
    yield page
    page.page.close()


@pytest.fixture
def page(opened):
    """A page, one for all tests of a renderer, as loading it takes seconds. Nothing may go wrong in it."""
    opened.errors.clear()
    opened.set("StepCache.Strip.Shown", True)
    opened.set("StepCache.Strip.Detail", "cells and signal")
    yield opened
    assert opened.errors == []


@pytest.fixture
def classic(page):
    """For what is no matter of the renderer."""
    if page.vue:
        pytest.skip("tried in the classic renderer")
    return page
