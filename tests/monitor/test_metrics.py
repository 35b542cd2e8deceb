"""The metrics of a run, and that the dashboard and the alert rules name only those that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import PretendedRun

DEPLOY = Path(__file__).parents[2] / "deploy"


def samples() -> dict[str, list[tuple[dict[str, str], float]]]:
    watch = RunWatch()
    run = PretendedRun(watch, tables=12)
    run.step(40)
    run.held["table005"] = "no"
    watch.look()
    text = watch.metrics.written()[0].decode()
    watch.stop()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
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
    updates = sum(value for _, value in found["headgate_table_updates_total"])
    assert updates == sum(value for _, value in found["headgate_update_seconds_count"]) > 0


def test_the_dashboard_and_the_rules_name_metrics_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    rules = yaml.safe_load((DEPLOY / "prometheus-rules.yml").read_text("utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in dashboard["templating"]["list"]]
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for each in asked for name in re.findall(r"\bheadgate_\w+", each)}
    assert len(named) > 10
    assert named - samples().keys() == set()
