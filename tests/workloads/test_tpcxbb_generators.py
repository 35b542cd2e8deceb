"""The inputs derived from TPCx-BB: their distributions, their order, and that they are the same every time."""

from __future__ import annotations

import hashlib
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pytest

from headgate.core.errors import ParameterError
from tests.workloads.serial_driver import ListSink, SerialRun, TableSource, rows_of
from workloads.tpcxbb import q4
from workloads.tpcxbb.clicks import Clicks, web_clickstreams
from workloads.tpcxbb.dims import FIRST_SECOND, HOT_ITEMS, PAGE_TYPES, Dims
from workloads.tpcxbb.sales import Sales, store_sales

SALES = Sales(Dims(seed=1))
CLICKS = Clicks(Dims(seed=1), clicks_per_day=200_000)


@pytest.fixture(scope="module")
def sales() -> pa.RecordBatch:
    return SALES.block(0)


@pytest.fixture(scope="module")
def clicks() -> pa.RecordBatch:
    return CLICKS.block(0)


def column(batch: pa.RecordBatch | pa.Table, name: str) -> np.ndarray:
    return batch.column(name).to_numpy()


# --- the shop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sf", "items", "customers", "stores", "pages"),
    [(1, 18_000, 100_000, 12, 60), (10, 56_920, 316_227, 37, 400), (30, 98_590, 547_722, 65, 563)],
)
def test_sizes_follow_the_scale_factor(sf: float, items: int, customers: int, stores: int, pages: int) -> None:
    dims = Dims(sf=sf)
    assert (dims.items, dims.customers, dims.stores, dims.pages) == (items, customers, stores, pages)
    assert len(dims.category) == items and len(dims.page_type) == pages
    assert np.array_equal(np.sort(dims.popular_items), np.arange(items))


def test_categories_have_their_shares_and_page_types_are_balanced() -> None:
    dims = Dims(sf=10)
    shares = np.bincount(dims.category, minlength=10) / dims.items
    assert shares == pytest.approx([0, 0.028, 0.452, 0.300, 0.036, 0.040, 0.022, 0.021, 0.075, 0.026], abs=0.006)
    of_each = np.bincount(dims.page_type, minlength=len(PAGE_TYPES))
    assert of_each.max() - of_each.min() <= 1


def test_a_shop_smaller_than_the_smallest_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"sf=0\.1"):
        Dims(sf=0.1)


# --- store sales ------------------------------------------------------------------------------------------------------


def test_lines_of_a_ticket_are_neighbours_that_share_time_and_store(sales: pa.RecordBatch) -> None:
    ts, ticket, store = column(sales, "ts"), column(sales, "ticket"), column(sales, "store")
    assert np.all(np.diff(ts) >= 0) and np.all(np.diff(ticket) >= 0)
    same = np.diff(ticket) == 0
    assert not np.diff(ts)[same].any() and not np.diff(store)[same].any()
    assert ts[0] >= FIRST_SECOND


def test_tickets_have_1_to_14_lines_alike(sales: pa.RecordBatch) -> None:
    shares = np.bincount(np.bincount(column(sales, "ticket"))) / 65_536
    assert shares == pytest.approx([0, *[1 / 14] * 14], abs=0.004)


