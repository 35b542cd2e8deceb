"""The generator: the same rows for everyone, in the ranges of the published sample."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.core.errors import ParameterError
from workloads.riot.city import BLOCK, City
from workloads.riot.etl import RANGES

#: {column: (least, greatest)} of the sample
SAMPLE = {
    "temperature": (-8.1, 40.3),
    "humidity": (12, 99.9),
    "light": (0, 9800),
    "dust": (-1, 10427.86),
    "airquality_raw": (4, 970),
}
MAKERS = ["readings", "lines", "csv_lines"]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_row_is_the_same_alone_and_among_others(maker) -> None:
    make = getattr(City(seed=9, malformed=0.1), maker)
    many = make(BLOCK - 30, 60)
    pieces = [make(BLOCK - 30, 7), make(BLOCK - 23, 46), make(BLOCK + 23, 7)]
    assert pa.Table.from_batches([many]).to_pylist() == pa.Table.from_batches(pieces).to_pylist()


def test_seeds_make_different_cities() -> None:
    first, second = City(seed=1).readings(0, 50), City(seed=2).readings(0, 50)
    assert first.column("source") != second.column("source")
    assert first.column("dust") != second.column("dust")


def test_values_lie_in_the_ranges_of_the_sample_and_not_all_pass_the_filter() -> None:
    readings = City(seed=0, missing=0.02).readings(0, 8000)
    for name, (least, greatest) in SAMPLE.items():
        values = readings.column(name).drop_null()
        assert 0.97 < len(values) / 8000 < 0.99, name
        assert least <= pc.min(values).as_py() <= pc.max(values).as_py() <= greatest, name
        low, high = RANGES[name]
        passing = pc.mean(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))).as_py()
        assert 0.7 < passing < 0.995, name


def test_a_minute_has_as_many_sources_as_the_sample() -> None:
    """The sample has 788 sources in 1000 rows of one minute."""
    readings = City(seed=0).readings(0, 1000)
    assert 740 < pc.count_distinct(readings.column("source")).as_py() < 840
    times = readings.column("timestamp").to_pylist()
    assert times == sorted(times)
    assert 59_000 <= times[-1] - times[0] <= 61_000


def test_all_sources_are_annotated_but_the_unknown_ones() -> None:
    city = City(seed=0, unknown=0.1)
    annotations = city.annotations()
    assert annotations.num_rows == pc.count_distinct(annotations.column("source")).as_py() == 2162
    known = set(annotations.column("source").to_pylist())
    strangers = sum(name not in known for name in city.readings(0, 2000).column("source").to_pylist())
    assert 120 < strangers < 280
    assert len(set(zip(*annotations.select(["location", "type"]).to_pydict().values(), strict=True))) == 10


@pytest.mark.parametrize("maker", ["lines", "csv_lines"])
def test_as_many_lines_are_spoilt_as_asked(maker) -> None:
    good, bad = (getattr(City(seed=6, malformed=share), maker)(0, 3000).column("line") for share in (0.0, 0.1))
    spoilt = pc.sum(pc.not_equal(good, bad)).as_py()
    assert 230 < spoilt < 370


@pytest.mark.parametrize(
    ("arguments", "told"),
    [({"missing": 1.5}, "missing is a share"), ({"sources": 0}, "sources"), ({"seed": -1}, "seed")],
)
def test_impossible_cities_are_refused(arguments, told) -> None:
    with pytest.raises(ParameterError, match=told):
        City(**arguments)


def test_no_rows_can_be_asked_for() -> None:
    assert City().readings(5, 0).num_rows == 0
    with pytest.raises(ParameterError, match="first=-1"):
        City().readings(-1, 5)
