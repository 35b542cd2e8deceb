"""Alerts of a warehouse in an object store: kept there for the next machine; a store that is silent delays nobody."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import headgate as hg
from headgate.places.object_path import ObjectPath
from headgate.places.place import path_from
from headgate.warehouse.alerts import alert_watch, kept_alerts
from headgate.warehouse.alerts.alert_watch import AlertWatch, alerts_file
from headgate.warehouse.alerts.kept_alerts import KeptAlerts
from headgate.warehouse.schedule.ledger import NodeStatistics
from tests.services.object_store import ObjectStoreServer
from tests.services.ports import free_ports
from tests.warehouse.test_alerts import AIR, PATIENCE, Hook, hook  # noqa: F401

HELD = replace(AIR, state="held", error="no")


def watched(file: ObjectPath, to: str, row: NodeStatistics, said: list[str]) -> AlertWatch:
    spec: Any = SimpleNamespace(name="city", alerts=(hg.Alert(to),), streams=())
    return AlertWatch(lambda: spec, lambda: (row,), file, said.append, lambda: 10.0)


@pytest.mark.services
@pytest.mark.slow
def test_another_machine_repeats_no_alert_and_tells_of_the_recovery(
    hook: Hook,  # noqa: F811
    object_store: ObjectStoreServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alert_watch, "END_SECONDS", PATIENCE)
    monkeypatch.setattr(kept_alerts, "PATIENCE", PATIENCE)
    file = alerts_file(object_store.bucket() / "city")
    assert isinstance(file, ObjectPath) and str(file).endswith("/city/alerts.json")
    said: list[str] = []
    for row, status in ((HELD, "firing"), (HELD, ""), (replace(AIR, last_update=35.0), "recovered"), (AIR, "")):
        watch = watched(file, hook.url, row, said)
        watch.look()
        watch.stop()
        if status:
            assert hook.got.get(timeout=PATIENCE)["status"] == status
        assert hook.got.empty()
        assert json.loads(file.read_text())["pending"] == []
    assert hook.url not in file.read_text() and not said


@pytest.fixture
def silent_store() -> Iterator[ObjectPath]:
    """A place in a store that takes connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield at(listening.getsockname()[1])


def at(port: int) -> ObjectPath:
    storage = {
        **{"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"},
        **{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"},
    }
    place = path_from("s3://bucket/city", storage)
    assert isinstance(place, ObjectPath)
    return place / "alerts.json"


def test_a_store_that_does_not_answer_delays_neither_alerts_nor_the_end(
    silent_store: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_alerts, "PATIENCE", PATIENCE)
    said: list[str] = []
    kept = KeptAlerts(silent_store, said.append)
    kept.write("first")
    kept.write("second")
    kept.stop(time.monotonic() + 0.05)
    writer = kept._thread
    assert writer is not None and writer.is_alive(), "the store still has not answered"
    assert "the next run may repeat some" in said[-1]


def test_a_run_ends_although_it_could_not_be_read_what_has_fired(
    silent_store: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_alerts, "PATIENCE", PATIENCE)
    monkeypatch.setattr(alert_watch, "END_SECONDS", 0.05)
    monkeypatch.setattr(alert_watch, "LOOK_SECONDS", 0.0)
    watch = watched(silent_store, "http://127.0.0.1:9/", HELD, [])
    watch.start()
    watch.stop()
    assert watch._thread.is_alive()


def test_nothing_fires_before_it_is_known_what_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_alerts, "PATIENCE", 0.2)
    (port,) = free_ports(1)
    watch = watched(at(port), "http://127.0.0.1:9/", HELD, [])
    with pytest.raises(OSError):
        watch.look()
    assert watch._couriers == {}


def test_a_write_that_has_failed_is_tried_again_with_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_alerts, "PATIENCE", 0.2)
    monkeypatch.setattr(kept_alerts, "AGAIN_SECONDS", 0.0)
    (port,) = free_ports(1)
    failed = threading.Event()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        failed.set()

    kept = KeptAlerts(at(port), say)
    kept.write("first")
    assert failed.wait(PATIENCE)
    assert "it is tried again" in said[0]
    kept.stop(time.monotonic() + PATIENCE)
    assert "the next run may repeat some" in said[-1] and len(said) == 2
