"""Hospitals whose machines are put back to a snapshot: the system gives the same bytes again, and no noise repeats.

Two studies of the same settings, records and first model over real HTTP. Between them every hospital's directory is put
back to a copy. The system's bytes are alike in both.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk.secure_sum import round as masked_round
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.study.hospital import Hospital
from client_sdk.study.work import RoundCharges
from private_learning import tasks
from private_learning.training.weights import weights_of
from study_protocol.wire.tensors import encode
from tests.factories.hospitals import records
from tests.factories.joining import Site
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings
from tests.factories.studies import FakeClock

NAMES = ("alpha", "beta", "gamma", "delta")


class SiteOfTwo(Site):
    """Takes part in the study that `study` names. Its system gives the bytes of every other of its name."""

    study = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.system = itertools.count()

    def run(self) -> None:
        self.outcome = self.hospital().join(self.study, None, records(20), policy=self.policy, dataset="icu")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=FakeClock(), long_poll_seconds=1.0) as found:
        yield found


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str, int], Any]:
    """(study, hospital, round) -> the finished bytes; under round -1 the public masking keys."""
    found: dict[tuple[str, str, int], Any] = {}
    finish, advertise, fresh = RoundCharges.finish, SecureSumClient.advertise, os.urandom

    def keep(self: RoundCharges, round: int, body: bytes, **rest: Any) -> None:
        found[self.study, threading.current_thread().name, round] = body
        finish(self, round, body, **rest)

    def keep_keys(self: SecureSumClient, *rest: Any) -> Any:
        keys = advertise(self, *rest)
        found[self._study, threading.current_thread().name, -1] = (keys.share_key, keys.mask_key)
        return keys

    def repeating(size: int) -> bytes:
        # Of the hospitals alone, and of keys alone: names of files have to differ.
        site = threading.current_thread()
        if size != 32 or not isinstance(site, SiteOfTwo):
            return fresh(size)
        return hashlib.sha256(f"{site.name} {next(site.system)}".encode()).digest()

    def with_repeating(*arguments: Any, **options: Any) -> SecureSumClient:
        return SecureSumClient(*arguments, randomness=repeating, **options)

    monkeypatch.setattr(RoundCharges, "finish", keep)
    monkeypatch.setattr(SecureSumClient, "advertise", keep_keys)
    monkeypatch.setattr(masked_round, "SecureSumClient", with_repeating)
    monkeypatch.setattr(os, "urandom", repeating)
    return found


def run(here: Live, sites: list[SiteOfTwo], study: str) -> None:
    assert here.operator("POST", f"/v1/studies/{study}/start").status_code == 200
    for site in sites:
        site.study = study
        site.start()
    end = time.monotonic() + 90
    while any(site.is_alive() for site in sites):
        assert time.monotonic() < end
        here.work()
        time.sleep(0.02)
    assert all(site.outcome is not None for site in sites)


@pytest.mark.quick("parallel")
@pytest.mark.parametrize("scheme", ["parallel", "client-distributed"])
def test_machines_put_back_to_a_snapshot_do_not_repeat_their_noise(
    here: Live, tmp_path: Path, left: dict[tuple[str, str, int], Any], scheme: str
) -> None:
    options = {"sampling_rate": 1.0} if scheme == "parallel" else {}
    chosen = settings(scheme, max_steps=1, expected_clients=4.0, schedule={"min_clients": 4}, **options)
    initial = encode(weights_of(tasks.load(chosen.training.task, chosen.training.task_parameters).model()))
    sites = [SiteOfTwo(here, tmp_path, name) for name in NAMES]
    for study in ("first", "second"):
        here.open_study(study, chosen, model=False)
        assert here.operator("PUT", f"/v1/studies/{study}/models/0", content=initial).status_code == 201
        for site in sites:
            token = here.invite(study, site.name)
            Hospital.enrol(here.url, token, directory=site.directory, connection=site.connection).erase_expired()
    for site in sites:
        shutil.copytree(site.directory, tmp_path / "snapshot" / site.name)
    run(here, sites, "first")
    put_back = [SiteOfTwo(here, tmp_path / "snapshot", name) for name in NAMES]
    run(here, put_back, "second")
    first = {key[1:]: value for key, value in left.items() if key[0] == "first"}
    second = {key[1:]: value for key, value in left.items() if key[0] == "second"}
    assert first.keys() == second.keys() != set()
    assert [key for key in first if first[key] == second[key]] == []
    # Nor do two hospitals with the same records and the same bytes draw alike.
    assert len(set(first.values())) == len(first)
