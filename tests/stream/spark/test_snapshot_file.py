"""States in files, whole or as changes to other files, are read as they were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.stream.kernel import Changes, Snapshot, TableChange
from headgate.stream.query_run import REJECTED_SCHEMA
from headgate.stream.spark.state_files import (
    MAGIC,
    OLD_MAGIC,
    Layer,
    SnapshotError,
    read_layer,
    read_rejected,
    read_snapshots,
    write_layer,
    write_rejected,
)

WHOLE = Snapshot({"t": pa.table({"x": [1, 2, 3], "s": ["a", None, "c"]}), "none": pa.table({})}, {"clock": 5})
CHANGES = Changes(
    {
        "t": TableChange(np.array([1, 3]), pa.table({"x": [9, 4], "s": ["b", "d"]}), 4),
        "none": TableChange(np.array([], dtype=np.int64), pa.table({}), 0),
    },
    {"clock": 7},
)


def test_a_whole_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = write_layer(tmp_path / "new", "u1", Layer({"running": WHOLE, "nothing": Snapshot()}, {"update": 1}))
    snapshots, note = read_snapshots(path)
    assert note == {"update": 1}
    assert snapshots["running"].tables["t"].equals(WHOLE.tables["t"])
    assert snapshots["running"].values == {"clock": 5}
    assert snapshots["nothing"].tables == {}
    assert read_layer(path).bases == ()
    assert [each.name for each in path.parent.iterdir()] == [path.name], "nothing half-written is left"


def test_changes_are_read_together_with_the_files_they_stand_on(tmp_path: Path) -> None:
    first = write_layer(tmp_path, "u1", Layer({"running": WHOLE, "gone": WHOLE}, {"update": 1}))
    second = write_layer(tmp_path, "u2", Layer({"running": CHANGES, "new": WHOLE}, {"update": 2}, (first.name,)))
    bases = (second.name, first.name)
    third = write_layer(tmp_path, "u3", Layer({"running": CHANGES, "new": CHANGES}, {"update": 3}, bases))
    snapshots, note = read_snapshots(third)
    assert note == {"update": 3}
    assert list(snapshots) == ["running", "new"]
    for each in snapshots.values():
        assert each.tables["t"].to_pydict() == {"x": [1, 9, 3, 4], "s": ["a", "b", "c", "d"]}
        assert each.values == {"clock": 7}
    assert read_layer(third).bases == bases
    assert isinstance(read_layer(third).operators["running"], Changes)


def test_a_file_whose_base_is_missing_says_so(tmp_path: Path) -> None:
    path = write_layer(tmp_path, "u2", Layer({"running": CHANGES}, {}, ("u1-gone.state",)))
    with pytest.raises(SnapshotError, match=r"u1-gone\.state cannot be read"):
        read_snapshots(path)


def test_changes_without_a_base_are_no_state(tmp_path: Path) -> None:
    path = write_layer(tmp_path, "u2", Layer({"running": CHANGES}, {}))
    with pytest.raises(SnapshotError, match="no whole snapshot of running"):
        read_snapshots(path)


@pytest.mark.parametrize("damage", [lambda text: text[:-3], lambda text: b"PAR1" + text[4:], lambda text: b"HG"])
def test_damaged_files_are_refused(tmp_path: Path, damage: object) -> None:
    path = write_layer(tmp_path, "u1", Layer({"running": WHOLE}, {}))
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SnapshotError, match="not a whole file of states"):
        read_snapshots(path)


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    path = write_layer(tmp_path, "u1", Layer({"running": WHOLE}, {"update": 1}))
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(SnapshotError, match="the table must be computed anew"):
            read_snapshots(path)
    path.write_bytes(good)
    assert read_snapshots(path)[1] == {"update": 1}


def one_rejected_row() -> pa.Table:
    row = {field.name: "late" if pa.types.is_string(field.type) else None for field in REJECTED_SCHEMA}
    return pa.Table.from_pylist([row], schema=REJECTED_SCHEMA)


def test_rejected_rows_are_read_as_they_were_written_or_not_at_all(tmp_path: Path) -> None:
    rows = one_rejected_row()
    name = write_rejected(tmp_path, "rejected-u1-b0", rows)
    assert read_rejected(tmp_path, [name, name]).num_rows == 2
    good = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(good.replace(b"late", b"gate", 1))
    with pytest.raises(SnapshotError, match="its checksum differs"):
        read_rejected(tmp_path, [name])


def as_older_releases_wrote_it(path: Path) -> bytes:
    """The same content without the checksum, and with the older magic."""
    content = path.read_bytes()[: -len(MAGIC) - 8]
    return OLD_MAGIC + content[len(MAGIC) :] + OLD_MAGIC


def test_files_of_older_releases_are_read_and_gross_damage_is_an_error(tmp_path: Path) -> None:
    path = write_layer(tmp_path, "u1", Layer({"running": WHOLE}, {"update": 1}))
    old = as_older_releases_wrote_it(path)
    path.write_bytes(old)
    snapshots, note = read_snapshots(path)
    assert (note, snapshots["running"].tables["t"]) == ({"update": 1}, WHOLE.tables["t"])
    path.write_bytes(old.replace(b'"operators"', b'"0perators"'))
    with pytest.raises(SnapshotError, match="the table must be computed anew"):
        read_snapshots(path)


def test_rejected_rows_of_older_releases_are_read(tmp_path: Path) -> None:
    rows = one_rejected_row()
    with pa.OSFile(str(tmp_path / "old.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    assert read_rejected(tmp_path, ["old.arrow"]) == rows
