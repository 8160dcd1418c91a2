"""The Chromium in which tests look at pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """The browser, which ends with the block. Without one the test is skipped, and fails in CI."""
    if CHROMIUM is None:
        why = "There is no Chromium on this machine; `apt-get install chromium` brings the one that these tests open."
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
