"""The shop: how many items, customers, stores and pages there are, and what is fixed about each of them.

Sizes follow TPCx-BB's scale factors; categories, page types and what is popular are drawn from the seed. Derived from
TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import ParameterError

SECONDS_PER_DAY = 86_400
#: 2001-09-02, the first day that Q15 asks for
FIRST_DAY = 37_134
FIRST_SECOND = FIRST_DAY * SECONDS_PER_DAY

CATEGORIES = ("Home", "Music", "Books", "Clothing", "Electronics", "Tools", "Toys", "Movies", "Sports")
#: how many of 2,832,824 items a category has; ids are places in this list, from 1
_CATEGORY_WEIGHTS = (78_493, 1_280_336, 849_342, 102_710, 112_194, 62_626, 60_509, 213_030, 73_584)
PAGE_TYPES = ("general", "order", "welcome", "ad", "feedback", "protected", "dynamic", "review")

#: four items that are bought far more often than others: 10000 to 10003
HOT_ITEMS = 10_000
HOT_COUNT = 4

#: first part of a block's spawn key: which table it is of
DIMS_TABLE, SALES_TABLE, CLICKS_TABLE = range(3)
_CATEGORY_STREAM, _PAGE_STREAM, _ITEM_STREAM, _CUSTOMER_STREAM = range(4)


def block_generator(seed: int, table: int, block: int) -> np.random.Generator:
    """The random numbers of one block: blocks can be made in any order, by anybody."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy=seed, spawn_key=(table, block))))


@dataclass(frozen=True)
class Dims:
    """Read-only once made. ``customers`` may be set lower than the scale factor says, so that users come back soon."""

    seed: int = 0
    sf: float = 1.0
    customers: int = 0
    items: int = field(init=False)
    stores: int = field(init=False)
    pages: int = field(init=False)
    item_spread: float = field(init=False)
    customer_spread: float = field(init=False)
    #: of each item, 1 to 9
    category: NDArray[np.int8] = field(init=False, repr=False, compare=False)
    #: of each page, its place in ``PAGE_TYPES``
    page_type: NDArray[np.int8] = field(init=False, repr=False, compare=False)
    #: which item, and which customer, stands at each place of the bell curve of popularity
    popular_items: NDArray[np.int32] = field(init=False, repr=False, compare=False)
    popular_customers: NDArray[np.int32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.sf < 1:
            raise ParameterError(f"sf={self.sf}: the formulas hold from 1 up; for fewer rows take fewer rows of sf=1")
        if self.customers < 0:
            raise ParameterError(f"customers={self.customers}: give a positive number, or 0 for that of the sf")
        root, log5 = math.sqrt(self.sf), math.log(self.sf) / math.log(5) + 1
        sizes = {
            "customers": self.customers or int(100_000 * root),
            "items": int(18_000 * root),
            "stores": int(12 * root),
            "pages": int(60 * (math.log(self.sf) / math.log(1.5) + 1)),
            "item_spread": 60 * log5,
            "customer_spread": 400 * log5,
        }
        for name, value in sizes.items():
            object.__setattr__(self, name, value)
        for name, array in self._drawn().items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def _drawn(self) -> dict[str, NDArray[np.int8] | NDArray[np.int32]]:
        def generator(stream: int) -> np.random.Generator:
            return block_generator(self.seed, DIMS_TABLE, stream)

        shares = np.cumsum(_CATEGORY_WEIGHTS) / sum(_CATEGORY_WEIGHTS)
        category = 1 + np.searchsorted(shares, generator(_CATEGORY_STREAM).random(self.items), side="right")
        page_type = generator(_PAGE_STREAM).permutation(np.arange(self.pages) % len(PAGE_TYPES))
        return {
            "category": category.astype(np.int8),
            "page_type": page_type.astype(np.int8),
            "popular_items": generator(_ITEM_STREAM).permutation(self.items).astype(np.int32),
            "popular_customers": generator(_CUSTOMER_STREAM).permutation(self.customers).astype(np.int32),
        }

    def bought_items(self, generator: np.random.Generator, count: int) -> NDArray[np.int32]:
        """55 % any item, 5 % a hot one, 40 % by popularity. Draws: choice, any, hot, popularity."""
        choice = generator.random(count)
        anyone = generator.integers(self.items, size=count, dtype=np.int32)
        hot = HOT_ITEMS + generator.integers(HOT_COUNT, size=count, dtype=np.int32)
        popular = _by_popularity(generator, self.popular_items, self.item_spread, count)
        return np.where(choice < 0.55, anyone, np.where(choice < 0.6, hot, popular))

    def buying_customers(self, generator: np.random.Generator, count: int) -> NDArray[np.int32]:
        """Half of them anyone, half by popularity. Draws: choice, any, popularity."""
        choice = generator.random(count)
        anyone = generator.integers(self.customers, size=count, dtype=np.int32)
        popular = _by_popularity(generator, self.popular_customers, self.customer_spread, count)
        return np.where(choice < 0.5, anyone, popular)

    def item_table(self) -> pa.Table:
        """The view ``item`` of the batch queries."""
        return pa.table({"item": np.arange(self.items, dtype=np.int32), "category": self.category})

    def page_table(self) -> pa.Table:
        """The view ``web_page`` of the batch queries."""
        types = [PAGE_TYPES[code] for code in self.page_type]
        return pa.table({"page": np.arange(self.pages, dtype=np.int16), "type": types})


def _by_popularity(
    generator: np.random.Generator, places: NDArray[np.int32], spread: float, count: int
) -> NDArray[np.int32]:
    middle = generator.normal(len(places) / 2, spread, count)
    chosen: NDArray[np.int32] = places[np.clip(np.floor(middle), 0, len(places) - 1).astype(np.int64)]
    return chosen
