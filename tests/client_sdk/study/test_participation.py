"""One hospital in one study: what it believes, pays, computes, sends and refuses."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from torch import nn

from client_sdk.api.client import Client, ServerClock
from client_sdk.errors import (
    ConfigurationError,
    LedgerDamaged,
    LedgerInUse,
    LostLedger,
    OwnBudgetExceeded,
    PolicyRefused,
    TrainingStopped,
)
from client_sdk.guard.charges import Charge, OwnLimit, epsilon_spent
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import SitePolicy
from private_learning.records import DataError, Table
from private_learning.tasks.tables import LogisticRegression
from private_learning.training import LocalTraining
from study_protocol.study.queries import QueryList
from study_protocol.wire.tensors import encode
from tests.factories.hospitals import coordinator, hospital, plain_policy, records, room_when_joining
from tests.factories.participations import besides_decisions, join, ledger_of, run_until_forbidden, stop_after
from tests.factories.settings import TASK_PARAMETERS, settings
from tests.factories.wire_answers import problem

CLIENT_LIMIT = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}


@pytest.mark.quick("study0-3", "study3-3")
@pytest.mark.parametrize(
    ("study", "rounds"),
    [
        ({}, 3),
        ({"bayesian": True}, 3),
        ({"bayesian": True, "max_steps": 6, "training": {"algorithm": "fedavg", "local_steps": 2}}, 3),
        ({"scheme": "client", "limits": [CLIENT_LIMIT]}, 3),
    ],
)
def test_a_hospital_takes_part_until_the_study_ends(tmp_path: Path, study: dict[str, Any], rounds: int) -> None:
    other = coordinator(settings(**study))
    outcome = join(hospital(other, tmp_path), policy=plain_policy(unnoised_updates=True))
    assert (outcome.reason, outcome.rounds_sent, outcome.rounds_refused) == ("max-steps-reached", rounds, 0)
    assert outcome.statement.can_continue is False
    with ledger_of(tmp_path) as ledger:
        kinds = [(entry.kind, entry.round) for entry in besides_decisions(ledger)]
        charged = [(kind, r) for r in range(1, rounds + 1) for kind in ("reserved", "settled")]
        assert kinds == [("declared", None), ("opened", None), *charged, ("finished", None)]
        left = ledger.departures()
        assert [(d.round, d.answer) for d in left] == [(r, "accepted") for r in range(1, rounds + 1)]
        assert [d.sha256 for d in left] == [hashlib.sha256(other.updates[r]["mercy"]).hexdigest() for r in (1, 2, 3)]
        assert ledger.seen_ledger("sepsis").head.sha256 == other.entries[-1].sha256


def test_only_the_update_and_its_terms_leave(tmp_path: Path) -> None:
    other = coordinator(settings(bayesian=True))
    bodies: list[tuple[str, bytes]] = []

    def meddle(request: httpx.Request) -> None:
        if request.content:
            bodies.append((request.method + request.url.path, request.content))

    other.meddle = meddle
    join(hospital(other, tmp_path))
    sent = [(what, body) for what, body in bodies if "/updates/" in what]
    assert len(sent) == 3
    assert [what for what, _ in bodies if "/updates/" not in what] == [
        "POST/v1/enrolments",
        "PUT/v1/studies/sepsis/witnesses/mercy",
    ]
    for _, body in sent:
        header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
        assert set(header) == {"update/weight", "update/bias", "log-moments/filter", "log-moments/moments"}


def test_every_round_is_charged_before_its_model_meets_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, charged = coordinator(), []
    compute = LocalTraining.contribution

    def watched(self: LocalTraining, *given: Any, **options: Any) -> Any:
        with ledger_of(tmp_path) as ledger:
            charged.append(ledger.charged_round("sepsis", other.round))
        return compute(self, *given, **options)

    monkeypatch.setattr(LocalTraining, "contribution", watched)
    join(hospital(other, tmp_path))
    assert len(charged) == 3
    assert all(one is not None and one.sha256 is None for one in charged)


def test_a_hospital_that_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    other = coordinator(settings(bayesian=True, max_steps=4))
    here = hospital(other, tmp_path)
    stop_after(other, 2)
    run_until_forbidden(here)
    other.meddle = None
    assert join(here).rounds_sent == 2
    assert [sorted(bodies) for bodies in other.updates.values()] == [["mercy"]] * 4


def test_the_same_round_again_is_the_same_bytes_and_no_new_charge(tmp_path: Path) -> None:
    other = coordinator()
    lost: list[bytes] = []

    def meddle(request: httpx.Request) -> httpx.Response | None:
        if "/updates/" in request.url.path and len(lost) < 2:
            lost.append(request.content)
            return problem(500, "internal")
        return None

    other.meddle = meddle
    here = hospital(other, tmp_path)
    for _ in range(2):
        with pytest.raises(Exception, match="internal"):
            join(here)
    join(here)
    assert lost == [other.updates[1]["mercy"]] * 2
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.charges()) == 3
    assert len({other.updates[r]["mercy"] for r in (1, 2, 3)}) == 3


def test_finished_bytes_that_are_gone_are_never_computed_anew(tmp_path: Path) -> None:
    other = coordinator()
    other.meddle = lambda request: problem(500, "internal") if "/updates/" in request.url.path else None
    here = hospital(other, tmp_path)
    with pytest.raises(Exception, match="internal"):
        join(here)
    other.meddle = None
    (tmp_path / "outbox" / "sepsis" / "1.safetensors").write_bytes(b"cut")
    with pytest.raises(LedgerDamaged, match="round 1"):
        join(here)
    assert other.updates == {1: {}}


def test_updates_of_earlier_rounds_are_scrubbed(tmp_path: Path) -> None:
    other = coordinator()
    join(hospital(other, tmp_path))
    # The last round's went when the study ended.
    assert list((tmp_path / "outbox" / "sepsis").iterdir()) == []


def test_a_round_that_closed_meanwhile_keeps_its_charge(tmp_path: Path) -> None:
    other = coordinator()

    def meddle(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/rounds/1/updates/mercy"):
            other.refusals[1]["mercy"] = None  # type: ignore[assignment]
            other._close_if_complete()
            return problem(410, "round-closed")
        return None

    other.meddle = meddle
    outcome = join(hospital(other, tmp_path))
    assert outcome.rounds_sent == 2
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.charges()) == 3
        assert [d.answer for d in ledger.departures()] == ["round-closed", "accepted", "accepted"]


def test_a_passed_deadline_costs_nothing(tmp_path: Path) -> None:
    other = coordinator(deadline_in=-1.0)
    polls: list[int] = []

    def meddle(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/assignment"):
            polls.append(1)
            return problem(403, "forbidden") if len(polls) > 1 else None
        return None

    other.meddle = meddle
    run_until_forbidden(hospital(other, tmp_path))
    with ledger_of(tmp_path) as ledger:
        assert ledger.charges() == []


# -- what the hospital itself refuses ------------------------------------------------------------------------------


def test_policy_and_study_are_compared_before_anything_is_waited_for(tmp_path: Path) -> None:
    other = coordinator()
    with pytest.raises(PolicyRefused, match=r"least_noise_multiplier = 2, and the study is sure of 1"):
        join(hospital(other, tmp_path), policy=SitePolicy(least_noise_multiplier=2.0))
    assert not any("/assignment" in request or "/models/" in request for request in other.requests)
    with ledger_of(tmp_path) as ledger:
        assert (ledger.opened("sepsis"), ledger.charges(), ledger.departures()) == (None, [], [])


def test_an_own_limit_without_room_for_one_round_says_which_would_have_it(tmp_path: Path) -> None:
    other = coordinator()
    small = plain_policy(limits={"instance": {"epsilon": 0.1, "delta": 1e-5}})
    with pytest.raises(OwnBudgetExceeded, match=r"epsilon = 0\.1 in policy\.toml .* at least [0-9.]+ at delta 1e-05"):
        join(hospital(other, tmp_path), policy=small)
    assert not any("/assignment" in request for request in other.requests)


def test_an_unnoised_update_needs_the_policys_word(tmp_path: Path) -> None:
    other = coordinator(settings(scheme="client", limits=[CLIENT_LIMIT]))
    with pytest.raises(PolicyRefused, match="unnoised_updates = false"):
        join(hospital(other, tmp_path))


def test_the_own_budget_ends_before_the_studys(tmp_path: Path) -> None:
    charge = Charge.of(settings())
    order = 4.0
    two = epsilon_spent([charge, charge], OwnLimit("instance", 1.0, 1e-5, order))
    limits = {"instance": {"epsilon": two, "delta": 1e-5, "order": order}}
    other = coordinator()
    with room_when_joining():
        outcome = join(hospital(other, tmp_path), policy=plain_policy(limits=limits))
    assert (outcome.rounds_sent, outcome.rounds_refused) == (2, 1)
    assert other.refusals[3]["mercy"].code == "own-budget-exceeded"
    # Another study on the same records finds nothing left; on other records it starts fresh.
    stroke, flu = (hospital(coordinator(study=study), tmp_path) for study in ("stroke", "flu"))
    with pytest.raises(OwnBudgetExceeded, match="with what other rounds on this data set have spent"):
        stroke.join("stroke", None, records(), dataset="icu", policy=plain_policy(limits=limits))
    with room_when_joining():
        assert flu.join("flu", None, records(), dataset="ward", policy=plain_policy(limits=limits)).rounds_sent == 2


def test_excluded_patients_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    compute = LocalTraining.contribution

    def watched(self: LocalTraining, *given: Any, **options: Any) -> Any:
        seen.append(len(self.dataset))
        return compute(self, *given, **options)

    monkeypatch.setattr(LocalTraining, "contribution", watched)
    other = coordinator()
    join(hospital(other, tmp_path), policy=plain_policy(excluded_patients=["p1", "p7", "nobody"]))
    assert seen == [38] * 3


def test_everybody_excluded_is_an_error_before_anything_is_asked(tmp_path: Path) -> None:
    other = coordinator()
    everybody = [f"p{i}" for i in range(40)]
    with pytest.raises(DataError):
        join(hospital(other, tmp_path), policy=plain_policy(excluded_patients=everybody))
    assert other.round == 0


def test_weights_out_of_bounds_are_refused_before_anything_is_charged(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    huge = {name: array + 3e38 for name, array in other.initial.items()}
    other.models[0] = encode(huge)
    join(here)
    assert other.updates[1] == {}
    assert other.refusals[1]["mercy"].code == "weights-out-of-bounds"
    with ledger_of(tmp_path) as ledger:
        assert ledger.charged_round("sepsis", 1) is None


def test_the_weights_before_them_are_within_the_same_bounds(tmp_path: Path) -> None:
    training: dict[str, Any] = {"algorithm": "fedsgd", "local_steps": 1, "clipping_centre": "previous-update"}
    other = coordinator(settings(training=training))
    huge = encode({name: array + 3e38 for name, array in other.initial.items()})

    class Models(dict[int, bytes]):
        def __getitem__(self, version: int) -> bytes:
            # What the first round began with is another file in the second one.
            return huge if version == 0 and 1 in self else super().__getitem__(version)

    other.models = Models(other.models)
    join(hospital(other, tmp_path))
    assert "mercy" in other.updates[1]
    assert other.refusals[2]["mercy"].code == "weights-out-of-bounds"
    with ledger_of(tmp_path) as ledger:
        assert ledger.charged_round("sepsis", 2) is None


def test_training_that_stops_looks_like_a_lost_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*_: Any, **__: Any) -> None:
        raise TrainingStopped("the centre")

    other = coordinator()
    monkeypatch.setattr(LocalTraining, "contribution", stops)
    with pytest.raises(TrainingStopped):
        join(hospital(other, tmp_path))
    assert (other.updates, other.refusals) == ({1: {}}, {1: {}})
    with ledger_of(tmp_path) as ledger:
        # What was computed may not be used, but the charge was made before it was known.
        assert len(ledger.charges()) == 1


def test_a_lost_ledger_stops_until_a_person_says_otherwise(tmp_path: Path) -> None:
    other = coordinator(settings(bayesian=True, max_steps=5))
    here = hospital(other, tmp_path)
    stop_after(other, 2)
    run_until_forbidden(here)
    other.meddle = None
    for path in (tmp_path / "ledgers").iterdir():
        path.unlink()
    with pytest.raises(LostLedger, match="accept-lost-ledger"):
        join(here)
    assert other.round == 2
    assert join(here, accept_lost_ledger=True).rounds_sent == 3
    with ledger_of(tmp_path) as ledger:
        assert [(e.kind, e.round) for e in besides_decisions(ledger)][:4] == [
            ("declared", None),
            ("opened", None),
            ("charged-in-full", 2),
            ("reserved", 3),
        ]
        assert sum(charge.steps for charge in ledger.charges()) == 5


EVALUATING: dict[str, Any] = {
    "statistics": {"max_queries": 5, "max_cells": 100},
    "evaluation": {"share": 0.3},
    "max_steps": 5,
}


@pytest.fixture
def no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "queries", lambda *_, **__: QueryList(queries=[]))


@pytest.mark.usefixtures("no_questions")
def test_a_lost_split_ends_the_study_here_and_its_cost_is_charged_to_everybody(tmp_path: Path) -> None:
    other = coordinator(settings(**EVALUATING))
    here = hospital(other, tmp_path)
    stop_after(other, 2)
    run_until_forbidden(here)
    other.meddle = None
    for path in (tmp_path / "ledgers").iterdir():
        path.unlink()
    with pytest.raises(LostLedger, match="accept-lost-ledger"):
        join(here)
    # Also once it is charged: another split would train on whom the first one evaluated.
    for accepted in (True, True, False):
        with pytest.raises(ConfigurationError, match="own limits"):
            join(here, accept_lost_ledger=accepted)
    assert other.round == 2
    with ledger_of(tmp_path) as ledger:
        assert [(entry.kind, entry.round) for entry in besides_decisions(ledger)] == [("charged-in-full", 2)]
        # Whichever side a patient is on in the next study, the lost one counts.
        assert [(charge.steps, charge.bears) for charge in ledger.charges()] == [(2, "all")]


@pytest.mark.usefixtures("no_questions")
def test_an_older_copy_of_the_ledger_knows_the_split_and_goes_on(tmp_path: Path) -> None:
    other = coordinator(settings(**EVALUATING))
    here = hospital(other, tmp_path)
    stop_after(other, 1)
    run_until_forbidden(here)
    copy = {path: path.read_bytes() for path in (tmp_path / "ledgers").iterdir()}
    stop_after(other, 2)
    run_until_forbidden(here)
    for path, content in copy.items():
        path.write_bytes(content)
    other.meddle = None
    with pytest.raises(LostLedger, match="round 2"):
        join(here)
    assert join(here, accept_lost_ledger=True).rounds_sent == 3
    with ledger_of(tmp_path) as ledger:
        assert {charge.bears for charge in ledger.charges()} == {"trained"}


def test_a_ledger_restored_from_an_older_copy_is_noticed(tmp_path: Path) -> None:
    other = coordinator(settings(max_steps=5))
    here = hospital(other, tmp_path)
    stop_after(other, 1)
    run_until_forbidden(here)
    copy = {path: path.read_bytes() for path in (tmp_path / "ledgers").iterdir()}
    stop_after(other, 2)
    run_until_forbidden(here)
    for path, content in copy.items():
        path.write_bytes(content)
    other.meddle = None
    with pytest.raises(LostLedger, match="round 2"):
        join(here)


def test_a_second_process_on_the_ledger_is_refused(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    with HospitalLedger.open(ledger_path(tmp_path, "icu")), pytest.raises(LedgerInUse):
        join(here)
    assert other.round == 0


def test_another_task_than_agreed_is_refused(tmp_path: Path) -> None:
    other = coordinator()
    with pytest.raises(ConfigurationError, match="logistic-regression"):
        hospital(other, tmp_path).join("sepsis", "mlp", records(), policy=plain_policy())


def test_a_paused_study_is_waited_for(tmp_path: Path) -> None:
    other = coordinator(paused=True)
    waited: list[float] = []

    def resume(seconds: float) -> None:
        waited.append(seconds)
        other.paused = False

    assert join(hospital(other, tmp_path, sleep=resume)).rounds_sent == 3
    assert len(waited) == 1


def test_a_wrong_clock_is_corrected_by_the_coordinators_time(tmp_path: Path) -> None:
    other = coordinator(skew=200.0)
    clock = ServerClock()
    assert join(hospital(other, tmp_path, clock=clock)).rounds_sent == 3
    assert clock.offset == pytest.approx(200.0, abs=60)


def test_nothing_about_patients_is_logged_or_refused_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    other = coordinator(settings(bayesian=True))
    here = hospital(other, tmp_path)
    stop_after(other, 1)
    run_until_forbidden(here)
    other.meddle = None
    table = records(41)
    added = Table(table.columns, (*records(40).patients, "miller-anna"))
    here.join("sepsis", None, added, policy=plain_policy(changed_records="accept"), dataset="icu")
    assert other.refusals[2]["mercy"].code == "records-added"
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.charges()) == 1
    said = caplog.text + json.dumps([r["mercy"].model_dump() for r in other.refusals.values() if r])
    assert "miller" not in said
    assert "p39" not in said


def test_the_end_is_waited_for_until_its_reason_is_known(tmp_path: Path) -> None:
    other = coordinator()
    slept: list[float] = []

    def meddle(request: httpx.Request) -> httpx.Response | None:
        ended = other.budget.finished is not None
        if request.url.path.endswith("/assignment") and ended:
            return httpx.Response(204)
        if request.url.path.endswith("/budget") and ended and not slept:
            early = other._budget(request, "mercy").json()
            return httpx.Response(200, json=early | {"stop_reason": None, "state": "running"})
        return None

    other.meddle = meddle
    here = hospital(other, tmp_path, sleep=slept.append)
    assert join(here).reason == "max-steps-reached"
    assert slept == [2.0]


class Mixing(LogisticRegression):
    """Its model normalises over the batch: one record's gradient depends on the others."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False), super().model())


def test_a_model_that_mixes_records_is_refused_before_any_round_is_paid_for(tmp_path: Path) -> None:
    other = coordinator()
    with pytest.raises(ConfigurationError, match="privately"):
        hospital(other, tmp_path).join(
            "sepsis", Mixing(TASK_PARAMETERS), records(), dataset="icu", policy=plain_policy()
        )
    assert other.round == 0
    with ledger_of(tmp_path) as ledger:
        assert ledger.charges() == []
