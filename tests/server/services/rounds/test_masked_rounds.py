"""Masked rounds through the use cases, on both databases: every drop-out, what is summed, what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count

import numpy as np
import pytest

from accounting.budget.ledger import Entry
from client_sdk.protocol.wire.tensors import UPDATE, Array, encode
from client_sdk.study.verifier import active_fingerprint
from server.db.ledger_store import entries
from server.db.rows import find_round, find_study, participants
from server.db.session import Transaction
from server.domain import secure_sum_recovery as recovery
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.secure_sum import exchanges
from server.services.studies import enrolment, lifecycle
from server.worker import Worker
from tests.factories.dying import Killed, dying_at
from tests.factories.hospital_double import MODEL, Hospital, UseCases
from tests.factories.masked_studies import STEPS, MaskedHospital, Turn
from tests.factories.settings import MASKING, settings
from tests.factories.studies import FakeClock, open_study, read_model, work

CLIENTS = 6  # t = 4, at least 4 survivors: two may go


def updates(value: float) -> dict[str, Array]:
    return {name: np.full_like(array, value) for name, array in MODEL.items()}


def begin(coordinator: Coordinator, settings, clients: int = CLIENTS, **fields) -> list[Turn]:
    hospitals: list[Hospital] = open_study(coordinator, clients=clients, settings=settings)
    work(coordinator)
    return [
        MaskedHospital(hospital, updates((i + 1) / 64), **fields).session(coordinator, settings, 1)
        for i, hospital in enumerate(hospitals)
    ]


NEEDS = {"keys": "keys", "shares": "shares", "masked": "masked", "octets": "masked"}
PASSED = {"keys": 61.0, "shares": 121.0, "octets": 721.0}


def run(coordinator: Coordinator, clock: FakeClock, turns: list[Turn], lost: Mapping[str, set[str]]) -> None:
    """Every step in order; who is lost falls silent before it, and then deadlines pass."""
    silent: set[str] = set()
    start = clock.seconds
    for step in STEPS:
        silent |= lost.get(step, set())
        if exchanges.read_session(coordinator, "sepsis", 1).phase != NEEDS.get(step, step):
            continue
        for turn in turns:
            if turn.name not in silent:
                turn.take(step)
        if silent and step in PASSED:
            clock.seconds = start + PASSED[step]
        work(coordinator)


def round_of(coordinator: Coordinator, number: int = 1):
    return coordinator.database.read("look", lambda tx: find_round(tx, find_study(tx, "sepsis").id, number))


def participants_of(coordinator: Coordinator, number: int):
    def names(tx: Transaction) -> set[str]:
        return {row.client for row in participants(tx, find_round(tx, find_study(tx, "sepsis").id, number))}

    return coordinator.database.read("look", names)


def ledger(coordinator: Coordinator) -> list[Entry]:
    return coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "sepsis").id, 0, 100))


def kinds(coordinator: Coordinator) -> list[str]:
    return [entry.kind for entry in ledger(coordinator) if entry.round == 1]


def released_mean(coordinator: Coordinator) -> float:
    """Plain server optimiser against a gradient: w = 0 − mean."""
    model = read_model(coordinator, "sepsis", 1)
    values = np.concatenate([array.reshape(-1) for array in model.values()])
    assert np.ptp(values) < 1e-6
    return -float(values[0]) * 5.0


def test_everybody_stays_and_the_sum_is_released(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    run(coordinator, clock, turns, {})
    assert round_of(coordinator).state == "released"
    assert kinds(coordinator) == ["reserved", "settled"]
    assert released_mean(coordinator) == pytest.approx(sum(range(1, 7)) / 64, abs=1e-4)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("gone", [1, 2])
def test_whoever_is_lost_at_any_step_the_others_sum_is_right(
    coordinator: Coordinator, clock: FakeClock, step: str, gone: int
) -> None:
    turns = begin(coordinator, settings(masked=True))
    lost = {turn.name for turn in turns[:gone]}
    run(coordinator, clock, turns, {step: lost})
    assert round_of(coordinator).state == "released"
    assert kinds(coordinator) == ["reserved", "settled"]
    # Who had delivered its vectors counts; who had not does not.
    counted = range(1, 7) if step in ("consistency", "unmask") else range(1 + gone, 7)
    assert released_mean(coordinator) == pytest.approx(sum(counted) / 64, abs=1e-4)


@pytest.mark.parametrize("step", STEPS)
def test_one_more_than_can_be_borne_ends_as_specified(coordinator: Coordinator, clock: FakeClock, step: str) -> None:
    turns = begin(coordinator, settings(masked=True))
    run(coordinator, clock, turns, {step: {turn.name for turn in turns[:3]}})
    if step in ("consistency", "unmask"):
        assert round_of(coordinator).state == "collecting", "a session short of replies waits"
        clock.seconds += 5000.0
        work(coordinator)
    row = round_of(coordinator)
    assert row.state == "abandoned"
    # Free as long as nobody can have opened anything.
    assert kinds(coordinator) == ["reserved", "charged-in-full" if step == "unmask" else "cancelled"]
    assert row.reason in ("too-few-keys", "too-few-shares", "too-few-survivors", "expired")


def test_the_coordinator_never_stores_what_a_hospital_summed(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True, bayesian=True), reported=(0.5, 0.1, 0.2, 0.3, 0.4))
    for step in STEPS[:4]:
        for turn in turns:
            turn.take(step)
    clear = turns[0].words()
    kept = [path.read_bytes() for path in coordinator.blobs._root.rglob("*") if path.is_file()]  # type: ignore[attr-defined]
    octets = [data for data in kept if len(data) > 40_000 or len(data) < 200]
    assert octets
    for data in octets:
        for words in clear.values():
            assert words.tobytes()[:64] not in data


def test_terms_arrive_as_an_upper_bound_on_the_largest(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True, bayesian=True))
    for i, turn in enumerate(turns):
        turn.owner.reported = tuple(0.001 * (i + 1) * k for k in (1.0, 0.2, 0.4, 0.6, 0.8))
    run(coordinator, clock, turns, {})
    (settled,) = [entry for entry in ledger(coordinator) if entry.kind == "settled"]
    report = settled.body["report"]
    assert report["complete"] is True
    for reported, largest in zip([report["filter"], *report["moments"]], turns[-1].owner.reported, strict=True):
        assert largest <= reported <= largest * 1.019 + 1e-4


def test_a_clients_level_histogram_is_the_sum_of_one_count_each(coordinator: Coordinator, clock: FakeClock) -> None:
    chosen = settings("client", masked=True, bayesian=True, noise_multiplier=1.0, clip_norm=1.0)
    turns = begin(coordinator, chosen)
    for i, turn in enumerate(turns):
        turn.owner.distance = (i + 1) / 10
    run(coordinator, clock, turns, {"masked": {turns[0].name}})
    (settled,) = [entry for entry in ledger(coordinator) if entry.kind == "settled"]
    counts = settled.body["report"]["counts"]
    bins = {math.ceil((i + 1) / 10 * 64) - 1 for i in range(1, 6)}
    assert {i for i, count in enumerate(counts[:-1]) if count} == bins
    assert (sum(counts), counts[-1]) == (6, 1), "who is missing fills the top bin"
    assert np.isfinite(read_model(coordinator, "sepsis", 1)["weight"]).all()


def test_sequential_tells_the_papers_costs_and_n_beside_the_sound_charge(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    turns = begin(
        coordinator, settings("sequential", masked=True, bayesian=True), reported=(0.01, 0.001, 0.002, 0.003, 0.004)
    )
    run(coordinator, clock, turns, {})
    (settled,) = [entry for entry in ledger(coordinator) if entry.kind == "settled"]
    assert settled.body["report"]["records"] == pytest.approx(600, abs=1e-3)
    assert settled.body["report"]["papers"] == pytest.approx([0.006] * 4, abs=1e-6)
    names = {
        report["name"]
        for limit in views.read_budget(coordinator, "sepsis").limits
        for report in limit.model_dump()["reports"]
    }
    assert "sequential, as in the papers" in names


def test_joint_settles_both_levels(coordinator: Coordinator, clock: FakeClock) -> None:
    limits = [
        {
            "level": level,
            "definition": definition,
            "epsilon": 60.0,
            "delta": 1e-5,
            "estimator_failure_probability": 1e-6 if definition == "bayesian" else None,
        }
        for level in ("instance", "client")
        for definition in ("classical", "bayesian")
    ]
    chosen = settings("joint", masked=True, bayesian=True, limits=limits, client_clip_norm=2.0)
    turns = begin(coordinator, chosen, reported=(0.01, 0.001, 0.002, 0.003, 0.004), distance=0.5)
    run(coordinator, clock, turns, {})
    (settled,) = [entry for entry in ledger(coordinator) if entry.kind == "settled"]
    assert sum(settled.body["report"]["clients"]["counts"]) == 6
    assert 0.01 <= settled.body["report"]["records"]["filter"] <= 0.0103
    spent = {(limit.level, limit.definition): limit.spent for limit in views.read_budget(coordinator, "sepsis").limits}
    assert len(spent) == 4
    assert all(value is not None and value > 0 for value in spent.values())


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


def test_a_refusal_lets_the_others_go_on_at_once(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    turns[0].owner.hospital.refuse(1)
    for step in STEPS:
        for turn in turns[1:]:
            turn.take(step)
        work(coordinator)
    assert round_of(coordinator).state == "released"
    assert released_mean(coordinator) == pytest.approx(sum(range(2, 7)) / 64, abs=1e-4)


def test_whoever_comes_back_after_its_vectors_froze_is_asked_until_it_has_replied(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    turns = begin(coordinator, settings(masked=True))
    hospital = turns[0].owner.hospital
    for step in STEPS[:4]:
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


def test_whoever_left_is_not_asked_again(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:4]:
        for turn in turns:
            turn.take(step)
    exchanges.leave(coordinator, "sepsis", 1, turns[0].name)
    assert turns[0].owner.hospital.assignment() is None
    assert turns[1].owner.hospital.assignment() is not None


def test_a_no_after_the_vectors_are_in_is_not_asked_again(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:4]:
        for turn in turns:
            turn.take(step)
    hospital = turns[0].owner.hospital
    with pytest.raises(Rejected) as refused:
        hospital.refuse(1)
    assert refused.value.code == "different-update"
    assert hospital.assignment() is None
    for step in STEPS[4:]:
        for turn in turns[1:]:
            turn.take(step)
    work(coordinator)
    assert released_mean(coordinator) == pytest.approx(sum(range(1, 7)) / 64, abs=1e-4)


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


@pytest.mark.parametrize("change", [comes, goes])
@pytest.mark.parametrize("step", ["keys", "octets", "unmask"])
def test_a_roster_that_changes_meanwhile_disturbs_nobody(
    coordinator: Coordinator, clock: FakeClock, step: str, change: Callable[[Coordinator], None]
) -> None:
    chosen = settings(masked=True)
    turns = begin(coordinator, chosen)
    start = clock.seconds
    for each in STEPS:
        if exchanges.read_session(coordinator, "sepsis", 1).phase != NEEDS.get(each, each):
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


def test_wrong_octets_are_not_kept(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:3]:
        for turn in turns:
            turn.take(step)
    with pytest.raises(Rejected) as refused:
        turns[0].send_octets("update", b"\x00" * 16)
    assert refused.value.code == "different-message"


def test_a_stop_in_the_middle_is_free_until_something_may_be_open(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:4]:
        for turn in turns:
            turn.take(step)
    lifecycle.act(coordinator, "sepsis", "stop")
    assert kinds(coordinator) == ["reserved", "cancelled"]
    # And stays free: nobody can be brought to open it now.
    for step in STEPS[4:]:
        for turn in turns:
            with pytest.raises(Rejected, match="stopped"):
                turn.take(step)
    work(coordinator)
    assert exchanges.read_session(coordinator, "sepsis", 1).failure == "stopped"
    assert not any(turn.client.released for turn in turns)


def test_a_worker_that_lost_its_lease_harms_no_sum(
    coordinator: Coordinator, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS[:5]:
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


def test_too_small_a_cohort_never_begins(coordinator: Coordinator, clock: FakeClock) -> None:
    chosen = settings(masked=True)
    open_study(coordinator, clients=4, settings=chosen)
    work(coordinator)
    assert exchanges.read_session(coordinator, "sepsis", 1).phase == "keys"


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
