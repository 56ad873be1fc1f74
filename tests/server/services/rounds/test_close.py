"""How collecting ends and what it costs; rounds that keep failing pause their study until a person resumes it."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from server.db.blobs import update_of
from server.db.leases import Lease, LeaseLost, acquire
from server.domain.errors import Rejected
from server.services import events, views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.rounds.close import close_round
from server.services.studies import enrolment, lifecycle
from server.worker import Worker
from study_protocol.wire.tensors import TensorError
from tests.factories.clear_rounds import TERMS, collecting, kinds, ledger, shown
from tests.factories.hospital_double import update
from tests.factories.studies import FakeClock, open_study, read_model, work


def silent_round(coordinator: Coordinator, clock: FakeClock) -> None:
    """One round in which nobody answers, and the pause behind it."""
    work(coordinator)
    clock.sleep(600)
    work(coordinator)
    clock.sleep(60)


def state_of(coordinator: Coordinator) -> tuple[str, str | None, int]:
    shown = lifecycle.show(coordinator, "sepsis")
    return shown.state, None if shown.pause_reason is None else shown.pause_reason.code, shown.rounds


@pytest.mark.quick("sqlite")
def test_three_rounds_abandoned_for_one_reason_pause_the_study(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    silent_round(coordinator, clock)
    silent_round(coordinator, clock)
    assert state_of(coordinator) == ("running", None, 2)
    silent_round(coordinator, clock)
    assert state_of(coordinator) == ("paused", "too-few-clients", 3)
    clock.sleep(86400)
    work(coordinator)
    assert state_of(coordinator) == ("paused", "too-few-clients", 3)


@pytest.mark.quick("sqlite")
def test_the_reason_names_the_setting_to_whoever_reads(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    for _ in range(3):
        silent_round(coordinator, clock)
    shown, stated = lifecycle.show(coordinator, "sepsis"), views.read_budget(coordinator, "sepsis")
    assert shown.pause_reason == stated.pause_reason
    assert shown.pause_reason is not None
    assert "schedule.min_clients" in shown.pause_reason.detail
    assert "resumes by itself" in shown.pause_reason.detail
    assert "until its lead resumes" not in shown.pause_reason.detail
    assert (stated.state, stated.can_continue) == ("paused", True)
    assert [event.kind for event in events.since(coordinator, "sepsis")][-1] == "study-paused"


@pytest.mark.quick("sqlite")
def test_the_pause_is_one_with_the_third_round(coordinator: Coordinator, clock: FakeClock) -> None:
    """Two workers: the second finds nothing to do, whatever it has seen before."""
    open_study(coordinator)
    for _ in range(2):
        silent_round(coordinator, clock)
    work(coordinator)
    other = Worker(coordinator)
    clock.sleep(600)
    work(coordinator)
    written = {event.at for event in events.since(coordinator, "sepsis")[-2:]}
    assert state_of(coordinator) == ("paused", "too-few-clients", 3)
    assert len(written) == 1
    clock.sleep(60)
    while other.step():
        pass
    assert state_of(coordinator)[2] == 3


@pytest.mark.slow
def test_resuming_counts_afresh(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    for _ in range(3):
        silent_round(coordinator, clock)
    assert lifecycle.act(coordinator, "sepsis", "resume").pause_reason is None
    for _ in range(2):
        silent_round(coordinator, clock)
    assert state_of(coordinator) == ("running", None, 5)
    silent_round(coordinator, clock)
    assert state_of(coordinator) == ("paused", "too-few-clients", 6)


@pytest.mark.quick("sqlite")
def test_a_release_in_between_counts_afresh(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_study(coordinator)
    for _ in range(2):
        silent_round(coordinator, clock)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(3, update(0.1))
    work(coordinator)
    for _ in range(2):
        silent_round(coordinator, clock)
    assert state_of(coordinator) == ("running", None, 5)


@pytest.mark.quick("sqlite")
def test_no_charge_is_lost_in_a_pause(coordinator: Coordinator, clock: FakeClock) -> None:
    """One hospital of two that are needed sends in each round: each is charged in full, also the third."""
    hospitals = open_study(coordinator)
    for number in (1, 2, 3):
        work(coordinator)
        hospitals[0].send(number, update(0.1))
        silent_round(coordinator, clock)
    assert state_of(coordinator)[:2] == ("paused", "too-few-clients")
    entries = ledger_page(coordinator, "sepsis").entries
    assert [entry.kind for entry in entries if entry.kind not in ("opened", "roster", "operated", "released")] == [
        "reserved", "charged-in-full",
    ] * 3  # fmt: skip
    replayed = replay(Entry.from_dict(entry.model_dump()) for entry in entries)
    assert replayed.charged_rounds == 3
    assert [limit.spent for limit in views.read_budget(coordinator, "sepsis").limits] == [
        limit["spent"] for limit in replayed.statements()
    ]


@pytest.mark.quick("sqlite")
def test_a_pause_by_hand_says_so_and_is_not_overwritten(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    for _ in range(2):
        silent_round(coordinator, clock)
    work(coordinator)
    paused = lifecycle.act(coordinator, "sepsis", "pause")
    since = paused.state_since
    clock.sleep(600)
    work(coordinator)
    shown = lifecycle.show(coordinator, "sepsis")
    assert shown.pause_reason is not None
    assert (shown.pause_reason.code, shown.state_since, shown.rounds) == ("operator", since, 3)


@pytest.mark.quick("sqlite")
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


@pytest.mark.quick("sqlite")
def test_a_silent_client_costs_the_reservation(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = collecting(coordinator, bayesian=True)
    for hospital in hospitals[:2]:
        hospital.send(1, update(0.1, log_moments=TERMS))
    clock.sleep(600)
    work(coordinator)
    settled = next(entry for entry in ledger(coordinator) if entry.kind == "settled")
    assert settled.body["report"] is None


@pytest.mark.quick("sqlite")
def test_a_refusal_costs_nothing_extra(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, bayesian=True)
    for hospital in hospitals[:2]:
        hospital.send(1, update(0.1, log_moments=TERMS))
    hospitals[2].refuse(1)
    work(coordinator)
    settled = next(entry for entry in ledger(coordinator) if entry.kind == "settled")
    assert settled.body["report"]["filter"] == 1e-4


@pytest.mark.quick("sqlite")
def test_a_round_that_nobody_answered_is_free(coordinator: Coordinator, clock: FakeClock) -> None:
    collecting(coordinator)
    clock.sleep(600)
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "too-few-clients")
    assert kinds(coordinator) == ["opened", "reserved", "cancelled"]
    assert all(limit.spent in (0.0, None) for limit in views.read_budget(coordinator, "sepsis").limits)


@pytest.mark.quick("sqlite")
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


@pytest.mark.slow
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
def test_a_study_ends_when_its_budget_does_even_if_its_clients_are_gone(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, max_steps=1)
    for hospital in hospitals:
        hospital.send(1, update())
        enrolment.withdraw(coordinator, "sepsis", hospital.name)
    work(coordinator)
    assert lifecycle.show(coordinator, "sepsis").stop_reason == "max-steps-reached"


@pytest.mark.quick("sqlite")
def test_an_update_that_got_lost_ends_its_round_and_keeps_the_charge(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    for hospital in hospitals:
        digest = hospital.send(1, update()).body.sha256
    coordinator.blobs.remove(update_of("sepsis", 1, "h2"), digest)
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "updates-lost")
    assert kinds(coordinator)[:3] == ["opened", "reserved", "charged-in-full"]


@pytest.mark.slow
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


def lease_of(coordinator: Coordinator) -> Lease:
    lease = coordinator.database.write("acquire-lease", lambda tx: acquire(tx, 1, "test", 60.0))
    assert lease is not None
    return lease


@pytest.mark.quick("sqlite")
def test_a_round_that_is_not_due_is_left_alone(coordinator: Coordinator) -> None:
    """Of two workers the second finds it closed, and whoever comes early finds it open."""
    hospitals = collecting(coordinator)
    lease = lease_of(coordinator)
    close_round(coordinator, lease, "sepsis", 1)
    assert (shown(coordinator).state, kinds(coordinator)) == ("collecting", ["opened", "reserved"])
    for hospital in hospitals:
        hospital.send(1, update())
    for _ in range(2):
        close_round(coordinator, lease, "sepsis", 1)
        assert (shown(coordinator).state, kinds(coordinator)) == ("settled", ["opened", "reserved", "settled"])


@pytest.mark.quick("sqlite")
def test_a_worker_that_was_overtaken_closes_nothing(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = collecting(coordinator)
    late = lease_of(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    clock.sleep(61.0)
    lease_of(coordinator)
    with pytest.raises(LeaseLost):
        close_round(coordinator, late, "sepsis", 1)
    assert (shown(coordinator).state, kinds(coordinator)) == ("collecting", ["opened", "reserved"])
