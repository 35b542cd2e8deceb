"""PostgreSQL over TLS with a password: who may come in is served, who is refused waits, and no secret is shown."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.sources import Limit, ServerUnreachable
from headgate.warehouse.sources.postgres.offsets import PostgresRange
from tests.services import certificates
from tests.services.postgres import PostgresServer, Session, why_not
from tests.warehouse.written import Written

NOT_HERE = why_not() or certificates.why_not()
pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE or "never"),
]

GUEST, PASSWORD, WRONG = "guest", "sesame-4711", "wrong-secret-35"


class Guarded:
    """A database to which the user ``guest`` comes over TLS and with a password only."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.authority = folder / "certificates" / "ca.crt"
        self.strangers = certificates.make_certificates(folder / "strangers").authority
        self.owner = server.new_database()
        with Session(self.owner) as session:
            session.execute(
                f"CREATE ROLE {GUEST} LOGIN REPLICATION PASSWORD '{PASSWORD}'",
                f"GRANT ALL ON SCHEMA public TO {GUEST}",
                f"GRANT CREATE ON DATABASE {self.owner.rpartition('/')[2]} TO {GUEST}",
                f"CREATE TABLE orders (id bigint PRIMARY KEY, n bigint); ALTER TABLE orders OWNER TO {GUEST}",
                "INSERT INTO orders SELECT i, i * i FROM generate_series(1, 50) AS i",
            )

    def uri(self, password: str = PASSWORD, authority: Path | None = None, mode: str = "verify-full") -> str:
        address = self.owner.replace("//headgate@", f"//{GUEST}:{password}@")
        return f"{address}?sslmode={mode}&sslrootcert={authority or self.authority}"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    # Not a folder of pytest: those are for their owner only, and the server may run as another user.
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-") as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        made = certificates.make_certificates(folder / "certificates")
        access = folder / "access.conf"
        access.write_text(f"host all headgate 127.0.0.1/32 trust\nhostssl all {GUEST} 127.0.0.1/32 scram-sha-256\n")
        settings = ["ssl=on", f"ssl_cert_file={made.certificate}", f"ssl_key_file={made.key}", f"hba_file={access}"]
        server = PostgresServer(folder / "server", *settings)
        server.owns(made.key)
        with server:
            yield Guarded(folder, server)


def test_rows_and_changes_are_read_over_tls(guarded: Guarded) -> None:
    rows = hg.Postgres(guarded.uri(), "orders", key="id", in_background=False)
    wanted = rows.next_range(rows.start(), Limit())
    assert isinstance(wanted, PostgresRange) and wanted.upto == 50
    changes = hg.PostgresChanges(guarded.uri(), "orders", slot="guarded", in_background=False)
    found = changes.next_range(changes.start(), Limit())
    assert found is not None, changes.latest(changes.start())
    assert sum(len(part) for part in changes.arrow(found)) == 50


def test_a_table_is_published_over_tls(guarded: Guarded, tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.becomes([(1, "bern", 1.0), (2, "lima", 2.0)])
    node = PublishNode(written, [hg.PostgresSink(guarded.uri(), "sums", key="id")])
    while node.plan() is not None:
        node.update(None)  # type: ignore[arg-type]
    with Session(guarded.owner) as session:
        assert session.rows("SELECT id, city FROM sums ORDER BY id") == [(1, "bern"), (2, "lima")]


REFUSALS = [
    ("password", "password authentication failed"),
    ("authority", "certificate verify failed"),
    ("mode", "no encryption"),
]


@pytest.mark.parametrize(("wrong", "reason"), REFUSALS)
def test_who_is_refused_waits_with_the_reason_and_no_secret_is_shown(
    guarded: Guarded, tmp_path: Path, wrong: str, reason: str
) -> None:
    uri = {
        "password": guarded.uri(WRONG),
        "authority": guarded.uri(WRONG, guarded.strangers),
        "mode": guarded.uri(WRONG, mode="disable"),
    }[wrong]
    shown = []
    known: dict[str, Any] = {"schema": "id long, n long", "in_background": False}
    for source in (hg.Postgres(uri, "orders", key="id", **known), hg.PostgresChanges(uri, "orders", **known)):
        said = source.latest(source.start())
        assert said.missing and not said.chunks
        assert re.search(reason, said.note), said.note
        shown.append(f"{said!r} {source!r}")
    written = Written(tmp_path)
    written.becomes([(1, "bern", 1.0)])
    sink = hg.PostgresSink(uri, "sums_of_nobody", key="id")
    with pytest.raises(ServerUnreachable, match=reason) as raised:
        sink.last("sums")
    shown.append(f"{sink!r} {raised.value!r} {raised.getrepr()}")
    assert WRONG not in " ".join(shown)
