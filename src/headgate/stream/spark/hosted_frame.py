"""The frame that ``on_spark`` returns: a data frame with stream queries in it that is computed later.

A query with states needs the states of the table's last commit, and queries of several tables may be computed in one
pass. The driver of the update knows both; the table's function does not. So a ``HostedFrame`` computes nothing: it
holds requests for queries, and the DataFrame methods that were called on their rows. The driver *resolves* it into a
DataFrame. Outside of any table it resolves itself, without states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.errors import QueryDeclarationError
from headgate.stream.spark.hosted_query import EngineOptions, HostedQuery
from headgate.stream.spark.ordering import NO_COMMITS, ArrivalOrder
from headgate.stream.spec import QuerySpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: methods that would compute the rows without the table's states
_REFUSED = frozenset(
    {
        *("createTempView", "createOrReplaceTempView", "createGlobalTempView", "createOrReplaceGlobalTempView"),
        *("registerTempTable", "asTable", "scalar", "exists", "rdd", "toJSON", "randomSplit", "pandas_api"),
    }
)
#: what methods give that is called later, as Spark's annotations name it
_NOTED = frozenset({"DataFrame", "GroupedData", "PandasCogroupedOps", "DataFrameNaFunctions", "DataFrameStatFunctions"})
#: what can be asked of a frame without computing its rows
_WITHOUT_ROWS = frozenset({"schema", "columns", "dtypes", "printSchema", "explain", "isStreaming", "sparkSession"})

#: the table whose function is being called: it may describe rows of ``on_spark``, but not compute them
_described: ContextVar[str | None] = ContextVar("headgate_described_table", default=None)


@contextmanager
def describing(table: str) -> Iterator[None]:
    """While the function of a table is called: whatever would compute rows without the table's states is refused."""
    token = _described.set(table)
    try:
        yield
    finally:
        _described.reset(token)


@dataclass(frozen=True, eq=False)
class Request:
    """A query to run on Spark, with the frame that it reads and the user's options.

    ``arrival`` is the order of rows with the same event time. ``together`` means one task for all buckets instead of
    one task per bucket.
    """

    frame: DataFrame | HostedFrame
    input: pa.Schema
    query: HostedQuery
    options: EngineOptions
    keys: tuple[str, ...]
    time: str | None
    buckets: int
    spec: QuerySpec
    arrival: ArrivalOrder = NO_COMMITS
    together: bool = False


@dataclass(frozen=True, eq=False)
class _Call:
    """A method call on a frame that is not resolved yet, or a property such as ``na``, without arguments."""

    frame: HostedFrame
    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


#: computes the rows of a request
Rows = Callable[[Request], "DataFrame"]


