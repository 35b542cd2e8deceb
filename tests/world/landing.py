"""The landing folders of a world, and what their owners know: every version of every file that ever lay there.

The world itself uses this; nothing of it goes through the simulated disk. Files get the times of the simulated clock.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path

from tests.world import events as e
from tests.world.clock import WorldClock
from tests.world.events import Line
from tests.world.tables import Row


class Landing:
    """``versions`` has all contents of a file of orders, the latest last; ``there`` the names that are there now.

    ``states`` are all contents that the dimension's folder ever had, each as {name: rows}. ``changed`` is when a file
    was last renamed or written, in seconds since the epoch: no function can set that time on a real file.
    """

    def __init__(self, root: Path, clock: WorldClock) -> None:
        self.orders = root / "landing" / "orders"
        self.shops = root / "landing" / "shops"
        self._away = root / "away"
        self._clock = clock
        for folder in (self.orders, self.shops):
            folder.mkdir(parents=True)
        self.versions: dict[str, list[tuple[Line, ...]]] = {}
        self.there: set[str] = set()
        self.unreadable: set[str] = set()
        self.states: list[dict[str, tuple[Row, ...]]] = [{}]
        self.changed: dict[str, float] = {}
        #: what happens while the share is away happens on the share
        self._is_away = False

    def happens(self, event: e.Event) -> list[e.Event] | None:
        """Do what an owner does; returns what happens later because of it. None if this is nothing that owners do."""
        match event:
            case e.LandSlowly():
                self.begin(event.name, event.lines)
                return [e.Land(event.at + 0.3, event.name, event.lines)]
            case e.LandBroken():
                self.land(event.name, event.lines, broken=True)
                return [e.Land(event.at + event.mended, event.name, event.lines)] if event.mended else []
            case e.Land():
                self.land(event.name, event.lines)
            case e.Delete():
                self.delete(event.name)
            case e.ShareEmpty():
                self.take_share_away(event.missing)
                return [e.ShareBack(event.at + event.seconds)]
            case e.ShareBack():
                self.bring_share_back()
            case e.LandShops():
                self.land_shops(event.name, event.shops)
            case _:
                return None
        return []

    # --- orders ---------------------------------------------------------------------------------------------

    @property
    def _share(self) -> Path:
        return self._away if self._is_away else self.orders

    def land(self, name: str, lines: Sequence[Line], *, broken: bool = False) -> None:
        text = "".join(f"{line.text}\n" for line in lines).encode()
        if name.endswith(".gz"):
            text = gzip.compress(text, mtime=0)
        if broken:
            self.unreadable.add(name)
            text = text[: len(text) // 2]
        else:
            self.unreadable.discard(name)
            self.versions.setdefault(name, []).append(tuple(lines))
        self.there.add(name)
        self._rename_into(self._share, name, text)

    def begin(self, name: str, lines: Sequence[Line]) -> None:
        """The first half of a file that is written in place; it is not a version of the file yet."""
        text = "".join(f"{line.text}\n" for line in lines)
        path = self._share / name
        path.write_text(text[: len(text) // 2])
        self._note(path)

    def delete(self, name: str) -> None:
        if name in self.there:
            self.there.discard(name)
            for folder in (self.orders, self._away):
                (folder / name).unlink(missing_ok=True)
            self._touch(self._share)

    def take_share_away(self, missing: bool) -> None:
        """All files are away, or the whole folder is; what lands in the empty folder is there."""
        if self._away.exists():
            return
        if missing:
            self.orders.rename(self._away)
            self._is_away = True
            return
        self._away.mkdir()
        for path in self.orders.iterdir():
            path.rename(self._away / path.name)
        self._touch(self.orders)

    def bring_share_back(self) -> None:
        if not self._away.exists():
            return
        self._is_away = False
        self.orders.mkdir(exist_ok=True)
        for path in self._away.iterdir():
            if (self.orders / path.name).exists():
                path.unlink()  # it was written anew meanwhile
            else:
                path.rename(self.orders / path.name)
        self._away.rmdir()
        self._touch(self.orders)

    # --- the dimension --------------------------------------------------------------------------------------

    def land_shops(self, name: str, shops: Sequence[Row]) -> None:
        state = dict(self.states[-1])
        if shops:
            text = "".join(f'{{"shop": "{shop}", "region": "{region}"}}\n' for shop, region in shops)
            state[name] = tuple(shops)
            self._rename_into(self.shops, name, text.encode())
        else:
            state.pop(name, None)
            (self.shops / name).unlink(missing_ok=True)
            self._touch(self.shops)
        self.states.append(state)

    # --- times of files -------------------------------------------------------------------------------------

    def _rename_into(self, folder: Path, name: str, text: bytes) -> None:
        part = folder.parent / f".{name}.part"
        part.write_bytes(text)
        part.rename(folder / name)
        self._note(folder / name)

    def _note(self, path: Path) -> None:
        self._touch(path)
        # A file that comes back with its share is known by the path that headgate sees.
        seen = self.orders / path.name if path.parent == self._away else path
        self.changed[str(seen)] = self._clock.wall
        self._touch(path.parent)

    def _touch(self, path: Path) -> None:
        moment = self._clock.time_ns()
        os.utime(path, ns=(moment, moment))