def test_pairs_per_line(sales: pa.RecordBatch) -> None:
    lines = np.unique(column(sales, "ticket") * 2**20 + column(sales, "item"))
    different = np.bincount(lines >> 20)
    assert (different * (different - 1) // 2).sum() / sales.num_rows == pytest.approx(4.27, abs=0.02)


def test_each_hot_item_is_on_one_line_of_eighty(sales: pa.RecordBatch) -> None:
    shares = np.bincount(column(sales, "item"), minlength=18_000)[HOT_ITEMS : HOT_ITEMS + 4] / sales.num_rows
    assert shares == pytest.approx([0.0125] * 4, abs=0.001)


def test_what_is_paid(sales: pa.RecordBatch) -> None:
    cents = column(sales, "net_cents")
    assert cents.min() == 0 and cents.max() < 2_000_100
    assert cents.mean() == pytest.approx(172_000, abs=1_200)
    assert np.mean(cents == 0) == pytest.approx(0.012, abs=0.001)


def test_the_rate_is_that_of_event_time(sales: pa.RecordBatch) -> None:
    ts = column(sales, "ts")
    assert sales.num_rows / (ts[-1] - ts[0]) * 3_600 == pytest.approx(20_000, rel=0.01)


# --- clicks -----------------------------------------------------------------------------------------------------------


def test_clicks_stand_by_time_user_sale_and_item(clicks: pa.RecordBatch) -> None:
    rows = [column(clicks, name) for name in ("item", "sale", "user", "ts")]
    assert np.array_equal(np.lexsort(rows), np.arange(clicks.num_rows))
    assert rows[-1][0] >= FIRST_SECOND and rows[-1][-1] < FIRST_SECOND + 86_400


def test_shares_of_unknown_users_and_of_sales(clicks: pa.RecordBatch) -> None:
    assert np.mean(column(clicks, "user") == -1) == pytest.approx(0.421, abs=0.006)
    assert np.mean(column(clicks, "sale") != -1) == pytest.approx(0.0986, abs=0.002)
    assert clicks.num_rows / CLICKS.visits_per_block == pytest.approx(15.2, abs=0.1)
    assert column(clicks, "item").min() >= 0 and column(clicks, "page").max() == 59


def test_abandoned_sessions_have_about_two_pages() -> None:
    query = q4.query(TableSource(web_clickstreams(100_000, seed=1)), ListSink(), q4.TPC, dims=Dims(seed=1))
    SerialRun(query).to_the_end(65_536)
    count, pages = rows_of(query.sinks[0].sink.batches)[-1]
    assert pages / count == pytest.approx(2.26, abs=0.1)


def test_an_order_is_of_one_user_at_one_moment(clicks: pa.RecordBatch) -> None:
    sale, user, ts = column(clicks, "sale"), column(clicks, "user"), column(clicks, "ts")
    bought = np.flatnonzero(sale >= 0)
    by_sale = bought[np.argsort(sale[bought], kind="stable")]
    same = np.diff(sale[by_sale]) == 0
    assert not np.diff(user[by_sale])[same].any() and not np.diff(ts[by_sale])[same].any()
    assert user[bought].min() >= 0
    assert np.bincount(sale[bought]).max() == 14


def test_each_hot_item_is_one_bought_item_of_eighty(clicks: pa.RecordBatch) -> None:
    bought = column(clicks, "item")[column(clicks, "sale") >= 0]
    shares = np.bincount(bought, minlength=18_000)[HOT_ITEMS : HOT_ITEMS + 4] / len(bought)
    assert shares == pytest.approx([0.0125] * 4, abs=0.004)


def test_blocks_follow_each_other_in_time_and_in_orders() -> None:
    stream = Clicks(Dims(seed=1), clicks_per_day=20_000, spread=14_400)
    for number, (before, after) in enumerate(pairwise(stream.block(number) for number in range(3))):
        assert column(before, "ts")[-1] < FIRST_SECOND + (number + 1) * 14_400 <= column(after, "ts")[0]
        assert column(before, "sale").max() < column(after, "sale")[column(after, "sale") >= 0].min()


def test_more_visits_than_a_block_can_hold_are_refused() -> None:
    with pytest.raises(ParameterError, match="visits a block"):
        Clicks(clicks_per_day=1e9)


# --- the same every time ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fewer_sales_are_the_beginning_of_more(sales: pa.RecordBatch) -> None:
    more = sales.num_rows + 10
    table = store_sales(more, seed=1)
    assert table.num_rows == more
    assert table.slice(0, sales.num_rows).combine_chunks().to_batches()[0].equals(sales)
    assert store_sales(1_000, seed=1).equals(table.slice(0, 1_000))


def test_fewer_clicks_are_the_beginning_of_more() -> None:
    table = web_clickstreams(10_000, seed=1, customers=500)
    assert table.num_rows == 10_000
    assert web_clickstreams(4_000, seed=1, customers=500).equals(table.slice(0, 4_000))
    stream = Clicks(Dims(seed=1, customers=500))
    assert sum(batch.num_rows for batch in islice(stream.batches(10_000), 2)) == sum(
        stream.block(number).num_rows for number in range(2)
    )


def test_blocks_can_be_made_in_any_order() -> None:
    stream = Clicks(Dims(seed=3))
    last, first = stream.block(5), stream.block(0)
    assert stream.block(0).equals(first) and stream.block(5).equals(last)
    assert not Clicks(Dims(seed=4)).block(0).equals(first)


@pytest.mark.parametrize(
    ("batch", "digest"),
    [
        pytest.param(SALES.block, "3230fc31bc8fb82bec6c9851d942cde5e45601688c0420b638edb4bb3543b02d", id="store sales"),
        pytest.param(
            Clicks(Dims(seed=1)).block, "760a013e77a25ab1f686620a666283781988e8db6d6572520fe738ef56d68d35", id="clicks"
        ),
    ],
)
def test_block_0_is_what_it_always_was(batch: object, digest: str) -> None:
    block = batch(0)
    hashed = hashlib.sha256()
    for values in block.columns:
        hashed.update(values.to_numpy().tobytes())
    assert hashed.hexdigest() == digest, (
        f"other rows than before, with numpy {np.__version__}: if only numpy is new, its generators draw other "
        "numbers, which it reserves the right to; then put the new digest here and say so in the change log: results "
        "obtained with the old rows cannot be compared any more. With the same numpy, the generator has changed."
    )