class HostedFrame:
    """The rows of a stream query, and the DataFrame methods called on them. It has the methods of a DataFrame.

    Methods that lead to a DataFrame (those that return one, ``groupBy``, ``na``) are recorded, and called when the
    frame is resolved. Methods that return a result (``collect``, ``toArrow``, ``schema``) run the query at once,
    without states: they are for use outside of tables. ``kind`` is the class of Spark whose methods it has.
    """

    def __init__(self, origin: Request | _Call, kind: str = "DataFrame") -> None:
        self._origin = origin
        self._kind = kind
        self._plain: DataFrame | None = None

    def __getattr__(self, name: str) -> Any:
        from pyspark.sql import functions as F

        if name == "_jdf":
            raise QueryDeclarationError(
                "a plain DataFrame was combined with rows of on_spark, which are not computed yet; call the method on "
                "what on_spark gave, as in on_spark(...).join(frame, ...) or on_spark(...).unionByName(frame)"
            )
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _REFUSED:
            raise QueryDeclarationError(
                f"{name} cannot be used on rows of on_spark, because it would compute them without the table's states; "
                "use methods that give a DataFrame"
            )
        attribute = getattr(_spark_class(self._kind), name, None)
        if attribute is None and self._kind == "DataFrame":
            return F.col(name)
        is_property = isinstance(attribute, property)
        kind = _kind_given(attribute.fget if isinstance(attribute, property) else attribute)
        if kind not in _NOTED:
            table = _described.get()
            if table is not None and name not in _WITHOUT_ROWS:
                raise QueryDeclarationError(
                    f"{name} would run the query of on_spark at once, without the states of table {table!r}; in the "
                    "function of a table, use methods that give a DataFrame, and return the frame"
                )
            return getattr(self.plain(), name)
        if is_property:
            return HostedFrame(_Call(self, name, (), {}), kind)
        return lambda *args, **kwargs: HostedFrame(_Call(self, name, args, kwargs), kind)

    def transform(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What ``func`` makes of this frame: called at once, because it may put a query of its own on the rows."""
        return func(self, *args, **kwargs)

    def __getitem__(self, item: Any) -> Any:
        from pyspark.sql import Column
        from pyspark.sql import functions as F

        if isinstance(item, str):
            return F.col(item)
        if isinstance(item, int):  # beyond the last column this raises IndexError, which ends a loop over the columns
            return F.col(self.columns[item])
        if isinstance(item, list | tuple):
            return self.select(*item)
        if isinstance(item, Column):
            return self.filter(item)
        raise TypeError(f"rows of on_spark take a column, its name or its number in brackets; got {item!r}")

    def __repr__(self) -> str:
        if isinstance(self._origin, Request):
            return f"HostedFrame[{self._origin.query.name}: {', '.join(self._origin.query.output.names)}]"
        return f"{self._origin.frame!r}.{self._origin.method}(...)"

    def requests(self) -> Iterator[Request]:
        """All requested queries, each before those that read its rows."""
        seen: set[int] = set()
        for request in self._walk():
            if id(request) not in seen:
                seen.add(id(request))
                yield request

    def _walk(self) -> Iterator[Request]:
        if isinstance(self._origin, Request):
            if isinstance(self._origin.frame, HostedFrame):
                yield from self._origin.frame._walk()
            yield self._origin
            return
        call = self._origin
        yield from call.frame._walk()
        for argument in (*call.args, *call.kwargs.values()):
            if isinstance(argument, HostedFrame):
                yield from argument._walk()

    def resolve(self, rows: Rows) -> Any:
        """The DataFrame (or GroupedData, and so on); ``rows`` computes the rows of each request."""
        if isinstance(self._origin, Request):
            return rows(self._origin)
        call = self._origin
        target = call.frame.resolve(rows)
        args = [_resolved(argument, rows) for argument in call.args]
        kwargs = {key: _resolved(argument, rows) for key, argument in call.kwargs.items()}
        attribute = getattr(target, call.method)
        return attribute(*args, **kwargs) if callable(attribute) else attribute

    def plain(self) -> DataFrame:
        """The DataFrame outside of any table: without stored states, and none are saved."""
        if self._plain is None:
            from headgate.stream.spark.passes import plain_rows

            self._plain = self.resolve(plain_rows)
        return self._plain


def _spark_class(kind: str) -> type:
    from pyspark.sql import DataFrame, DataFrameNaFunctions, DataFrameStatFunctions, GroupedData
    from pyspark.sql.pandas.group_ops import PandasCogroupedOps

    classes = (DataFrame, GroupedData, PandasCogroupedOps, DataFrameNaFunctions, DataFrameStatFunctions)
    return next(each for each in classes if each.__name__ == kind)


def _kind_given(function: object) -> str:
    """The name of the class that a function gives, as its annotation says: some have the class, some its name."""
    given = getattr(function, "__annotations__", {}).get("return")
    return getattr(given, "__name__", str(given))


def _resolved(argument: Any, rows: Rows) -> Any:
    return argument.resolve(rows) if isinstance(argument, HostedFrame) else argument


def requests_in(result: object) -> tuple[Request, ...]:
    """The queries in what a table's function returned; none if it is not a frame of ``on_spark``."""
    if not isinstance(result, HostedFrame):
        return ()
    requests = tuple(result.requests())
    names = [request.query.name for request in requests]
    for name in names:
        if names.count(name) > 1:
            raise QueryDeclarationError(
                f"two queries of one table are called {name!r}: give each on_spark call a name of its own"
            )
    return requests
