"""A hospital's machine is cloned, and both copies take part: one stops and says so, and the study goes on.

Over real HTTP. Until one stops, every sum under masks ends, because the other hospitals see two masking keys of one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.errors import LostLedger, UpdateDisputed
from private_learning import tasks
from private_learning.training.weights import weights_of
from study_protocol.wire.tensors import encode
from tests.factories.joining import STUDY, Site
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings
from tests.factories.studies import FakeClock

NAMES = ("alpha", "beta", "gamma", "delta")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setattr("client_sdk.study.participation._PAUSE_SECONDS", 0.05)
    with live(tmp_path / "home", time_of_day=FakeClock(), long_poll_seconds=0.2) as found:
        yield found


def go_on(here: Live, seen: set[int]) -> None:
    """After a round that was abandoned the next one waits for a while; three that are released are enough."""
    rounds = here.operator("GET", f"/v1/studies/{STUDY}/rounds").json()["rounds"]
    abandoned = {one["round"] for one in rounds if one["state"] == "abandoned"}
    if abandoned - seen:
        seen |= abandoned
        assert isinstance(here.time_of_day, FakeClock)
        here.time_of_day.seconds += 60.0
    if sum(one["state"] == "released" for one in rounds) >= 3:
        here.operator("POST", f"/v1/studies/{STUDY}/stop")


@pytest.mark.quick("masked")
@pytest.mark.parametrize("masked", [False, True], ids=["clear", "masked"])
def test_two_copies_of_one_hospital(here: Live, tmp_path: Path, masked: bool) -> None:
    chosen = settings(masked=masked, max_steps=9, expected_clients=4.0, schedule={"min_clients": 4})
    model = tasks.load(chosen.training.task, chosen.training.task_parameters).model()
    here.open_study(STUDY, chosen, model=False)
    assert here.operator("PUT", f"/v1/studies/{STUDY}/models/0", content=encode(weights_of(model))).is_success
    sites = [Site(here, tmp_path, name) for name in NAMES]
    for site in sites:
        site.enrol()
    shutil.copytree(sites[-1].directory, tmp_path / "clone" / NAMES[-1])
    sites.append(Site(here, tmp_path / "clone", NAMES[-1]))
    assert here.operator("POST", f"/v1/studies/{STUDY}/start").status_code == 200
    for site in sites:
        site.start()
    end, abandoned = time.monotonic() + 60, set[int]()
    while any(site.is_alive() for site in sites):
        assert time.monotonic() < end, here.operator("GET", f"/v1/studies/{STUDY}/rounds").text
        here.work()
        go_on(here, abandoned)
        time.sleep(0.02)
    assert [site.error for site in sites[:3]] == [None] * 3
    stopped = [site for site in sites[3:] if site.error is not None]
    assert len(stopped) == 1
    # A copy that starts after the first round finds the other's update, and not what it would have sent itself.
    assert isinstance(stopped[0].error, UpdateDisputed | LostLedger)
    assert "a second installation" in str(stopped[0].error)
    # Two at most: in the first neither can know, and in the second one stops.
    assert len(abandoned) <= 2
    # It is no proof against the coordinator.
    assert not (stopped[0].directory / "evidence").exists()
