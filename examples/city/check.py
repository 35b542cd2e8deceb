"""Compares the tables of a city with what they must be: python examples/city/check.py [WAREHOUSE]

For a warehouse that has stopped. The lines are made once more and compared with those that have landed. Then every
table is computed once more from the one that it is built on, in one go and without Spark, up to where it says it is
complete: the same rows with the same values to the last bit, nothing lost, nothing twice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from city import CITY, UNTRAINED, by_field, by_sensor, extract, train
from sensors import landed

from headgate.stream import Collect, Query, Stream, from_batches, run
from headgate.warehouse import read, tables
from workloads.riot.models import CLASSES, LinearModel, TreeModel
from workloads.riot.results import ANALYSES
from workloads.riot.schema import OBSERVABLES, SENSORS

REJECTED = "readings__rejected"
BLOCK = 5


@dataclass(frozen=True)
class Found:
    """What came of one table: how many rows it has, and what is wrong with them."""

    table: str
    rows: int
    problems: tuple[str, ...]


class City:
    """The tables of a warehouse, as far as each is complete."""

    def __init__(self, path: Path) -> None:
        #: the event time up to which each table is complete, for those that there are
        self.complete = {table.name: table.freshness for table in tables(path) if table.time is not None}
        self._rows = {name: read(path, [name])[name] for name in self.complete}
        there = any(table.name == REJECTED for table in tables(path))
        self.rejected = read(path, [REJECTED])[REJECTED].column("raw").to_pylist() if there else []

    def rows(self, name: str, *order: str) -> pa.Table:
        return self._rows[name].sort_by([(column, "ascending") for column in order])

    def given_to(self, name: str, source: str) -> pa.Table:
        """The rows of ``source`` that ``name`` says it has taken in, as they came."""
        rows = self.rows(source, "ts", "msgid")
        return rows.filter(pc.less_equal(rows.column("ts"), pa.scalar(self.complete[name], rows.column("ts").type)))


def check(path: Path) -> list[Found]:
    """Every table that there is, from the lines on."""
    city = City(path)
    return [Found(name, *compare(city)) for name, compare in CHECKS.items() if name in city.complete]


Result = tuple[int, tuple[str, ...]]


def _lines(city: City) -> Result:
    rows = city.rows("lines", "msgid")
    began = pc.min(rows.column("ts")).cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).as_py()
    return _compared(rows, landed(replace(CITY, start=began), 0, rows.num_rows))


def _readings(city: City) -> Result:
    given = city.given_to("readings", "lines")
    expected, rejected = _serially(extract, given)
    rows = city.rows("readings", "msgid")
    count, problems = _compared(rows.select(expected.column_names), expected)
    if count + len(rejected) != given.num_rows:
        problems += (f"{given.num_rows} lines became {count} readings and {len(rejected)} rejected lines",)
    if sorted(city.rejected) != sorted(rejected):
        problems += (f"{REJECTED} has {len(city.rejected)} lines, or others than the {len(rejected)} expected",)
    return count, problems


def _stats(city: City) -> Result:
    given = city.given_to("stats", "readings")
    made = pa.concat_tables([_serially(query, given)[0] for query in (by_sensor, by_field)])
    order = ("msgid", "analysis", "field")
    expected = pa.table(
        {
            "msgid": made.column("msgid"),
            "source": made.column("source"),
            "field": pa.array(OBSERVABLES).take(made.column("obstype")),
            "analysis": pa.array(ANALYSES).take(made.column("analysis")),
            "result": made.column("result"),
        }
    ).sort_by([(column, "ascending") for column in order])
    return _compared(city.rows("stats", *order).select(expected.column_names), expected)


def _models(city: City) -> Result:
    expected, _ = _serially(train, city.given_to("models", "readings"))
    rows = city.rows("models", "last")
    count, problems = _compared(rows.select(expected.column_names), expected)
    return count, (*problems, *_unlearned(rows, city))


def _unlearned(models: pa.Table, city: City) -> Iterator[str]:
    """Regressions that NumPy's least squares would not have found."""
    readings = city.rows("readings", "msgid")
    for model in models.to_pylist():
        times = readings.column("timestamp")
        period = readings.filter(pc.and_(pc.greater_equal(times, model["first"]), pc.less_equal(times, model["last"])))
        *features, air = (period.column(name).to_numpy() for name in SENSORS)
        found = np.linalg.lstsq(np.stack([*features, np.ones(len(air))], axis=1), air, rcond=None)[0]
        linear = LinearModel.from_json(model["linear"])
        if not np.allclose(found, [*linear.coefficients, linear.intercept], rtol=1e-6, atol=1e-6):
            yield f"the regression {model['name']} is not that of its readings"


