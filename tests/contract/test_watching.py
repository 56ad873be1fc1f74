"""Alerts and dashboard ask for what is exported, by labels that it has; every alert has its row for operators."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.monitoring import monitored
from server.services.measures import Measures, Past
from tests.server.test_monitoring import read
from wardround.demo.processes import free_port

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
SCRAPING = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
BOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "wardround.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
ASKED = [(rule["alert"], rule["expr"]) for rule in RULES] + [
    (f"{panel['title']} {target['refId']}", target["expr"]) for panel in PANELS for target in panel["targets"]
]
# What Prometheus itself adds to every series, and its own series about a target.
ITS_LABELS = {"job", "instance"}
ITS_SERIES = {"up": set[str]()}


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """Every series of a process to which everything has happened once, with its labels."""
    port = free_port()
    settings = Settings(home=tmp_path_factory.mktemp("home"), metrics_port=port)
    prepare(settings)
    coordinator = open_coordinator(settings)
    told = coordinator.observer.instruments
    assert told is not None
    told.answered("PUT", "/v1/studies", 201, 0.1, 1, 1)
    told.committed("create-study", 0.1, 1)
    told.stepped("open", 0.1)
    told.failed("open")
    words = {"word": 1}
    found, past = Measures(words, words, words, words, 1), Past(words, words, words, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.monitoring.measure", lambda _: found)
        patch.setattr("server.monitoring.measure_past", lambda _: past)
        with monitored(settings, coordinator, lambda: 0):
            families = text_string_to_metric_families(read(port))
            yield {one.name: set(one.labels) for family in families for one in family.samples} | ITS_SERIES
    coordinator.database.dispose()


def _selected(node: Any) -> Iterator[tuple[str, set[str]]]:
    """(name, labels it is chosen or grouped by) of every series below a node of PromQL."""
    for name, labels in _below(node):
        grouped = node.modifier.labels if isinstance(node, promql_parser.AggregateExpr) and node.modifier else []
        yield name, labels | set(grouped)


def _below(node: Any) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, promql_parser.VectorSelector):
        yield str(node.name), {matcher.name for matcher in node.matchers.matchers}
    for part in ("expr", "lhs", "rhs", "vector_selector", "args"):
        inner = getattr(node, part, None)
        for one in inner if isinstance(inner, list) else [inner]:
            if one is not None:
                yield from _selected(one)


@pytest.mark.parametrize(("name", "query"), ASKED, ids=[name.replace(" ", "-")[:60] for name, _ in ASKED])
def test_every_series_exists_with_the_labels_it_is_asked_by(name: str, query: str, series: dict[str, set[str]]) -> None:
    selected = list(_selected(promql_parser.parse(query)))
    assert selected
    for found, labels in selected:
        assert found in series
        assert labels <= series[found] | ITS_LABELS, found


@pytest.mark.parametrize("query", ["wardround_nothing > 1", "sum by (client) (wardround_requests_total)"])
def test_a_query_for_what_is_not_there_would_be_noticed(query: str, series: dict[str, set[str]]) -> None:
    selected = _selected(promql_parser.parse(query))
    assert not all(name in series and labels <= series[name] | ITS_LABELS for name, labels in selected)


def test_what_is_exported_is_shown_or_alarms(series: dict[str, set[str]]) -> None:
    """Or nobody would ever see it."""
    asked = {name for _, query in ASKED for name, _ in _selected(promql_parser.parse(query))}
    ours = {name for name in series if name.startswith("wardround_") and not name.endswith("_created")}
    # Of a histogram one of its three is enough.
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in ours} == {
        re.sub("_(bucket|sum|count)$", "", name) for name in asked if name.startswith("wardround_")
    }


def test_every_alert_has_a_summary_and_a_row_for_operators() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) > 10
    assert [name for name in names if f"| `{name}` |" not in OPERATIONS] == []
    assert sorted(re.findall(r"^\| `(Wardround\w+)` \|", OPERATIONS, re.M)) == sorted(names)
    for rule in RULES:
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        (grouping, *_) = [labels for _, labels in _selected(promql_parser.parse(rule["expr"]))]
        assert named <= grouping | ITS_LABELS, rule["alert"]


def test_a_coordinator_of_which_nothing_is_left_alarms() -> None:
    """Processes are found by name: who has ended has no series any more, and every other alert is silent then."""
    (down,) = [rule["expr"] for rule in RULES if rule["alert"] == "WardroundDown"]
    parsed = promql_parser.parse(down)
    assert str(parsed.op) == "or"
    assert parsed.rhs.func.name == "absent"
    assert [name for name, _ in _selected(parsed.rhs)] == ["up"]


def test_what_stands_in_the_database_is_a_gauge_and_asked_for_as_one(series: dict[str, set[str]]) -> None:
    """It falls when a backup is put back: `increase` would count everything again."""
    assert {"wardround_rounds_ended", "wardround_sessions_failed"} <= set(series)
    for _, query in ASKED:
        for function, name in re.findall(r"(increase|rate|delta)\((\w+)", query):
            assert (function == "delta") != name.endswith(("_total", "_bucket", "_sum", "_count")), query


def test_panels_have_ids_of_their_own_and_one_source() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${source}"}
    assert [one["name"] for one in BOARD["templating"]["list"]] == ["source"]


def test_prometheus_finds_every_process_of_compose() -> None:
    (job,) = SCRAPING["scrape_configs"]
    assert job["job_name"] == "wardround"
    (found,) = job["dns_sd_configs"]
    listening = {name for name, service in COMPOSE.items() if service.get("healthcheck") and "build" in service}
    assert set(found["names"]) == listening == {"api", "worker"}
    assert {COMPOSE[name]["environment"]["WARDROUND_METRICS_PORT"] for name in listening} == {str(found["port"])}
    assert SCRAPING["rule_files"] == ["alerts.yml"]
