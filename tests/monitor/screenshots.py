"""Where the screenshots of the page are kept, for a person to look at: outside of the repository."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER = Path(os.environ.get("HEADGATE_SCREENSHOTS") or Path(tempfile.gettempdir()) / "headgate-screenshots")

#: {name: its width and height}
SIZES = {"1440": (1440, 900), "390": (390, 844)}


def take(page: Page, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True)
