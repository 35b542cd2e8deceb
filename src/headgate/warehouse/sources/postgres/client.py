"""Questions to a PostgreSQL server, answered as Arrow tables; passwords stay out of everything that can be printed."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from headgate.core import DeclarationError, HeadgateError
from headgate.places.secret_text import without
from headgate.warehouse.sources.errors import ServerUnreachable, SourceError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: parameters that are added to a URI unless it has them: a server that is away must be noticed
_DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "headgate",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    # of what was sent and is not acknowledged, for which keepalives do not count; in milliseconds
    "tcp_user_timeout": "10000",
}
_SECRETS = ("password", "sslpassword", "passfile", "sslkey")
#: what the driver says when a connection cannot be made, or was lost
_LOST = ("Failed to connect", "server closed the connection", "connection to server", "no connection to the server")
#: classes of SQLSTATE that pass by themselves: connections, resources, an operator's intervention
_PASSING = ("08", "53", "57P")


class PostgresAddress:
    """A URI such as ``postgresql://user:password@host:port/database``; as text it has no secrets."""

    def __init__(self, uri: str, where: str) -> None:
        if not isinstance(uri, str) or not uri.startswith(("postgresql://", "postgres://")):
            raise DeclarationError(
                f"{where} needs the URI of a database, as in 'postgresql://user@host:5432/database'; "
                f"got {'something else' if isinstance(uri, str) else repr(uri)}"
            )
        behind_host = re.sub(r"^\w+://[^/?#]*", "", uri)
        if "@" in behind_host or "#" in uri:  # urlsplit would take a part of the password for the host
            raise DeclarationError(
                f"{where}: the URI has a '/', '?', '#' or '@' where none can be, perhaps in the password. Write it "
                "percent-encoded there: %2F for '/', %3F for '?', %23 for '#', %40 for '@'"
            )
        self.uri = uri
        try:
            parts = urlsplit(uri)
            self._secrets = {unquote(parts.password)} if parts.password else set()
            self._secrets |= {parts.password} if parts.password else set()
        except ValueError:
            raise DeclarationError(f"{where}: the URI cannot be understood; write special characters as %40") from None
        options = dict(parse_qsl(parts.query))
        self._secrets |= {value for name, value in options.items() if name in _SECRETS}
        address = parts.netloc.rpartition("@")[2]
        user = parts.netloc.rpartition("@")[0].partition(":")[0]
        self._shown = f"postgresql://{f'{user}@' if user else ''}{address}{parts.path}"
        missing = "&".join(f"{name}={quote(value)}" for name, value in _DEFAULTS.items() if name not in options)
        query = "&".join(part for part in (parts.query, missing) if part)
        self.with_defaults = urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return repr(self._shown)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PostgresAddress) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self._shown)

    def without_secrets(self, text: str) -> str:
        """``text`` on one line, with every secret of the URI taken out, also where only the URI is quoted."""
        text = text.replace(self.uri, self._shown).replace(self.with_defaults, self._shown)
        return re.sub(r"\s+", " ", without(text, self._secrets, shortest=1)).strip()


class PostgresClient:
    """One connection, made when it is needed and made again when it was lost.

    Every method may be called from every thread; ``_lock`` is held while the server works, so they wait for each other.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connection: Any = None
        self._closer: weakref.finalize[..., PostgresClient] | None = None

    def query(self, *statements: str, stays_open: bool = False) -> pa.Table:
        """The rows of the last statement. All of them are one transaction, which may stay open for the next query."""
        with self._lock:
            try:
                connection = self._connected()
                with connection.cursor() as cursor:
                    for statement in statements[:-1]:
                        cursor.execute(statement)
                    cursor.execute(statements[-1])
                    rows: pa.Table = cursor.fetch_arrow_table()
                if not stays_open:
                    connection.commit()
                return rows
            except Exception as error:
                self._drop()
                raise self.explained(error) from None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor, for what is done in a transaction: it is committed at the end, and rolled back after an error.

        Errors of the driver become ours; others pass.
        """
        with self._lock:
            try:
                connection = self._connected()
                with connection.cursor() as cursor:
                    yield cursor
                connection.commit()
            except HeadgateError:
                self._drop()
                raise
            except Exception as error:
                self._drop()
                raise self.explained(error) from None

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = _driver().connect(self._address.with_defaults)
            # Nobody closes a source, so it is closed when nobody has it any more.
            self._closer = weakref.finalize(self, _close, self._connection)
            with self._connection.cursor() as cursor:
                cursor.execute("SET TIME ZONE 'UTC'")
            self._connection.commit()
        return self._connection

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        self._connection = None
        if self._closer is not None:
            self._closer()

    def explained(self, error: Exception) -> SourceError:
        """An error of the driver as one of ours, without secrets."""
        if isinstance(error, SourceError):
            return error
        text = self._address.without_secrets(str(error)) or type(error).__name__
        state = getattr(error, "sqlstate", None) or ""
        if any(said in text for said in _LOST) or state.startswith(_PASSING):
            return ServerUnreachable(f"the PostgreSQL server {self._address} cannot be reached: {text}")
        return SourceError(f"the PostgreSQL server {self._address} says: {text}")


def _close(connection: Any) -> None:
    with suppress(Exception):
        connection.rollback()
    with suppress(Exception):
        connection.close()


def _driver() -> Any:
    try:
        import adbc_driver_postgresql.dbapi as driver  # type: ignore[import-untyped]
    except ImportError:
        raise SourceError(
            "PostgreSQL needs the package adbc-driver-postgresql, which is not installed. Install it with: "
            "pip install 'headgate[postgres]'"
        ) from None
    return driver


def identifier(name: str) -> str:
    """A name as it is written in SQL."""
    return '"{}"'.format(name.replace('"', '""'))


def relation(name: str) -> str:
    """The name of a table, perhaps with its schema, as it is written in SQL; parts that are quoted stay so."""
    return ".".join(part if part.startswith('"') else identifier(part) for part in _PARTS.findall(name))


_PARTS = re.compile(r'"(?:[^"]|"")+"|[^."]+')


def literal(text: str) -> str:
    """A text as it is written in SQL, whatever ``standard_conforming_strings`` is."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"
