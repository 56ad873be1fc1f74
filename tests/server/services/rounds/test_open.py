"""How rounds begin and end, what they cost, what they leave behind."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from server.db.blobs import optimisers_of, update_of
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.studies import enrolment, lifecycle
from server.worker import Worker
from study_protocol.study.messages import LedgerEntry, RoundView
from study_protocol.wire.tensors import TensorError, encode
from tests.factories.hospital_double import MODEL, Hospital, UseCases, update
from tests.factories.ledgers import kinds_in
from tests.factories.settings import ORDERS
from tests.factories.studies import FakeClock, open_study, put_model, read_model, work

TERMS = tuple(1e-4 for _ in (0, *ORDERS))


def ledger(coordinator: Coordinator) -> list[LedgerEntry]:
    return ledger_page(coordinator, "sepsis").entries


def kinds(coordinator: Coordinator) -> list[str]:
    return kinds_in(ledger(coordinator))


def shown(coordinator: Coordinator, round: int = 1) -> RoundView:
    return views.show_round(coordinator, "sepsis", round, with_clients=True)


def collecting(coordinator: Coordinator, **options: object) -> list[Hospital]:
    hospitals = open_study(coordinator, **options)  # type: ignore[arg-type]
    work(coordinator)
    return hospitals


def test_a_round_waits_for_its_quorum(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, clients=2)
    enrolment.revoke(coordinator, "sepsis", "h1")
    work(coordinator)
    assert kinds(coordinator) == ["opened"]
    Hospital(UseCases(coordinator), "sepsis", "second").enrol()
    work(coordinator)
    assert kinds(coordinator) == ["opened", "reserved"]
    assert hospitals[0].assignment() is not None


def test_collecting_ends_at_the_deadline_and_not_before(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = collecting(coordinator, training={"algorithm": "fedavg"})
    for hospital in hospitals[:2]:
        hospital.send(1, update(0.4))
    clock.sleep(599.9)
    work(coordinator)
    assert shown(coordinator).state == "collecting"
    clock.sleep(0.1)
    work(coordinator)
    assert shown(coordinator).state == "released"
    # Two updates of 0.4 over the public constant 4, whoever came.
    np.testing.assert_allclose(read_model(coordinator, "sepsis", 1)["bias"], 0.2, rtol=1e-6)
    assert [client.state for client in shown(coordinator).clients or []] == ["received", "received", "missing"]


def test_a_silent_client_costs_the_reservation(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = collecting(coordinator, bayesian=True)
    for hospital in hospitals[:2]:
        hospital.send(1, update(0.1, log_moments=TERMS))
    clock.sleep(600)
    work(coordinator)
    settled = next(entry for entry in ledger(coordinator) if entry.kind == "settled")
    assert settled.body["report"] is None


def test_a_refusal_costs_nothing_extra(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, bayesian=True)
    for hospital in hospitals[:2]:
        hospital.send(1, update(0.1, log_moments=TERMS))
    hospitals[2].refuse(1)
    work(coordinator)
    settled = next(entry for entry in ledger(coordinator) if entry.kind == "settled")
    assert settled.body["report"]["filter"] == 1e-4


def test_a_round_that_nobody_answered_is_free(coordinator: Coordinator, clock: FakeClock) -> None:
    collecting(coordinator)
    clock.sleep(600)
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "too-few-clients")
    assert kinds(coordinator) == ["opened", "reserved", "cancelled"]
    assert all(limit.spent in (0.0, None) for limit in views.read_budget(coordinator, "sepsis").limits)


def test_a_round_of_which_one_update_arrived_is_not(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = collecting(coordinator)
    hospitals[0].send(1, update())
    clock.sleep(600)
    work(coordinator)
    assert shown(coordinator).state == "abandoned"
    assert kinds(coordinator) == ["opened", "reserved", "charged-in-full"]
    with pytest.raises(Rejected, match="unknown-model"):
        views.locate_model(coordinator, "sepsis", 1)


@pytest.mark.quick("sqlite")
def test_nor_is_one_of_which_a_bad_update_arrived(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = collecting(coordinator)
    with pytest.raises(TensorError, match="not a safetensors file"):
        hospitals[0].send(1, b"some of it was seen")
    clock.sleep(600)
    work(coordinator)
    assert kinds(coordinator) == ["opened", "reserved", "charged-in-full"]


@pytest.mark.quick("sqlite")
def test_rounds_without_result_do_not_follow_each_other_at_full_speed(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    hospitals = collecting(coordinator)
    waits = []
    for number in (1, 2):
        for hospital in hospitals:
            hospital.refuse(number)
        work(coordinator)
        waited = 0.0
        while hospitals[0].assignment() is None:
            clock.sleep(0.5)
            waited += 0.5
            work(coordinator)
        waits.append(waited)
    assert waits == [1.0, 2.0]
    # The third for one reason pauses the study, and a person's word lets it go on at once.
    for hospital in hospitals:
        hospital.refuse(3)
    work(coordinator)
    clock.sleep(60)
    work(coordinator)
    assert hospitals[0].assignment() is None
    lifecycle.act(coordinator, "sepsis", "resume")
    work(coordinator)
    for hospital in hospitals:
        hospital.send(4, update())
    work(coordinator)
    assert shown(coordinator, 5).state == "collecting"


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


@pytest.mark.quick("sqlite-0-cancelled")
@pytest.mark.parametrize(("sent", "kind"), [(0, "cancelled"), (1, "charged-in-full")])
def test_a_stop_ends_the_round_and_keeps_its_charge(coordinator: Coordinator, sent: int, kind: str) -> None:
    hospitals = collecting(coordinator)
    for hospital in hospitals[:sent]:
        hospital.send(1, update())
    stopped = lifecycle.act(coordinator, "sepsis", "stop")
    assert (stopped.state, stopped.stop_reason) == ("finished", "stopped")
    assert kinds(coordinator) == ["opened", "reserved", kind, "finished"]
    assert shown(coordinator).state == "stopped"
    assert lifecycle.act(coordinator, "sepsis", "stop") == stopped
    with pytest.raises(Rejected, match="round-closed"):
        hospitals[2].send(1, update())
    work(coordinator)
    assert coordinator.blobs.folders("rounds/sepsis") == []
    statement = views.read_budget(coordinator, "sepsis")
    assert (statement.can_continue, statement.stop_reason) == (False, "stopped")


@pytest.mark.quick("sqlite")
def test_a_stop_between_charge_and_release_releases_nothing(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    worker = Worker(coordinator)
    assert worker.step()
    assert shown(coordinator).state == "settled"
    lifecycle.act(coordinator, "sepsis", "stop")
    while worker.step():
        pass
    assert kinds(coordinator) == ["opened", "reserved", "settled", "finished"]
    with pytest.raises(Rejected, match="unknown-model"):
        views.locate_model(coordinator, "sepsis", 1)


@pytest.mark.quick("sqlite")
def test_a_study_ends_when_its_budget_does_even_if_its_clients_are_gone(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, max_steps=1)
    for hospital in hospitals:
        hospital.send(1, update())
        enrolment.withdraw(coordinator, "sepsis", hospital.name)
    work(coordinator)
    assert lifecycle.show(coordinator, "sepsis").stop_reason == "max-steps-reached"


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


@pytest.mark.quick("sqlite")
def test_after_the_release_the_updates_are_gone_and_their_hashes_are_not(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    digests = [hospital.send(1, update(0.1 * i)).body.sha256 for i, hospital in enumerate(hospitals)]
    assert coordinator.blobs.has(update_of("sepsis", 1, "h0"), digests[0])
    work(coordinator)
    assert coordinator.blobs.folders("rounds/sepsis") == []
    assert [client.sha256 for client in shown(coordinator).clients or []] == digests
    assert views.show_round(coordinator, "sepsis", 1, with_clients=False).clients is None


@pytest.mark.quick("sqlite")
def test_an_update_that_got_lost_ends_its_round_and_keeps_the_charge(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    for hospital in hospitals:
        digest = hospital.send(1, update()).body.sha256
    coordinator.blobs.remove(update_of("sepsis", 1, "h2"), digest)
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "updates-lost")
    assert kinds(coordinator)[:3] == ["opened", "reserved", "charged-in-full"]


@pytest.mark.quick("sqlite")
def test_one_that_got_lost_after_the_charge_does_too(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    for hospital in hospitals:
        digest = hospital.send(1, update()).body.sha256
    worker = Worker(coordinator)
    worker.step()
    coordinator.blobs.remove(update_of("sepsis", 1, "h2"), digest)
    while worker.step():
        pass
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "updates-lost")
    assert kinds(coordinator)[:3] == ["opened", "reserved", "settled"]


@pytest.mark.quick("sqlite")
def test_an_aggregate_that_is_not_finite_is_never_released(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, training={"optimiser": {"name": "plain", "learning_rate": 1e40}})
    for hospital in hospitals:
        hospital.send(1, update(0.4))
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "not-finite")
    assert kinds(coordinator)[:3] == ["opened", "reserved", "settled"]
    assert views.locate_model(coordinator, "sepsis").info.version == 0


@pytest.mark.quick("sqlite")
def test_a_model_that_no_hospital_would_train_from_is_never_released(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, training={"optimiser": {"name": "plain", "learning_rate": 2.0**34}})
    for hospital in hospitals:
        hospital.send(1, update(0.4))
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "weights-out-of-bounds")
    assert kinds(coordinator)[:3] == ["opened", "reserved", "settled"]
    assert views.locate_model(coordinator, "sepsis").info.version == 0


@pytest.mark.quick("sqlite-adam")
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_an_optimiser_goes_on_from_release_to_release(coordinator: Coordinator, name: str) -> None:
    optimiser = {"name": name, "learning_rate": 0.5}
    hospitals = collecting(coordinator, training={"algorithm": "fedsgd", "optimiser": optimiser})
    for number in (1, 2, 3):
        for hospital in hospitals:
            hospital.send(number, update(0.4))
        work(coordinator)
    # A constant gradient of 3 · 0.4 / 4 = 0.3: heavy ball 0.3 · (1 + 1.9 + 2.71); Adam steps by its learning rate.
    expected = -0.5 * 0.3 * (1 + 1.9 + 2.71) if name == "momentum" else -0.5 * 3
    np.testing.assert_allclose(read_model(coordinator, "sepsis", 3)["weight"], expected, rtol=1e-5)
    # Of the states only the newest is kept.
    assert len(coordinator.blobs.hashes(optimisers_of("sepsis"))) == 1


@pytest.mark.quick("sqlite")
def test_evidence_of_a_public_study_is_written_down_when_it_ends(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, bayesian=True, disclosure="at-end", max_steps=2)
    for number in (1, 2):
        for i, hospital in enumerate(hospitals):
            hospital.send(number, update(0.0, log_moments=tuple(1e-5 * number * (i + 1) for _ in TERMS)))
        work(coordinator)
        settled = [entry.body["report"] for entry in ledger(coordinator) if entry.kind == "settled"]
        assert settled == [None] * number
    finished = ledger(coordinator)[-1]
    assert finished.kind == "finished"
    assert [report["filter"] for report in finished.body["report"]] == pytest.approx([3e-5, 6e-5])


@pytest.mark.quick("sqlite")
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


def test_a_model_cannot_be_replaced_and_a_study_cannot_start_without_one(coordinator: Coordinator) -> None:
    open_study(coordinator)
    put_model(coordinator, "sepsis")
    with pytest.raises(Rejected, match="frozen"):
        put_model(coordinator, "sepsis", {"other": np.ones(3, np.float32)})
    assert views.locate_model(coordinator, "sepsis", 0).open().read(0, 1 << 20) == encode(MODEL)
