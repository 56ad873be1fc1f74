"""The terms that a hospital agreed to, and what a lost ledger costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk.errors import BadAssignment, ConfigurationError, LostLedger, OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_views import RecordsMark
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.study_count import require_within_study
from client_sdk.study.agreed import accept_loss, freeze, require_split_known, settings_shown
from client_sdk.study.delivery import Capabilities
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.plan_of import plan_of
from tests.factories.settings import limit, settings, statistics_settings
from tests.factories.signed_answers import PUBLIC, document

STUDY = settings()
MARK = RecordsMark("content", "people", 40, 40)
MEMBERSHIP: Any = SimpleNamespace(study="sepsis", client="mercy", coordinator_key=PUBLIC)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(tmp_path / "icu.db") as opened:
        yield opened


def shown(chosen: AnySettings = STUDY, digest: str | None = None) -> Any:
    return SimpleNamespace(study="sepsis", settings=chosen, settings_sha256=digest or chosen.digest())


def able(chosen: AnySettings = STUDY) -> Capabilities:
    randomness: Any = None
    return Capabilities(chosen, randomness, None, None)


def coordinator(*rounds: int, queries: tuple[Any, ...] = ()) -> Any:
    """One that took updates of mercy in these rounds, and charged these questions."""
    took = [SimpleNamespace(client="mercy", state="received")]
    views = [SimpleNamespace(round=number, clients=took) for number in rounds]
    asked = [SimpleNamespace(kind="asked", body={"cost": query.cost().to_dict()}) for query in queries]
    return SimpleNamespace(
        rounds=lambda study, after: SimpleNamespace(rounds=views, next=None),
        ledger=lambda study, after: SimpleNamespace(entries=asked, next=None),
    )


def test_settings_are_held_against_their_digest_and_those_of_the_joining(ledger: HospitalLedger) -> None:
    assert settings_shown(shown(), ledger, MEMBERSHIP) == STUDY
    with pytest.raises(BadAssignment, match="do not have the digest"):
        settings_shown(shown(digest="0" * 64), ledger, MEMBERSHIP)
    freeze(able(), ledger, MEMBERSHIP, SitePolicy(), "icu", None, MARK)
    assert settings_shown(shown(), ledger, MEMBERSHIP) == STUDY
    with pytest.raises(BadAssignment, match="not those that this hospital joined under"):
        settings_shown(shown(settings(max_steps=4)), ledger, MEMBERSHIP)
    other = SimpleNamespace(**vars(MEMBERSHIP) | {"coordinator_key": "another"})
    with pytest.raises(BadAssignment, match="or its coordinator"):
        settings_shown(shown(), ledger, other)  # type: ignore[arg-type]


def test_what_was_agreed_to_is_written_once(ledger: HospitalLedger) -> None:
    freeze(able(), ledger, MEMBERSHIP, SitePolicy(), "icu", None, MARK)
    first = ledger.opened("sepsis")
    assert first is not None
    assert (first["client"], first["dataset"], first["settings_sha256"]) == ("mercy", "icu", STUDY.digest())
    assert (first["coordinator_key"], first["gradients"]) == (PUBLIC, None)
    freeze(able(settings(max_steps=4)), ledger, MEMBERSHIP, SitePolicy(), "ward", None, MARK)
    assert ledger.opened("sepsis") == first
    assert [entry.kind for entry in ledger.entries] == ["declared", "opened"]


def test_a_ledger_that_knows_every_round_has_nothing_to_accept(ledger: HospitalLedger) -> None:
    freeze(able(), ledger, MEMBERSHIP, SitePolicy(), "icu", None, MARK)
    ledger.charge("sepsis", 1, Charge.of(STUDY, [1]), (), "a" * 64)
    accept_loss(coordinator(1), ledger, MEMBERSHIP, STUDY)
    accept_loss(coordinator(), ledger, MEMBERSHIP, STUDY)
    assert (ledger.rounds_lost("sepsis"), len(ledger.charges())) == (0, 1)


def test_a_lost_ledger_is_charged_for_every_round_up_to_the_last_and_for_every_question(
    tmp_path: Path, ledger: HospitalLedger
) -> None:
    """Which of them had left is what the lost ledger knew: round 1, too, of which the coordinator took nothing."""
    asked = document("count", noise_multiplier=5.0)
    accept_loss(coordinator(2, 3, queries=(asked,)), ledger, MEMBERSHIP, STUDY)
    charges = ledger.charges()
    assert sum(charge.steps for charge in charges if charge.noise_multiplier == 1.0) == 3
    assert sum(charge.noise_multiplier == pytest.approx(5.0) for charge in charges) == 1
    assert {charge.bears for charge in charges} == {"all"}
    with HospitalLedger.open(tmp_path / "icu.db", read_only=True) as again:
        assert again.charges() == charges
        assert (again.rounds_lost("sepsis"), again.rounds_known("sepsis")) == (3, {1, 2, 3})


def test_lost_rounds_are_charged_as_training_up_to_the_plan_and_leave_room_for_questions(
    ledger: HospitalLedger,
) -> None:
    """Rounds of questions have numbers, too: round 40 of a plan of 12 steps is no fortieth step."""
    asked = {"max_queries": 50, "max_cells": 100, "share": 0.1}
    fixed = [limit("instance", epsilon=8.0, enforcement="fixed-plan")]
    chosen = settings(max_steps=12, sampling_rate=0.1, noise_multiplier=2.0, limits=fixed, statistics=asked)
    question = document("count", noise_multiplier=50.0)
    accept_loss(coordinator(40, queries=(question,)), ledger, MEMBERSHIP, chosen)
    charges = ledger.charges()
    assert [charge.steps for charge in charges if not charge.asks] == [12]
    require_within_study(plan_of(chosen), ledger.sent("sepsis"), Charge.of_query(question.cost()))
    with pytest.raises(OwnBudgetExceeded, match="max_steps"):
        require_within_study(plan_of(chosen), ledger.sent("sepsis"), Charge.of(chosen))


def test_questions_alone_cost_no_training(ledger: HospitalLedger) -> None:
    chosen = statistics_settings()
    freeze(able(chosen), ledger, MEMBERSHIP, SitePolicy(), "icu", None, MARK)
    accept_loss(coordinator(1, queries=(document("count"), document("table"))), ledger, MEMBERSHIP, chosen)
    assert len(ledger.charges()) == 2


def test_no_other_split_is_drawn_for_patients_whom_a_lost_ledger_knew(ledger: HospitalLedger) -> None:
    require_split_known(coordinator(), ledger, MEMBERSHIP, "icu")
    with pytest.raises(LostLedger, match="from round 2 on"):
        require_split_known(coordinator(2), ledger, MEMBERSHIP, "icu")
    accept_loss(coordinator(2), ledger, MEMBERSHIP, STUDY)
    with pytest.raises(ConfigurationError, match="take part in a new study"):
        require_split_known(coordinator(2), ledger, MEMBERSHIP, "icu")
