"""The terminal view of a run, ``headgate top``.

A thread of its own asks the run and goes on asking when it cannot be reached. Every text on the screen is plain: names
and errors come from others. Only the rows that can be seen are written, so thousands of tables cost no more than some.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, ClassVar

from rich.console import JustifyMethod
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.events import Key, Resize
from textual.widgets import DataTable, Footer, Input, Static

from headgate.core import HeadgateError
from headgate.monitor.record import Json
from headgate.monitor.remote import RemoteRun
from headgate.monitor.top_rows import (
    COLUMNS,
    SORTED_BY,
    SPARK,
    SPARK_SECONDS,
    attention,
    cells,
    headline,
    length,
    ordered,
    staleness,
)
from headgate.warehouse.report.printable import printable

#: seconds until a run that cannot be reached is tried again
TRY_AGAIN = 1.0
#: seconds between two pictures: staleness counts on by itself
TICK = 1.0
#: seconds without news from a run, which come every second, until it counts as stuck
SILENT = 5.0

_COLORS = {"running": "cyan", "held": "red", "stopped": "red", "retrying": "yellow", "no source": "yellow"}


class _Filter(Input):
    """The field for the filter. Keys wait in its own queue: those behind Enter are handed back, not written into it."""

    app: TopApp

    async def _on_key(self, event: Key) -> None:
        if self.screen.focused is not self:
            event.stop()
            event.prevent_default()
            self.app.post_message(Key(event.key, event.character))
        elif event.key == "enter":
            event.stop()
            event.prevent_default()
            self.app.use_filter(self.value)
        else:
            await super()._on_key(event)


class TopApp(App[None]):
    """Shows ``run``; ``clock`` tells the time of this machine."""

    CSS = """
    #head { height: 1; text-style: bold; }
    #attention { height: auto; max-height: 5; color: $warning; }
    #rows { height: 1fr; }
    #told { height: auto; max-height: 40%; border-top: solid $primary; display: none; }
    #wanted { display: none; }
    #said { height: 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "reverse"),
        # With priority: the letters that are typed after it are for the filter, however fast they come.
        Binding("slash", "filter", "filter", key_display="/", priority=True),
        Binding("p", "pause", "pause/resume"),
        Binding("r", "refresh_table", "refresh"),
        Binding("e", "explain", "explain"),
        Binding("escape", "close", "close", show=False),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, run: RemoteRun, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._remote = run
        self._clock = clock
        self._ended = threading.Event()
        self._overview: Json = {"warehouse": run.name, "tables": {}}
        self._curves: dict[str, deque[float | None]] = {}
        #: when the last points of the curves were begun
        self._begun = -math.inf
        #: of this machine's clock compared with that of the run
        self._skew = 0.0
        #: when the last news came, by the clock of this machine
        self._heard = 0.0
        #: why there is no connection; empty if there is one
        self._trouble = "connecting ..."
        self._column, self._reverse, self._wanted = 1, False, ""
        self._shown: list[str] = []

    # --- the screen -----------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="attention", markup=False)
        yield DataTable(id="rows", cursor_type="row", zebra_stripes=True)
        yield VerticalScroll(Static(id="explained", markup=False), id="told")
        yield _Filter(id="wanted", placeholder="part of a name or state; Enter to use it, Esc for all")
        yield Static(id="said", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        rows = self._rows
        for place, column in enumerate(COLUMNS):
            justify: JustifyMethod = "left" if column.is_left else "right"
            rows.add_column(Text(column.title, justify=justify), width=column.width, key=str(place))
        rows.focus()
        self.watch(rows, "scroll_y", self._draw_rows, init=False)
        self.set_interval(TICK, self._draw)
        self._draw()
        threading.Thread(target=self._follow, name="headgate-top", daemon=True).start()

    def on_unmount(self) -> None:
        self._ended.set()

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self._draw_rows)

    @property
    def _rows(self) -> DataTable[Text]:
        return self.query_one("#rows", DataTable)

    @property
    def _now(self) -> float:
        """The time of the run, which stands still while there is no connection."""
        return float(self._overview.get("at", 0.0)) if self._trouble else self._clock() - self._skew

    def _draw(self) -> None:
        now = self._now
        silent = 0.0 if self._trouble else self._clock() - self._heard
        connection = "not connected" if self._trouble else "stuck" if silent > SILENT else "live"
        self.query_one("#head", Static).update(Text(headline(self._overview, now, connection), no_wrap=True))
        lines = [printable(self._trouble).replace("\n", " ")] if self._trouble else []
        if silent > SILENT:
            lines.append(f"the scheduler has not answered for {length(silent)}: states and queue are those of then")
        lines += attention(self._overview, now)
        self.query_one("#attention", Static).update(Text("\n".join(lines)))
        chosen = self._chosen
        self._shown = ordered(self._overview["tables"], now, self._column, self._reverse, self._wanted)
        rows = self._rows
        while rows.row_count > len(self._shown):
            rows.remove_row(str(rows.row_count - 1))
        for place in range(rows.row_count, len(self._shown)):
            rows.add_row(*(Text("") for _ in COLUMNS), key=str(place))
        if chosen in self._shown and self._chosen != chosen:  # the cursor stays with its table
            rows.move_cursor(row=self._shown.index(chosen), scroll=False)
        self._draw_rows()

    def _draw_rows(self, *_: object) -> None:
        """Write the rows that can be seen."""
        rows, now = self._rows, self._now
        first = max(0, int(rows.scroll_y) - 1)
        for place in range(first, min(first + rows.size.height + 2, len(self._shown), rows.row_count)):
            name = self._shown[place]
            table = self._overview["tables"].get(name, {})
            for column, text in enumerate(cells(name, table, now, self._curves.get(name, ()))):
                self._write(place, column, text, str(table.get("state", "")))

    def _write(self, place: int, column: int, text: str, state: str) -> None:
        style = _COLORS.get(state, "") if COLUMNS[column].title == "state" else ""
        new = Text(text, style, justify="left" if COLUMNS[column].is_left else "right", overflow="ellipsis")
        rows = self._rows
        if rows.get_cell(str(place), str(column)) != new:
            rows.update_cell(str(place), str(column), new)

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(Text(printable(text).replace("\n", " ")))

    # --- the run --------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                for overview in self._remote.overviews(self._ended):
                    self._later(self._take, overview)
            except HeadgateError as error:
                self._later(self._lose, str(error))
            self._ended.wait(TRY_AGAIN)

    def _later(self, do: Callable[..., None], *arguments: Any) -> None:
        """Do something on the thread of the screen, and wait until it is done; nothing if the screen is closed."""
        if not self._ended.is_set():
            with suppress(RuntimeError, NoMatches, CancelledError):  # it is being closed
                self.call_from_thread(do, *arguments)

    def _take(self, overview: Json) -> None:
        self._overview = overview
        self._trouble = "" if overview.get("live", True) else "the run has ended"
        self._heard = self._clock()
        self._skew = self._heard - overview["at"]
        is_next = overview["at"] >= self._begun + SPARK_SECONDS
        if is_next:
            self._begun = overview["at"]
        for name, table in overview["tables"].items():
            curve = self._curves.setdefault(name, deque(maxlen=SPARK))
            if curve and not is_next:
                curve.pop()  # the last point is the present
            curve.append(staleness(table, overview["at"]))
        self._draw()

    def _lose(self, why: str) -> None:
        self._trouble = why
        self._draw()

    def _command(self, command: str, table: str, done: str) -> None:
        """Ask the run for a change, without keeping the screen waiting."""

        def ask() -> None:
            try:
                self._remote.do(command, table)
                said = f"{table}: {done}"
            except HeadgateError as error:
                said = f"{table}: {error}"
            self._later(self._say, said)

        threading.Thread(target=ask, name="headgate-top-command", daemon=True).start()

    # --- keys -----------------------------------------------------------------------------------------------

    @property
    def _chosen(self) -> str | None:
        place = self._rows.cursor_row
        return self._shown[place] if 0 <= place < len(self._shown) else None

    def action_sort(self) -> None:
        place = SORTED_BY.index(self._column)
        self._column, self._reverse = SORTED_BY[(place + 1) % len(SORTED_BY)], False
        self._say(f"sorted by {COLUMNS[self._column].title}")
        self._draw()

    def action_reverse(self) -> None:
        self._reverse = not self._reverse
        self._draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        place = event.column_index
        self._reverse = not self._reverse if place == self._column else False
        self._column = place if place in SORTED_BY else self._column
        self._draw()

    def action_filter(self) -> None:
        wanted = self.query_one("#wanted", Input)
        wanted.display = True
        self.screen.set_focus(wanted)  # at once: the next letter must not pause a table

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self._draw()

    def use_filter(self, text: str) -> None:
        """The filter is written: what is typed now is for the tables that it leaves."""
        self._wanted = text
        self._draw()
        self.query_one("#wanted", Input).display = False
        self.screen.set_focus(self._rows)

    def action_close(self) -> None:
        """Close what is open, first the explanation, then the filter."""
        panel, wanted = self.query_one("#told"), self.query_one("#wanted", Input)
        if panel.display:
            panel.display = False
        else:
            wanted.value = ""
            wanted.display = False
        self.screen.set_focus(self._rows)

    def action_pause(self) -> None:
        if (name := self._chosen) is not None:
            halted = self._overview["tables"].get(name, {}).get("state") in ("paused", "held")
            self._command("resume" if halted else "pause", name, "resumed" if halted else "paused")

    def action_refresh_table(self) -> None:
        if (name := self._chosen) is not None:
            self._command("refresh", name, "will be updated next, with its sources")

    def action_explain(self) -> None:
        if (name := self._chosen) is None:
            return

        def ask() -> None:
            try:
                text = self._remote.explain(name)
            except HeadgateError as error:
                text = f"{name}: {error}"
            self._later(self._tell, text)

        threading.Thread(target=ask, name="headgate-top-explain", daemon=True).start()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.action_explain()

    def _tell(self, text: str) -> None:
        self.query_one("#explained", Static).update(Text(printable(text)))
        self.query_one("#told").display = True
