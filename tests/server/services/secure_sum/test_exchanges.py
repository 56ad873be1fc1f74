"""Masked rounds, on both databases, in which messages repeat, people come and go, and processes die."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from client_sdk.study.verifier import active_fingerprint
from server.domain import secure_sum_recovery as recovery
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.secure_sum import exchanges, lists
from server.services.studies import enrolment, lifecycle
from server.worker import Worker
from study_protocol.wire.tensors import UPDATE, encode
from tests.factories.databases import SQLITE_FIRST
from tests.factories.dying import Killed, dying_at
from tests.factories.hospital_double import Hospital, UseCases
from tests.factories.masked_rounds import (
    begin,
    kinds,
    participants_of,
    released_mean,
    round_of,
    run,
    updates,
)
from tests.factories.masked_studies import STEPS, MaskedHospital, body_of
from tests.factories.settings import MASKING, settings
from tests.factories.studies import FakeClock, open_study, work


@pytest.mark.quick("sqlite")
def test_a_message_is_taken_once_and_another_one_is_refused(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    turns[0].keys()
    turns[0].keys()
    with pytest.raises(Rejected) as refused:
        turns[0].shares()
    assert refused.value.code == "too-early"
    other = MaskedHospital(turns[0].owner.hospital, updates(0.5)).session(coordinator, settings(masked=True), 1)
    with pytest.raises(Rejected) as refused:
        other.keys()
    assert refused.value.code == "different-message"


@pytest.mark.quick("sqlite")
def test_a_refusal_lets_the_others_go_on_at_once(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    turns[0].owner.hospital.refuse(1)
    for step in STEPS:
        for turn in turns[1:]:
            turn.take(step)
        work(coordinator)
    assert round_of(coordinator).state == "released"
    assert released_mean(coordinator) == pytest.approx(sum(range(2, 7)) / 64, abs=1e-4)


@pytest.mark.quick("sqlite")
def test_whoever_comes_back_after_its_vectors_froze_is_asked_until_it_has_replied(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    turns = begin(coordinator, settings(masked=True))
    hospital = turns[0].owner.hospital
    for step in STEPS[:3]:
        assert hospital.assignment() is not None
        for turn in turns:
            turn.take(step)
    for step in ("consistency", "unmask"):
        given = hospital.assignment()
        assert given is not None, f"killed before {step} and started again"
        assert given.assignment.round == 1
        # Three of the six are gone for good: without this hospital the session would wait in vain.
        for turn in (*turns[4:], turns[3], turns[0]):
            turn.take(step)
    assert hospital.assignment() is None
    work(coordinator)
    assert round_of(coordinator).state == "released"


@pytest.mark.quick("sqlite")
def test_whoever_left_is_not_asked_again(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:3]:
        for turn in turns:
            turn.take(step)
    exchanges.leave(coordinator, "sepsis", 1, turns[0].name)
    assert turns[0].owner.hospital.assignment() is None
    assert turns[1].owner.hospital.assignment() is not None


@pytest.mark.slow
def test_a_no_after_the_vectors_are_in_is_not_asked_again(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:3]:
        for turn in turns:
            turn.take(step)
    hospital = turns[0].owner.hospital
    with pytest.raises(Rejected) as refused:
        hospital.refuse(1)
    assert refused.value.code == "different-update"
    assert hospital.assignment() is None
    for step in STEPS[3:]:
        for turn in turns[1:]:
            turn.take(step)
    work(coordinator)
    assert released_mean(coordinator) == pytest.approx(sum(range(1, 7)) / 64, abs=1e-4)


@pytest.mark.slow
def test_an_update_in_the_clear_does_not_end_the_asking_for_vectors(coordinator: Coordinator, clock: FakeClock) -> None:
    chosen = settings(masked=True, bayesian=True, masking={**MASKING, "mask_updates": False})
    turns = begin(coordinator, chosen, reported=(0.5, 0.1, 0.2, 0.3, 0.4))
    for step in STEPS[:2]:
        for turn in turns:
            turn.take(step)
    hospital = turns[0].owner.hospital
    hospital.send(1, encode({UPDATE + name: array for name, array in updates(1 / 64).items()}))
    assert hospital.assignment() is not None, "killed between its update and its vectors"
    for step in STEPS[2:]:
        for turn in turns:
            turn.take(step)
    assert hospital.assignment() is None


def comes(coordinator: Coordinator) -> None:
    Hospital(UseCases(coordinator), "sepsis", "h9").enrol()


def goes(coordinator: Coordinator) -> None:
    enrolment.revoke(coordinator, "sepsis", "h5")


@pytest.mark.slow
@pytest.mark.parametrize("change", [comes, goes])
@pytest.mark.parametrize("step", ["keys", "masked", "unmask"])
def test_a_roster_that_changes_meanwhile_disturbs_nobody(
    coordinator: Coordinator, clock: FakeClock, step: str, change: Callable[[Coordinator], None]
) -> None:
    chosen = settings(masked=True)
    turns = begin(coordinator, chosen)
    start = clock.seconds
    for each in STEPS:
        if lists.read_session(coordinator, "sepsis", 1)[1].phase != each:
            # Whoever is missing has held everybody up.
            clock.seconds = max(clock.seconds, start + 721.0)
            work(coordinator)
        if each == step:
            turns[0].take(each)
            change(coordinator)
        # Everybody is killed and started again before every step, and is shown what the assignment names.
        for turn in (turn.owner.session(coordinator, chosen, 1) for turn in turns):
            if turn.name == "h5" and change is goes and STEPS.index(each) >= STEPS.index(step):
                continue
            given = turn.owner.hospital.assignment()
            if given is not None:
                shown = views.roster(coordinator, "sepsis", 1)
                assert given.assignment.roster_sha256 == shown.fingerprint == active_fingerprint(shown)
            turn.take(each)
        work(coordinator)
    assert round_of(coordinator).state == "released"
    names = {member.client for member in views.roster(coordinator, "sepsis", 2).members if member.state == "active"}
    then = [f"h{i}" for i in range(5)] if change is goes else [*(turn.name for turn in turns), "h9"]
    assert participants_of(coordinator, 2) == names == set(then)


@pytest.mark.quick("sqlite")
def test_wrong_octets_are_not_kept(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:2]:
        for turn in turns:
            turn.take(step)
    with pytest.raises(Rejected) as refused:
        turns[0].send_octets(turns[0].upload().manifest, bytes(len(body_of(turns[0].upload()))))
    assert refused.value.code == "different-message"
    with pytest.raises(Rejected) as refused:
        turns[0].send_octets(turns[0].upload().manifest, body_of(turns[0].upload())[:-1])
    assert refused.value.code == "invalid-request"
    turns[0].take("masked")


@pytest.mark.quick("sqlite")
def test_a_stop_in_the_middle_is_free_until_something_may_be_open(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:3]:
        for turn in turns:
            turn.take(step)
    lifecycle.act(coordinator, "sepsis", "stop")
    assert kinds(coordinator) == ["reserved", "cancelled"]
    # And stays free: nobody can be brought to open it now.
    for step in STEPS[3:]:
        for turn in turns:
            with pytest.raises(Rejected, match="stopped"):
                turn.take(step)
    work(coordinator)
    assert lists.read_session(coordinator, "sepsis", 1)[1].failure == "stopped"
    assert not any(turn.client.released for turn in turns)


@pytest.mark.slow
def test_a_worker_that_lost_its_lease_harms_no_sum(
    coordinator: Coordinator, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:4]:
        for turn in turns:
            turn.take(step)
    work(coordinator)
    for turn in turns:
        turn.take("unmask")
    late, quick = Worker(coordinator, owner="late"), Worker(coordinator, owner="quick")
    recover, calls = recovery.recover, count()

    def stalls(session):
        # A paused process: its lease runs out, another worker sums, and then it goes on.
        found = recover(session)
        if next(calls) == 0:
            clock.seconds += 60.0
            quick.step()
        return found

    monkeypatch.setattr(recovery, "recover", stalls)
    late.step()
    clock.seconds += 60.0
    work(coordinator)
    assert round_of(coordinator).state == "released"
    assert kinds(coordinator) == ["reserved", "settled"]


@pytest.mark.slow
def test_clear_updates_count_whoever_sent_one(coordinator: Coordinator, clock: FakeClock) -> None:
    chosen = settings(masked=True, bayesian=True, masking={**MASKING, "mask_updates": False})
    turns = begin(coordinator, chosen, reported=(0.5, 0.1, 0.2, 0.3, 0.4))
    for i, turn in enumerate(turns[1:], start=2):
        turn.owner.hospital.send(1, encode({UPDATE + name: array for name, array in updates(i / 64).items()}))
    run(coordinator, clock, turns, {})
    # The first one's log-moments are in the sum, its update never came: the others' round is not lost.
    assert round_of(coordinator).state == "released"
    assert kinds(coordinator) == ["reserved", "settled"]
    assert released_mean(coordinator) == pytest.approx(sum(range(2, 7)) / 64, abs=1e-4)


@pytest.mark.quick("sqlite")
def test_too_small_a_cohort_never_begins(coordinator: Coordinator, clock: FakeClock) -> None:
    chosen = settings(masked=True)
    open_study(coordinator, clients=4, settings=chosen)
    work(coordinator)
    assert lists.read_session(coordinator, "sepsis", 1)[1].phase == "keys"


WORKER = [
    f"worker.{side}-{point}" for point in ("sum", "sum-files", "settle", "release") for side in ("before", "after")
]
API = [
    *(f"api.{side}-session-message" for side in ("before", "after")),
    *("api.before-octets-file", "api.after-octets-file", "api.after-octets-commit"),
]


def again_after(clock: FakeClock, name: str, step: Callable[[], None]) -> bool:
    """Whether the step died at the failpoint; then it was taken again, as after a restart."""
    with dying_at(name) as death, suppress(Killed):
        step()
    if death.hit:
        # The dead worker's lease runs out first.
        clock.seconds += 6.0
        step()
    return death.hit


@pytest.mark.quick("api.before-octets-file-sqlite")
@SQLITE_FIRST
@pytest.mark.parametrize("name", [*WORKER, *API])
def test_killed_anywhere_the_round_ends_with_the_same_ledger_and_the_same_sum(
    coordinator: Coordinator, clock: FakeClock, name: str
) -> None:
    turns = begin(coordinator, settings(masked=True, max_steps=1))
    hits = 0
    for step in STEPS:
        for turn in turns:
            hits += again_after(clock, name, lambda turn=turn, step=step: turn.take(step))
        hits += again_after(clock, name, lambda: work(coordinator))
    assert hits, "the failpoint was never passed"
    assert round_of(coordinator).state == "released"
    assert kinds(coordinator) == ["reserved", "settled"]
    assert released_mean(coordinator) == pytest.approx(sum(range(1, 7)) / 64, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worker.before-advance", "worker.after-advance"])
def test_killed_while_a_deadline_passes(coordinator: Coordinator, clock: FakeClock, name: str) -> None:
    turns = begin(coordinator, settings(masked=True, max_steps=1))
    for turn in turns[1:]:
        turn.keys()
    clock.seconds += 61.0
    assert again_after(clock, name, lambda: work(coordinator))
    run(coordinator, clock, turns[1:], {})
    assert round_of(coordinator).state == "released"
    assert kinds(coordinator) == ["reserved", "settled"]
