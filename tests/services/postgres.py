"""A PostgreSQL server for tests: on a free port of this machine, in a folder of its own, not run as root."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.services.ports import free_ports

#: seconds to wait for the server to answer, or to end; far more than it takes
PATIENCE = 300.0


def programs() -> Path | None:
    """The folder with the server's programs; None if there are none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(os.path.realpath(found)).parent
    places = ("/usr/lib/postgresql/*/bin/initdb", "/opt/homebrew/opt/postgresql*/bin/initdb")
    installed = sorted(path for place in places for path in glob.glob(place))
    return Path(installed[-1]).parent if installed else None


def why_not() -> str:
    """Why there can be no server here; empty if there can."""
    if programs() is None:
        return "no PostgreSQL server is installed: scripts/ensure_postgres.sh"
    if os.getuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres"
    try:
        import adbc_driver_postgresql  # noqa: F401
    except ImportError:
        return "no ADBC driver: pip install 'headgate[postgres]'"
    return ""


def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


class PostgresServer:
    """A server that runs inside a ``with`` block. It can be killed and started again in between.

    If this is root, the server runs as the user postgres, who must be able to come to ``folder``.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        found = programs()
        assert found is not None, why_not()
        self._programs = found
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        if (user := self._runs_as()) is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        options = ["-A", "trust", "-U", "headgate", "-E", "UTF8", "--locale=C", "--no-sync"]
        with open(self._folder / "initdb.log", "wb") as log:
            command = [str(self._programs / "initdb"), "-D", str(self._data), *options]
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd="/", **self._as_user())
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(signal.SIGQUIT)  # at once: nobody needs what it has
        shutil.rmtree(self._data, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _runs_as(self) -> pwd.struct_passwd | None:
        return _user() if os.getuid() == 0 else None

    def _as_user(self) -> dict[str, Any]:
        user = self._runs_as()
        return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def owns(self, file: Path) -> None:
        """Give a file to the user that the server runs as, who alone may read it."""
        os.chmod(file, 0o600)
        if (user := self._runs_as()) is not None:
            os.chown(file, user.pw_uid, user.pw_gid)

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_buffers": "32MB",
            "fsync": "off",
            "wal_level": "logical",
            "max_replication_slots": "100",
            # Its transactions, and what it writes to the log, would come at any moment.
            "autovacuum": "off",
            **dict(setting.split("=", 1) for setting in self._settings),
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(self._folder / "server.log", "ab") as log:
            command = [str(self._programs / "postgres"), "-D", str(self._data), *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as_user())
        until = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self._end(signal.SIGKILL)
                raise RuntimeError((self._folder / "server.log").read_text(errors="replace")[-2000:])
            time.sleep(0.05)

    def _answers(self) -> bool:
        import adbc_driver_postgresql.dbapi as adbc

        try:
            adbc.connect(self.uri("postgres")).close()
        except adbc.Error:
            return False
        return True

    def kill(self) -> None:
        """End it as a power cut would: nothing is finished."""
        self._end(signal.SIGQUIT)

    def _end(self, sent: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(sent)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)

    def uri(self, database: str, user: str = "headgate", password: str = "") -> str:
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URI of an empty database."""
        name = f"t{uuid.uuid4().hex[:12]}"
        with Session(self.uri("postgres")) as session:
            session.execute(f"CREATE DATABASE {name}")
        return self.uri(name)


class Session:
    """A connection as another program has it: its transactions are begun and ended by the test."""

    def __init__(self, uri: str) -> None:
        import adbc_driver_postgresql.dbapi as adbc

        self._connection = adbc.connect(uri, autocommit=True)

    def execute(self, *statements: str) -> None:
        for statement in statements:
            with self._connection.cursor() as cursor:
                cursor.executescript(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            found: list[tuple[Any, ...]] = [tuple(row) for row in cursor.fetchall()]
            return found

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
