"""How rounds begin: for a quorum, within the budget, and with some clients only where fewer are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.studies import enrolment, lifecycle
from study_protocol.wire.tensors import encode
from tests.factories.clear_rounds import collecting, kinds, ledger, shown
from tests.factories.hospital_double import MODEL, Hospital, UseCases, update
from tests.factories.studies import open_study, put_model, work


@pytest.mark.quick("sqlite")
def test_a_round_waits_for_its_quorum(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, clients=2)
    enrolment.revoke(coordinator, "sepsis", "h1")
    work(coordinator)
    assert kinds(coordinator) == ["opened"]
    Hospital(UseCases(coordinator), "sepsis", "second").enrol()
    work(coordinator)
    assert kinds(coordinator) == ["opened", "reserved"]
    assert hospitals[0].assignment() is not None


@pytest.mark.quick("sqlite")
def test_a_pause_lets_the_round_finish_and_begins_no_other(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    lifecycle.act(coordinator, "sepsis", "pause")
    for hospital in hospitals:
        hospital.send(1, update())
    work(coordinator)
    assert shown(coordinator).state == "released"
    assert hospitals[0].assignment() is None
    statement = views.read_budget(coordinator, "sepsis")
    assert (statement.state, statement.can_continue) == ("paused", True)
    lifecycle.act(coordinator, "sepsis", "resume")
    work(coordinator)
    assert hospitals[0].assignment() is not None


@pytest.mark.quick("sqlite")
def test_the_round_that_would_overspend_never_begins(coordinator: Coordinator) -> None:
    hospitals = open_study(
        coordinator,
        max_steps=1000,
        noise_multiplier=1.5,
        sampling_rate=0.3,
        limits=[{"level": "instance", "definition": "classical", "epsilon": 4.0, "delta": 1e-5}],
    )
    work(coordinator)
    number = 0
    while lifecycle.show(coordinator, "sepsis").state == "running":
        number += 1
        assert views.read_budget(coordinator, "sepsis").can_continue
        for hospital in hospitals:
            hospital.send(number, update(0.0))
        work(coordinator)
    statement = views.read_budget(coordinator, "sepsis")
    assert (statement.stop_reason, statement.can_continue) == ("budget-exhausted", False)
    spent = next(limit.spent for limit in statement.limits if limit.epsilon is not None)
    assert spent is not None
    assert 2.0 < spent <= 4.0
    # One round more, and the limit would have been passed.
    replayed = replay(Entry.from_dict(entry.model_dump()) for entry in ledger(coordinator)[:-1])
    assert replayed.accounts[0].epsilon_after_worst_round(publishes=False) > 4.0
    assert number == replayed.charged_rounds


@pytest.mark.slow
def test_only_some_clients_are_asked_at_a_lower_rate(coordinator: Coordinator) -> None:
    hospitals = collecting(
        coordinator,
        clients=20,
        client_sampling_rate=0.5,
        scheme="client",
        schedule={"min_clients": 0, "round_deadline_seconds": 600.0},
    )
    asked = [hospital for hospital in hospitals if hospital.assignment() is not None]
    # Fails with probability 2^-19.
    assert 0 < len(asked) < 20
    unasked = next(hospital for hospital in hospitals if hospital not in asked)
    with pytest.raises(Rejected, match="not-sampled"):
        unasked.send(1, update())
    for hospital in asked:
        hospital.send(1, update())
    work(coordinator)
    assert shown(coordinator).state == "released"


@pytest.mark.quick("sqlite")
def test_a_model_cannot_be_replaced_and_a_study_cannot_start_without_one(coordinator: Coordinator) -> None:
    open_study(coordinator)
    put_model(coordinator, "sepsis")
    with pytest.raises(Rejected, match="frozen"):
        put_model(coordinator, "sepsis", {"other": np.ones(3, np.float32)})
    assert views.locate_model(coordinator, "sepsis", 0).open().read(0, 1 << 20) == encode(MODEL)
