"""A power cut: what a disk may hold of a directory if only what was synced is sure to be on it.

A file's bytes are sure if it was synced after its last write, its name if the directory was synced after the name was
made. All else may be lost, cut short or there: chance decides for each file.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from pathlib import Path


def cut_copy(source: Path, target: Path, syncs: Path, chance: random.Random) -> Counter[str]:
    """A copy of `source` as it may be after a power cut; how many files were kept, cut and lost.

    Nobody may write into `source` meanwhile. `syncs` is the log that the hook of the run writes.
    """
    synced = _synced(syncs)
    counts: Counter[str] = Counter()
    target.mkdir(parents=True)
    _copy(source, target, synced, chance, counts)
    return counts


def put_in_place(copy: Path, folder: Path, syncs: Path) -> None:
    """Replace the content of `folder`, which may be a mount point, by that of `copy`: now all of it is on disk."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in copy.iterdir():
        shutil.move(path, folder / path.name)
    copy.rmdir()
    with syncs.open("a", encoding="utf-8") as log:
        for path in (folder, *folder.rglob("*")):
            found = path.lstat()
            log.write(f"{time.time_ns()} {found.st_dev} {found.st_ino} {path}\n")


def _copy(
    source: Path, target: Path, synced: dict[tuple[int, int], int], chance: random.Random, counts: Counter[str]
) -> None:
    found = source.stat()
    names_synced = synced.get((found.st_dev, found.st_ino), 0)
    for path in sorted(source.iterdir()):
        entry = path.lstat()
        if path.is_dir():
            # Its time changes with its content, so all that counts is whether its parent was ever synced.
            if names_synced == 0 and chance.random() < 0.5:
                counts["lost"] += sum(1 for each in path.rglob("*") if each.is_file())
                continue
            (target / path.name).mkdir()
            _copy(path, target / path.name, synced, chance, counts)
            continue
        if names_synced < entry.st_ctime_ns and chance.random() < 0.5:
            counts["lost"] += 1
            continue
        shutil.copy2(path, target / path.name)
        if synced.get((entry.st_dev, entry.st_ino), 0) < entry.st_mtime_ns:
            length = chance.choice((0, chance.randint(0, entry.st_size), entry.st_size))
            with (target / path.name).open("r+b") as file:
                file.truncate(length)
            counts["cut" if length < entry.st_size else "kept"] += 1
        else:
            counts["kept"] += 1


def _synced(log: Path) -> dict[tuple[int, int], int]:
    """{device and inode: when it was last synced}; inode numbers are used again, which the times make harmless."""
    found: dict[tuple[int, int], int] = {}
    if log.exists():
        for line in log.read_text("utf-8").splitlines():
            began, device, inode, _ = line.split(" ", 3)
            found[int(device), int(inode)] = int(began)
    return found
