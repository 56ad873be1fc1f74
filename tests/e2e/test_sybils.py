"""A coordinator that makes up hospitals, over real HTTP: who is alone among them is read off the sum."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import PolicyRefused
from private_learning import tasks
from private_learning.training.weights import weights_of
from study_protocol.wire.tensors import encode
from tests.factories.joining import STUDY, KeptSums, Site
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings

pytestmark = pytest.mark.timeout(300)

SYBILS = ("anna", "berta", "clara")
VICTIM = "mercy"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", long_poll_seconds=0.5) as coordinator:
        yield coordinator


def started(here: Live, folder: Path, **policy: Any) -> tuple[list[Site], Site]:
    """The study with three hospitals of the coordinator's and one real one, enrolled."""
    chosen = settings(masked=True, max_steps=2, expected_clients=4.0, schedule={"round_deadline_seconds": 60.0})
    model = tasks.load(chosen.training.task, chosen.training.task_parameters).model()
    here.open_study(STUDY, chosen, model=False)
    stored = here.operator("PUT", f"/v1/studies/{STUDY}/models/0", content=encode(weights_of(model)))
    assert stored.status_code == 201
    sybils = [Site(here, folder, name) for name in SYBILS]
    victim = Site(here, folder, VICTIM, **policy)
    for site in (*sybils, victim):
        site.enrol()
    return sybils, victim


def rounds(here: Live) -> list[dict[str, Any]]:
    return here.operator("GET", f"/v1/studies/{STUDY}/rounds").json()["rounds"]


def work_until(here: Live, done: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, rounds(here)
        here.work()
        time.sleep(0.02)


def run(here: Live, *sites: Site) -> None:
    assert here.operator("POST", f"/v1/studies/{STUDY}/start").status_code == 200
    for site in sites:
        site.start()


def stop(here: Live, *sites: Site) -> None:
    here.operator("POST", f"/v1/studies/{STUDY}/stop")
    for site in sites:
        site.join(30)
        assert not site.is_alive()


@pytest.mark.slow
def test_in_a_laboratory_three_made_up_hospitals_read_the_fourth_one_s_update(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The attack, on a hospital that does without the pin: what the pin is for."""
    sybils, victim = started(here, tmp_path, unpinned_roster="laboratory")
    kept = KeptSums(here, STUDY, monkeypatch)
    run(here, *sybils, victim)
    work_until(here, lambda: not victim.is_alive())
    stop(here, *sybils, victim)
    last = max(kept.sums)
    read = kept.sums[last] - np.sum([kept.sent[name] for name in SYBILS], axis=0)
    assert np.abs(kept.sent[VICTIM]).max() > 0.1
    assert np.abs(read - kept.sent[VICTIM]).max() < 1e-3
    assert "THE ROSTER IS NOT PINNED" in caplog.text


def test_without_a_pinned_roster_no_masked_round_is_taken_part_in(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sybils, victim = started(here, tmp_path, unpinned_roster="unmasked")
    kept = KeptSums(here, STUDY, monkeypatch)
    run(here, *sybils, victim)
    work_until(here, lambda: not victim.is_alive())
    stop(here, *sybils)
    assert isinstance(victim.error, PolicyRefused)
    assert victim.error.code == "policy-roster"
    assert "wardround roster pin" in victim.error.detail
    assert VICTIM not in kept.sent
    assert kept.sums == {}
    assert victim.charged(5) == []