def _predictions(city: City) -> Result:
    rows = city.rows("predictions", "msgid", "analysis")
    trained = city.rows("models", "last").to_pylist() if "models" in city.complete else []
    models = {UNTRAINED[0]: UNTRAINED[1:]} | {
        model["name"]: (LinearModel.from_json(model["linear"]), TreeModel.from_json(model["tree"])) for model in trained
    }
    used = rows.filter(pc.equal(rows.column("analysis"), "decision_tree")).column("model").to_pylist()
    if unknown := set(rows.column("model").to_pylist()) - set(models):
        return rows.num_rows, (f"made with models that there are not: {', '.join(sorted(unknown))}",)
    given = city.given_to("predictions", "readings")
    given = given.filter(given.column("source").is_valid())
    if len(used) != given.num_rows:
        return rows.num_rows, (f"{given.num_rows} readings of registered sensors have {len(used)} classes",)
    expected = _predicted(given, [models[name] for name in used], used)
    count, problems = _compared(rows.select(expected.column_names), expected)
    turns = [list(models).index(name) for name in used]
    if turns != sorted(turns):
        problems += ("an older model was used after a newer one",)
    return count, problems


CHECKS: dict[str, Callable[[City], Result]] = {
    "lines": _lines,
    "readings": _readings,
    "stats": _stats,
    "models": _models,
    "predictions": _predictions,
}


def _predicted(readings: pa.Table, models: Sequence[tuple[LinearModel, TreeModel]], names: Sequence[str]) -> pa.Table:
    """Row by row, as it is told in the papers: an error and a class for each reading."""
    blocks: dict[str, list[float]] = {}
    average = None
    made = []
    for row, (linear, tree), name in zip(readings.to_pylist(), models, names, strict=True):
        values = [np.array([row[sensor]]) for sensor in SENSORS]
        air = row[SENSORS[-1]]
        block = blocks.setdefault(row["source"], [])
        block.append(air)
        if len(block) == BLOCK:
            average = sum(blocks.pop(row["source"])) / BLOCK
        error = (air - float(linear.predict(values[:-1])[0])) / average if average else None
        both = (("decision_tree", CLASSES[int(tree.predict(values)[0])]), ("error_estimate", _text(error)))
        made += [
            {"msgid": row["msgid"], "source": row["source"], "analysis": analysis, "result": result, "model": name}
            for analysis, result in both
        ]
    columns = ("msgid", "source", "analysis", "result", "model")
    return pa.Table.from_pylist(
        made, pa.schema([("msgid", pa.int64()), *((name, pa.string()) for name in columns[1:])])
    )


def _text(number: float | None) -> str | None:
    return None if number is None else pa.scalar(number).cast(pa.string()).as_py()


def _serially(build: Callable[[Stream], Stream], given: pa.Table) -> tuple[pa.Table, list[str]]:
    """All that a query makes of all rows at once, and the rows that it rejects."""
    query, found = Query("again"), Collect()
    made = build(query.source(from_batches(given)))
    made.to(found)
    (ran,) = run(query, workers=1)
    return pa.Table.from_batches(found.batches, made.schema), [row.raw for row in ran.rejected]


def _compared(rows: pa.Table, expected: pa.Table) -> Result:
    """How many rows there are, and where they differ from those expected, which stand in the same order."""
    if rows.num_rows != expected.num_rows:
        return rows.num_rows, (f"has {rows.num_rows} rows, expected {expected.num_rows}",)
    problems = []
    for name in expected.column_names:
        column, right = rows.column(name).combine_chunks(), expected.column(name).combine_chunks()
        if not column.cast(right.type).equals(right):
            pairs = enumerate(zip(column.to_pylist(), right.to_pylist(), strict=True))
            place, (got, wanted) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
            problems.append(f"{name} differs first in row {place}: {got!r}, expected {wanted!r}")
    return rows.num_rows, tuple(problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    beside = Path(__file__).parent / "city.warehouse"
    parser.add_argument("warehouse", type=Path, nargs="?", default=beside, help="its folder (default: %(default)s)")
    found = check(parser.parse_args().warehouse)
    for table in found:
        print(f"{table.table:12} {table.rows:9} rows  {'as they must be' if not table.problems else 'WRONG'}")
        for problem in table.problems:
            print(f"    {problem}")
    return int(any(table.problems for table in found))


if __name__ == "__main__":
    sys.exit(main())
