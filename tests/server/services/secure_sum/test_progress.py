"""Masked rounds through the use cases, on both databases: every drop-out, what is summed, what it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from server.db.blobs import masked_of
from server.db.leases import Lease, acquire
from server.db.tables import SessionRow
from server.services import views
from server.services.coordinator import Coordinator
from server.services.secure_sum.progress import advance_session, open_sums
from tests.factories.masked_rounds import (
    begin,
    kinds,
    ledger,
    released_mean,
    round_of,
    run,
)
from tests.factories.masked_studies import STEPS
from tests.factories.settings import settings
from tests.factories.studies import FakeClock, read_model, work


@pytest.mark.slow
def test_everybody_stays_and_the_sum_is_released(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    run(coordinator, clock, turns, {})
    assert round_of(coordinator).state == "released"
    assert kinds(coordinator) == ["reserved", "settled"]
    assert released_mean(coordinator) == pytest.approx(sum(range(1, 7)) / 64, abs=1e-4)


@pytest.mark.quick("sqlite-1-unmask")
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


@pytest.mark.quick("sqlite-keys", "sqlite-unmask")
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


@pytest.mark.quick("sqlite")
def test_the_coordinator_never_stores_what_a_hospital_summed(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True, bayesian=True), reported=(0.5, 0.1, 0.2, 0.3, 0.4))
    for step in STEPS[:4]:
        for turn in turns:
            turn.take(step)
    clear = turns[0].words()
    kept = [path.read_bytes() for path in coordinator.blobs.root.rglob("*") if path.is_file()]  # type: ignore[attr-defined]
    octets = [data for data in kept if len(data) > 40_000 or len(data) < 200]
    assert octets
    for data in octets:
        for words in clear.values():
            assert words.tobytes()[:64] not in data


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.quick("sqlite")
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


@pytest.mark.slow
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


def lease_of(coordinator: Coordinator) -> Lease:
    lease = coordinator.database.write("acquire-lease", lambda tx: acquire(tx, 1, "test", 60.0))
    assert lease is not None
    return lease


def session_of(coordinator: Coordinator) -> SessionRow:
    return coordinator.database.read("look", lambda tx: tx.session.get_one(SessionRow, (1, 1)))


@pytest.mark.quick("sqlite")
def test_before_enough_have_replied_no_sum_is_tried(coordinator: Coordinator) -> None:
    turns = begin(coordinator, settings(masked=True))
    lease = lease_of(coordinator)
    open_sums(coordinator, lease, "sepsis", 1, lambda: None)
    advance_session(coordinator, lease, "sepsis", 1)
    assert session_of(coordinator).phase == "keys"
    for step in STEPS[:4]:
        for turn in turns:
            turn.take(step)
    # Three replies are one too few: the session waits, and says how many it has tried with.
    for turn in turns[:3]:
        turn.unmask()
    open_sums(coordinator, lease, "sepsis", 1, lambda: None)
    assert (session_of(coordinator).phase, session_of(coordinator).tried) == ("unmask", 3)
    turns[3].unmask()
    open_sums(coordinator, lease, "sepsis", 1, lambda: None)
    assert session_of(coordinator).phase == "summed"


@pytest.mark.quick("sqlite")
def test_a_masked_vector_that_is_gone_ends_the_session(coordinator: Coordinator, clock: FakeClock) -> None:
    turns = begin(coordinator, settings(masked=True))
    for step in STEPS:
        for turn in turns:
            turn.take(step)
    place = masked_of("sepsis", 1, turns[0].name)
    for sha256 in coordinator.blobs.hashes(place):
        coordinator.blobs.remove(place, sha256)
    open_sums(coordinator, lease_of(coordinator), "sepsis", 1, lambda: None)
    assert (session_of(coordinator).phase, session_of(coordinator).failure) == ("failed", "canary-mismatch")
    # Whatever was opened of it stays charged, by the next worker.
    clock.sleep(61.0)
    work(coordinator)
    assert (round_of(coordinator).state, kinds(coordinator)) == ("abandoned", ["reserved", "charged-in-full"])
