"""Chromium for tests of the page: the one of the system, driven by Playwright; no browser is downloaded."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def program() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


def why_not() -> str:
    """Why there is no browser for tests here; empty if there is."""
    if program() is None:
        return "Chromium is not installed: scripts/ensure_chromium.sh"
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: it is in the extra dev"
    return ""


@contextmanager
def opened_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its own sandbox needs rights that containers do not give; it loads nothing but our own page.
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
