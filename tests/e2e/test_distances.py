"""What training has cost each patient, by hospital, asked of four or five masked hospitals over real HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from accounting.budget.ledger import Entry
from server.services.queries import ask
from study_protocol.documents import check
from study_protocol.queries.kinds.distances import EDGES
from study_protocol.study.certificate import SignedCertificate
from study_protocol.study.queries import Consent
from study_protocol.study.settings import StudySettings
from tests.factories.asking import NAMES, Site, answered, answering_policy, document, drive, enrolled, operator
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import limit, settings
from tests.factories.studies import FakeClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STUDY, NOISE, ROUNDS, PATIENTS = "registry", 10.0, 2, 40
Drive = Callable[[Sequence[Site], Callable[[], bool]], None]
ASKED = document(kind="distances", by="hospital", noise_multiplier=NOISE)


def study() -> StudySettings:
    return settings(
        "parallel",
        masked=True,
        bayesian={"composition": "running", "estimator": "betting", "adversary": "path"},
        statistics={"max_queries": 1, "max_cells": len(NAMES) * len(EDGES), "allowance": 1 / NOISE**2 * 1.001},
        limits=[limit("instance", epsilon=18.0), limit("instance", "bayesian", epsilon=18.0)],
        noise_multiplier=2.0,
        sampling_rate=0.5,
        max_steps=ROUNDS,
        classical_order=6.0,
        schedule={"min_clients": 4},
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setattr("client_sdk.study.participation._PAUSE_SECONDS", 0.05)
    with live(tmp_path / "home", time_of_day=clock, long_poll_seconds=0.2) as coordinator:
        yield coordinator


def trained(here: Live, home: Path, names: Sequence[str], drive: Drive) -> list[Site]:
    """The first four have trained as many rounds as there are, and wait for questions."""
    sites = enrolled(here, home, study(), names=names, policy=answering_policy())[:4]
    for site in sites:
        site.start()
    drive(sites, lambda: here.operator("GET", f"/v1/studies/{STUDY}/models/{ROUNDS}").status_code == 200)
    return sites


def ledger(here: Live) -> list[dict[str, Any]]:
    page = here.operator("GET", f"/v1/studies/{STUDY}/ledger").json()
    assert page["next"] is None
    return page["entries"]


def require_certificate(here: Live, hospitals: int) -> None:
    """It shows so many hospitals, and every number follows from the ledger and the counts."""
    raw = here.operator("GET", f"/v1/studies/{STUDY}/certificate").json()
    stated = SignedCertificate.model_validate(raw).certificate
    found = stated.distances
    assert found is not None
    assert len(found.hospitals) == hospitals
    spread = found.noise * len(EDGES) ** 0.5
    for hospital in found.hospitals:
        assert abs(sum(hospital.counts) - PATIENTS) < 6 * spread
        assert hospital.estimate_low <= hospital.estimate_high <= hospital.epsilon * 1.0001
    entries = [Entry.from_dict(entry) for entry in ledger(here)]
    assert {one.result for one in check.check_ledger(stated, entries)} == {"good"}
    raw["certificate"]["distances"]["hospitals"][0]["estimate_low"] += 0.01
    changed = SignedCertificate.model_validate(raw).certificate
    assert any(one.result == "bad" and "distances" in one.words for one in check.check_ledger(changed, entries))


def require_epsilon(here: Live) -> None:
    """Classical ε of training and question is dp_accounting's, read off the exported ledger."""
    opened, entries = ledger(here)[0]["body"]["settings"]["privacy"], ledger(here)
    costs = [entry["body"]["cost"] for entry in entries if entry["kind"] == "asked"]
    assert [cost["noise_std"] / cost["sensitivity"] for cost in costs] == pytest.approx([NOISE], rel=1e-6)
    account = PLDAccountant()
    step = dp_accounting.GaussianDpEvent(opened["noise_multiplier"])
    account.compose(dp_accounting.PoissonSampledDpEvent(opened["sampling_rate"], step), ROUNDS)
    account.compose(dp_accounting.GaussianDpEvent(NOISE))
    limits = here.operator("GET", f"/v1/studies/{STUDY}/budget").json()["limits"]
    (classical,) = [each for each in limits if each["definition"] == "classical" and each["epsilon"] is not None]
    (stated,) = [one["epsilon"] for one in classical["reports"] if one["name"] == "privacy-loss distribution"]
    exact = account.get_epsilon(classical["delta"])
    assert exact * (1 - 1e-4) <= stated <= exact * 1.02
    assert classical["spent"] >= stated


def test_four_masked_hospitals_answer_and_the_certificate_follows_from_the_ledger(here: Live, tmp_path: Path) -> None:
    sites = trained(here, tmp_path, NAMES[:4], lambda sites, done: drive(here, done, sites=sites, seconds=120.0))
    found = answered(here, sites, ASKED)
    assert found.state == "answered", found
    assert found.answered is not None
    tables = {table.name: table for table in found.answered.published.answer.tables}
    assert {row[0] for row in tables["distances-by-hospital"].rows} == set(NAMES[:4])
    require_certificate(here, 4)
    require_epsilon(here)


def test_a_hospital_that_drops_out_has_no_number(here: Live, tmp_path: Path, clock: FakeClock) -> None:
    """It has agreed, and is gone before each sum: the certificate shows the four others."""

    def without_one(sites: Sequence[Site], done: Callable[[], bool]) -> None:
        passed = 0

        def past_deadlines() -> bool:
            nonlocal passed
            passed += 1
            if passed % 50 == 0:
                # Past the deadline of the phase that waits for the fifth one.
                clock.seconds += 61.0
            return done()

        drive(here, past_deadlines, sites=sites, seconds=120.0)

    sites = trained(here, tmp_path, NAMES, without_one)
    with operator(here) as lead:
        number = lead.ask_query(STUDY, ASKED).number
        ask.consent(here.coordinator, STUDY, number, NAMES[4], Consent(allowed=True))
        without_one(sites, lambda: lead.query(STUDY, number).state in ("answered", "failed"))
        found = lead.query(STUDY, number)
    assert found.answered is not None, found
    answer = found.answered.published.answer
    assert any(note.startswith(f"{NAMES[4]}: no answer") for note in answer.notes)
    require_certificate(here, 4)
