"""`wardround monitor ask` and `monitor show` as people type them, with hospitals that answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from private_learning.records import Table
from tests.factories.asking import NAMES, Site, answering_policy, enrolled
from tests.factories.commands import Run
from tests.factories.live_coordinator import Live
from tests.factories.monitored_studies import SECTION, monitored_study, monitoring
from tests.factories.settings import settings
from wardround.cli.lead.monitor import notes_of, windows_due

QUESTION = SECTION["question"] | {"noise_multiplier": 0.02, "edges": [0.3, 0.5, 0.7], "centre": 0.5}
# Of two windows one is over.
STUDY = SECTION | {"first_day": "2026-01-01", "windows": 2, "every_days": 90, "question": QUESTION}


def records(seed: int) -> Table:
    draw = np.random.default_rng(seed)
    age, rate = draw.uniform(0, 100, 400), draw.uniform(0, 10, 400)
    ill = (age / 100 + rate / 10 + draw.normal(0, 0.2, 400) > 1).astype(float)
    days = ["2025-06-01"] * 100 + ["2026-02-01"] * 300
    columns = {"age": age, "rate": rate, "ill": ill, "seen": days, "patient": [f"p{place}" for place in range(400)]}
    return Table.of(columns, patient_column="patient")


class OfVersion(Site):
    def run(self) -> None:
        try:
            self.outcome = self.hospital().join(
                "registry", None, self._data, policy=self._policy, dataset="icu", data_version="2026-04-01"
            )
        except BaseException as error:  # noqa: BLE001
            self.error = error


@pytest.fixture
def monitored(here: Live, tmp_path: Path) -> Iterator[list[Site]]:
    """A study of one round, whose hospitals answer about window 1."""
    chosen = monitored_study(STUDY, masked=False, max_steps=1)
    policy = answering_policy(statistics={"queries": "ask", "least_noise_multiplier": 1e-3})
    sites = enrolled(here, tmp_path / "sites", chosen, names=NAMES[:2], policy=policy)
    sites = [
        OfVersion(here, site.directory, site.name, records(seed), policy, "registry") for seed, site in enumerate(sites)
    ]
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    worker = threading.Thread(target=work)
    worker.start()
    for site in sites:
        site.start()
    yield list(sites)
    here.operator("POST", "/v1/studies/registry/stop")
    for site in sites:
        site.join(timeout=30)
    ended.set()
    worker.join()


def released(here: Live, sites: list[Site]) -> bool:
    assert not [site.error for site in sites if site.error is not None]
    shown = here.operator("GET", "/v1/studies/registry").json()
    return bool(shown["model"]["version"])


def wait_until(done: Any) -> None:
    for _ in range(600):
        if done():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it does not come so far")


def chart(run: Run) -> dict[str, Any]:
    return json.loads(run("monitor", "show", "registry", "--json", operator=True).stdout)


@pytest.mark.slow
def test_the_window_that_is_due_is_asked_about_and_shown(here: Live, run: Run, monitored: list[Site]) -> None:
    before = chart(run)
    assert [window["state"] for window in before["windows"]] == ["not asked"] * 2
    wait_until(lambda: released(here, monitored))
    refused = run("monitor", "ask", "registry", "--window", "3", code=1, operator=True).output
    assert "the study has 2 windows" in refused
    shown = json.loads(run("monitor", "ask", "registry", "--window", "1", "--json", operator=True).stdout)
    assert [query["number"] for query in shown] == [1]
    wait_until(lambda: chart(run)["windows"][0]["state"] == "answered")
    after = chart(run)
    figures = after["windows"][0]["figures"]
    assert set(figures) == {
        "calibration slope",
        "calibration in the large",
        "area under the ROC curve",
        "net benefit",
    }
    # One step from random weights: its probabilities are nothing that fits.
    assert after["alarms"]
    assert after["alarms"][0]["window"] == 1
    text = " ".join(run("monitor", "show", "registry", operator=True).stdout.split())
    assert "their size is not" in text
    for words in ("2026-01-01 to 2026-04-01", "ALARM, window 1", "False alarms: at most 5 % a year"):
        assert words in text


def test_windows_are_due_from_their_day_on_until_they_are_asked_about_and_again_once_they_failed() -> None:
    today = datetime.now(UTC).date()
    chosen = monitoring(first_day=today - timedelta(days=25), every_days=10, windows=4, wait_days=5)
    queries: Any = {number: SimpleNamespace(state=state) for number, state in ((1, "failed"), (2, "waiting"))}
    assert [chosen.due_on(number) <= today for number in range(1, 5)] == [True, True, False, False]
    assert windows_due(chosen, {}) == [1, 2]
    assert windows_due(chosen, queries) == [1]


def test_where_the_result_is_a_mean_the_watched_model_is_named() -> None:
    document: Any = monitoring().document(1, 48)
    queries: Any = {1: SimpleNamespace(document=document)}
    assert notes_of("sepsis", queries, {}, is_mean=False) == []
    assert notes_of("sepsis", {}, {}, is_mean=True) == []
    (note,) = notes_of("sepsis", queries, {}, is_mean=True)
    assert "of model 48 alone" in note
    assert "wardround study model sepsis --round 48" in note


@pytest.mark.slow
def test_a_study_without_the_section_says_so(here: Live, run: Run, tmp_path: Path) -> None:
    enrolled(here, tmp_path / "sites", settings(), names=NAMES[:2])
    for command in ("ask", "show"):
        output = " ".join(run("monitor", command, "registry", code=1, operator=True).output.split())
        assert "its settings have no section monitoring" in output
