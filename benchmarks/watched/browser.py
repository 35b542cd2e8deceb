"""The page in Chromium: when it first shows something, when an event is on the screen, how smoothly it scrolls.

Chromium is that of the distribution, driven by playwright. `missing` says what is not there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: pixels a second: nearly a hundred rows
SPEED = 3_000

#: the page's own source of events, with a note of each update: seconds from its end to the frame that shows it
_NOTING = """
window.noted = []
window.EventSource = class extends window.EventSource {
  addEventListener(kind, handle) {
    super.addEventListener(kind, (event) => {
      handle(event)
      if (kind !== 'update') return
      const update = JSON.parse(event.data)
      requestAnimationFrame(() => requestAnimationFrame(() => {
        window.noted.push(Date.now() / 1000 - update.began - update.seconds)
      }))
    })
  }
}
"""
#: milliseconds from the request of the page to the first text, and to the first row of a table
_PAINTS = """
() => new Promise((done) => {
  const look = () => {
    const paint = performance.getEntriesByName('first-contentful-paint')[0]
    const row = document.querySelector('tbody tr, [role=row] [role=cell]')
    if (paint && row) requestAnimationFrame(() => done([paint.startTime, performance.now()]))
    else requestAnimationFrame(look)
  }
  look()
})
"""
#: scrolls what has the rows, as fast as a wheel that is turned fast, and gives the milliseconds of every frame
_SCROLLING = """
([seconds, speed]) => new Promise((done) => {
  const scrolls = (element) => element.scrollHeight > element.clientHeight + 200
    && ['auto', 'scroll'].includes(getComputedStyle(element).overflowY)
  const found = [...document.querySelectorAll('*')].filter(scrolls)
  const long = (a, b) => b.scrollHeight - a.scrollHeight
  const area = found.sort(long)[0] ?? document.scrollingElement
  const length = area.scrollHeight - area.clientHeight
  const frames = []
  let began = null
  let last = null
  const step = (now) => {
    began ??= now
    if (last !== null) frames.push(now - last)
    last = now
    area.scrollTop = Math.min(length, (speed * (now - began)) / 1000)
    if (now - began < 1000 * seconds) requestAnimationFrame(step)
    else done({frames, length, rows: document.querySelectorAll('tbody tr, [role=row]').length})
  }
  requestAnimationFrame(step)
})
"""


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def missing() -> str:
    """What is needed and not there; empty if nothing is."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the package playwright is not installed"
    return "" if _chromium() else "there is no Chromium: install the package chromium of the distribution"


@contextmanager
def opened(address: str) -> Iterator[Any]:
    """The page at `address`, at 1440 by 900."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.add_init_script(_NOTING)
            page.goto(address, wait_until="commit")
            yield page
        finally:
            browser.close()


def paints(page: Any) -> tuple[float, float]:
    """Seconds from the request to the first text, and to the first row."""
    text, row = page.evaluate(_PAINTS)
    return text / 1000, row / 1000


def delays(page: Any) -> list[float]:
    """Seconds from the end of each update so far to the frame that shows it."""
    return [float(each) for each in page.evaluate("() => window.noted.splice(0)")]


def scrolled(page: Any, seconds: float) -> dict[str, Any]:
    """Scroll from the first row on: the milliseconds of each of the `frames`, the `length` of all rows in pixels."""
    return dict(page.evaluate(_SCROLLING, [seconds, SPEED]))
