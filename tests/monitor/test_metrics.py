"""The metrics of a run, and that the dashboard and the alert rules name only those that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import PretendedRun

DEPLOY = Path(__file__).parents[2] / "deploy"


def watched() -> RunWatch:
    watch = RunWatch(every=None)
    run = PretendedRun(watch, tables=12)
    run.step(40)
    run.held["table005"] = "no"
    run.behind["table003"] = {"partition 0": 7, "partition 1": 0}
    watch.look()
    return watch


def families() -> list[Metric]:
    watch = watched()
    text = watch.metrics.written()[0].decode()
    watch.stop()
    # The client library says of each histogram when it began to count; that is no number of ours.
    return [each for each in text_string_to_metric_families(text) if not each.name.endswith("_created")]


def samples() -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families():
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_every_table_is_there_with_its_labels() -> None:
    found = samples()
    for name in ("headgate_table_staleness_seconds", "headgate_table_updates_total", "headgate_table_state"):
        assert len(found[name]) == 12, name
        assert all({"warehouse", "table", "kind", "class"} <= labels.keys() for labels, _ in found[name])
    states = {labels["table"]: labels["state"] for labels, _ in found["headgate_table_state"]}
    assert states["table005"] == "held"
    waiting = {(labels["table"], labels["part"]): value for labels, value in found["headgate_source_waiting_records"]}
    assert waiting == {("table003", "partition 0"): 7.0, ("table003", "partition 1"): 0.0}
    updates = sum(value for _, value in found["headgate_table_updates_total"])
    assert updates == sum(value for _, value in found["headgate_update_seconds_count"]) > 0


def test_names_have_their_unit_and_labels_are_plain_words() -> None:
    """As Prometheus and OpenTelemetry ask for: base units, ``_total`` for counters, ``snake_case`` everywhere."""
    units = (
        "_seconds",
        "_ratio",
        "_info",
        "_rows",
        "_records",
        "_priority",
        "_state",
        "_length",
        "_tracks",
        "_busy",
        "_viewers",
    )
    for family in families():
        assert re.fullmatch(r"headgate_[a-z]+(_[a-z]+)*", family.name)
        assert family.name.endswith(units) or family.type == "counter", family.name
        assert family.documentation.endswith(".") and len(family.documentation) > 20
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", label) for label in sample.labels)


def test_the_same_numbers_are_valid_openmetrics() -> None:
    watch = watched()
    content, kind = watch.metrics.written("application/openmetrics-text; version=1.0.0")
    watch.stop()
    assert kind.startswith("application/openmetrics-text")
    found = {family.name for family in openmetrics_families(content.decode())}
    assert {family.name.removesuffix("_info") for family in families()} == found


def test_the_document_names_the_metrics_that_exist_and_all_of_them() -> None:
    text = (DEPLOY.parent / "docs" / "monitor.md").read_text("utf-8")
    section = text.partition("## Metrics")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(headgate_\w+)`", section))
    ended = ("_bucket", "_count", "_sum")
    exist = {re.sub(rf"({'|'.join(ended)})$", "", name) for name in samples()}
    assert named == exist


def test_the_dashboard_and_the_rules_name_metrics_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    rules = yaml.safe_load((DEPLOY / "prometheus-rules.yml").read_text("utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in dashboard["templating"]["list"]]
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    found = samples()
    named = {name for each in asked for name in re.findall(r"\bheadgate_\w+", each)}
    assert len(named) > 10
    assert named - found.keys() == set()
    # What stands in {...}, by (...), on (...) or label_values(..., it) are labels of the metric, or of a histogram.
    for each in asked:
        labels = {label for name in re.findall(r"\bheadgate_\w+", each) for label in found[name][0][0]} | {"le"}
        used = [label for inner in re.findall(r"\{([^}]*)\}", each) for label in re.findall(r"(\w+)\s*[=!]", inner)]
        used += [
            label
            for inner in re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", each)
            for label in re.findall(r"\w+", inner)
        ]
        used += re.findall(r"label_values\([^,]*,\s*(\w+)\)", each)
        assert set(used) <= labels, each
