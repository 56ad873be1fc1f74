"""ε of rounds and questions in turn, in the clear: the coordinator's own numbers against those of its exported ledger.

With questions that fail after a hospital has sent, that are cancelled, and about models, which only those bear who are
set aside. Under masks, and in scheme sequential: tests/e2e/test_queries_recomputed.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from mpmath import mpf

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from server.services import ledger_pages, views
from server.services.coordinator import Coordinator
from server.services.queries import ask
from server.services.studies import lifecycle
from study_protocol.study.queries import Consent
from tests.factories.asked_studies import STUDY, consented, document, open_asked, send, shown
from tests.factories.hospital_double import Hospital, update
from tests.factories.recomputed import Charged, charged, gaussian_exactly, require_stated, require_tight
from tests.factories.settings import limit, settings
from tests.factories.studies import FakeClock, open_study, work

# Costs do not depend on the database.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
EVALUATION = {"kind": "evaluation", "model": 0, "prediction": "binary"}


def exported(coordinator: Coordinator) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The budget and the ledger as the API gives them."""
    page = json.loads(ledger_pages.read_ledger(coordinator, STUDY))
    assert page["next"] is None
    return json.loads(views.read_budget(coordinator, STUDY).model_dump_json()), page["entries"]


def stated(coordinator: Coordinator) -> Charged:
    return require_stated(*exported(coordinator))


def answer(coordinator: Coordinator, clock: FakeClock, hospitals: list[Hospital], sent: int, **question: Any) -> None:
    """Asked while a round of training is open, which then is released; so many hospitals answer."""
    number = ask.ask(coordinator, STUDY, document(**question)).body.number
    for hospital in hospitals:
        ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=True))
    train(coordinator, hospitals)
    query = shown(coordinator, number)
    for hospital in hospitals[:sent]:
        send(hospital, query)
    if sent < len(hospitals):
        clock.sleep(601.0)
    work(coordinator)
    assert shown(coordinator, number).state == ("answered" if sent == len(hospitals) else "failed")


def train(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    for hospital in hospitals:
        given = hospital.assignment()
        assert given is not None
        hospital.send(given.assignment.round, update(0.01))
    work(coordinator)


@pytest.mark.slow
@pytest.mark.parametrize("aside", [False, True])
def test_rounds_and_questions_cost_what_the_exported_ledger_says(
    coordinator: Coordinator, clock: FakeClock, aside: bool
) -> None:
    chosen = settings(
        statistics={"max_queries": 9, "max_cells": 100},
        evaluation={"share": 0.3} if aside else None,
        limits=[limit("instance", epsilon=18.0)],
        noise_multiplier=1.5,
        sampling_rate=0.2,
        expected_batch_size=20.0,
        max_steps=6,
        classical_order=6.0,
    )
    hospitals = open_study(coordinator, STUDY, clients=3, settings=chosen)
    work(coordinator)
    assert stated(coordinator).rounds == 0
    answer(coordinator, clock, hospitals, 3, noise_multiplier=4.0)
    found = [stated(coordinator)]
    for noise, sent in ((5.0, 1), (6.0, 0)):
        answer(coordinator, clock, hospitals, sent, noise_multiplier=noise)
        found.append(stated(coordinator))
    # Answered, charged in full though it failed, and cancelled.
    assert [(one.rounds, len(one.asked["all"])) for one in found] == [(1, 1), (2, 2), (3, 2)]
    assert found[-1].asked["all"] == pytest.approx((4.0, 5.0), rel=1e-6)
    before = shares(found[-1])
    assert before[0] > before[1]
    if not aside:
        require_tight(*exported(coordinator))
        return
    # What only those bear who are set aside: much noise changes nothing for who has lost most, little noise does.
    for noise, evaluated_more in ((9.0, False), (1.2, True)):
        answer(coordinator, clock, hospitals, 3, noise_multiplier=noise, **EVALUATION)
        trained, evaluated = shares(stated(coordinator))
        assert (evaluated > trained) == evaluated_more
    after = stated(coordinator)
    assert (after.rounds, after.asked["evaluated"]) == (5, pytest.approx((9.0, 1.2), rel=1e-6))
    require_tight(*exported(coordinator))


def shares(found: Charged) -> list[float]:
    """Roughly what either side has lost: Σ q² per σ², and Σ Δ²/s²."""
    return [
        rounds * (found.rate / found.multiplier) ** 2 + sum(one**-2 for one in asked) for rounds, asked in found.sides
    ]


def test_questions_alone_cost_the_analytic_gaussian_of_their_precisions(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    hospitals = open_asked(coordinator, max_queries=10)
    kinds = [(3.0, 3), (7.5, 1), (9.0, 0), (40.0, 3), (2.0, 3)]
    for noise, sent in kinds:
        query = consented(coordinator, hospitals, document(noise_multiplier=noise))
        for hospital in hospitals[:sent]:
            send(hospital, query)
        clock.sleep(61.0 if sent < 3 else 0.0)
        work(coordinator)
        budget, entries = exported(coordinator)
        found = charged(entries)
        exact = gaussian_exactly(found)
        spent = replay([Entry.from_dict(one) for one in entries]).accounts[0].epsilon()
        assert exact <= mpf(spent) <= exact * (1 + mpf("1e-6"))
        # Which questions were asked may follow from answers: from the first charge on the limit is stated.
        (stated_limit,) = (one for one in budget["limits"] if one["epsilon"] is not None)
        assert stated_limit["spent"] == stated_limit["epsilon"] >= spent
    # All but the one that was cancelled.
    assert charged(exported(coordinator)[1]).asked["all"] == pytest.approx((3.0, 7.5, 40.0, 2.0), rel=1e-6)


@pytest.mark.slow
def test_a_changed_ledger_does_not_pass(coordinator: Coordinator, clock: FakeClock) -> None:
    """One charge less, or one with a little more noise, is another ε: the comparisons above can fail."""
    chosen = settings(
        statistics={"max_queries": 9, "max_cells": 100}, limits=[limit("instance", epsilon=18.0)], noise_multiplier=4.0
    )
    hospitals = open_study(coordinator, STUDY, clients=3, settings=chosen)
    work(coordinator)
    answer(coordinator, clock, hospitals, 3, noise_multiplier=2.0)
    lifecycle.act(coordinator, STUDY, "stop")
    budget, entries = exported(coordinator)
    require_stated(budget, entries)
    place = next(i for i, entry in enumerate(entries) if entry["kind"] == "asked")

    def with_cost(name: str, factor: float) -> list[dict[str, Any]]:
        body = entries[place]["body"]
        cost = body["cost"] | {name: body["cost"][name] * factor}
        return [*entries[:place], {**entries[place], "body": body | {"cost": cost}}, *entries[place + 1 :]]

    # Every one of two charges is missed, and a cost that is wrong in the eighth digit, to either side.
    changed = [[entry for entry in entries if entry is not one] for one in entries if one["kind"] == "settled"]
    changed += [with_cost("noise_std", 1 - 1e-8), with_cost("noise_std", 1 + 1e-8), with_cost("sensitivity", 2.0)]
    assert len(changed) == 5
    for other in changed:
        with pytest.raises(AssertionError):
            require_stated(budget, other)
    # The loss distribution is held less closely: to half a percent.
    for factor in (0.98, 1.02):
        with pytest.raises(AssertionError):
            require_tight(budget, with_cost("noise_std", factor))
