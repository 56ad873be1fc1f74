"""Whole sessions on a ring: exact sums whoever is lost; survivors that colluders could part, refused on both sides."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.secure_sum.refusals import SurvivorsRefused
from server.domain import secure_sum as domain
from server.domain import secure_sum_recovery as recovery
from server.domain.secure_sum_session import changed
from study_protocol.secure_sum.messages import ConsistencyList, SurvivorList
from tests.factories.secure_sum import DEADLINES, NOW, STEPS, Run, World, small_counts


def ring(clients: int, neighbours: int, colluders: int = 1, tag: str = "") -> Run:
    world = World(clients, colluders, neighbours=neighbours, tag=tag)
    return Run(world, small_counts(world))


def total_of(run: Run) -> list[int]:
    names = run.session.survivors
    return [sum(int(run.words[name]["terms"][i]) for name in names) for i in range(3)]


def around(run: Run) -> list[str]:
    """Members of U1 in the order of the ring."""
    graph = run.session.graph
    return [graph.members[place] for place in graph.ring]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_sum_of_any_ring_is_exact_or_never_opened(data) -> None:
    colluders = data.draw(st.integers(1, 3), label="colluders")
    neighbours = 2 * data.draw(st.integers(colluders // 2 + 1, 5), label="half of the neighbours")
    clients = data.draw(st.integers(max(neighbours, colluders + 3), 15), label="clients")
    run = ring(clients, neighbours, colluders)
    silent = data.draw(st.lists(st.sampled_from(run.world.names), max_size=4, unique=True), label="silent")
    run.lost = {}
    for name in silent:
        run.lost.setdefault(data.draw(st.sampled_from(STEPS), label="step"), set()).add(name)
    run.finish()
    session, parameters = run.session, run.session.parameters
    if session.phase == "failed":
        assert silent
        assert session.failure in {"too-few-keys", "too-few-shares", "too-few-survivors", "too-sparse-survivors"}
        assert not session.unmasks
        return
    # Counted one by one, of every owner, who of its holders has replied.
    replied = {o: sum(h in session.unmasks for h in session.graph.holders(o)) for o in session.sharers}
    openable = all(count >= parameters.threshold for count in replied.values())
    assert domain.is_openable(session) == openable
    if session.phase == "unmask" and openable:
        totals = run.totals()
        assert isinstance(totals, dict), totals
        assert totals["terms"][:3].tolist() == total_of(run)
        assert set(session.survivors) == set(run.world.names) - set().union(
            *(run.lost.get(step, set()) for step in ("keys", "shares", "masked"))
        )
    else:
        # A reply that was counted on never came: the session waits, and nothing can be rebuilt.
        assert silent
        assert not isinstance(recovery.recover(session), recovery.Recovered)


@pytest.mark.quick("12-6-2")
@pytest.mark.parametrize(("clients", "neighbours", "colluders"), [(12, 6, 2), (40, 12, 4)])
def test_shares_and_masks_stay_among_neighbours(clients, neighbours, colluders) -> None:
    run = ring(clients, neighbours, colluders).upto("masked")
    run.lost = {"masked": {"h003"}}
    run.masked()
    run.consistency()
    run.unmask()
    session = run.session
    near = set(session.graph.neighbours("h003"))
    assert len(near) == neighbours
    for name in session.survivors:
        stored = run.world.hospitals[name].session
        assert len(session.shares[name].slots) == 88 * neighbours
        opened = session.unmasks[name].shares
        assert len(opened) == 36 * (neighbours + 1)
        assert ("h003" in session.peers(name)) == (name in near)
        assert stored.secrets is None
    recovered = recovery.recover(session)
    assert isinstance(recovered, recovery.Recovered)
    keys = recovery.mask_keys_of(session, recovered, session.parameters.vectors[0])
    # One self mask for each survivor, one pair mask for each neighbour of who was lost.
    assert len(keys.add) + len(keys.subtract) == len(session.survivors) + neighbours
    totals = run.totals()
    assert isinstance(totals, dict)
    assert totals["terms"][:3].tolist() == total_of(run)


def loose(tag: str = "") -> tuple[Run, list[str]]:
    """A ring of 20 up to the masked vectors, and three of four neighbours in a row: enough of every neighbourhood
    would be left to open the sum, but two colluders, one in each of two such rows, could part it.
    """
    run = ring(20, 8, 2, tag).upto("masked")
    return run, around(run)[5:8]


def test_survivors_that_could_be_parted_end_the_session() -> None:
    run, gone = loose()
    run.lost = {"masked": set(gone)}
    run.masked()
    session = run.session
    assert (session.phase, session.failure) == ("failed", "too-sparse-survivors")
    assert len(session.manifests) > session.parameters.min_clients
    present = session.graph.mask(session.manifests)
    # Not for want of shares.
    assert session.graph.can_open(session.shared, present, session.parameters.threshold)
    assert not session.unmasks


def test_survivors_that_could_be_parted_are_refused_by_a_hospital() -> None:
    """Whatever the coordinator thinks of them."""
    run, gone = loose()
    run.masked()
    full = views_of(run)
    me = next(name for name in run.world.names if name not in gone)
    for lost, refused in ((gone, True), (gone[:2], False)):
        entries = tuple(entry for entry in full if entry.client not in lost)
        client = run.hospital(me)
        if refused:
            with pytest.raises(SurvivorsRefused, match="2 colluders could split the sum") as said:
                client.confirm(SurvivorList(entries=entries), NOW)
            assert said.value.code == "sparse-survivors"
            assert client.phase == "masked"
        else:
            assert client.confirm(SurvivorList(entries=entries), NOW)


def test_a_neighbourhoods_threshold_of_signatures_is_no_quorum() -> None:
    """t of nine would do to rebuild a secret; two lists of survivors could both have as many."""
    run = ring(20, 8, 1).upto("consistency")
    parameters = run.session.parameters
    assert (parameters.threshold, parameters.quorum) == (6, 11)
    said = [run.hospital(name).confirm(domain.survivor_list(run.session), NOW) for name in run.session.survivors]
    session = run.session
    for count, message in enumerate(said[:11], 1):
        assert session.phase == "consistency"
        assert isinstance(domain.consistency_list(session), domain.Declined)
        with pytest.raises(SurvivorsRefused, match=f"{count - 1} survivors signed this survivor set. A sum needs 11"):
            run.hospital("h000").unmask(ConsistencyList(entries=tuple(said[: count - 1])), NOW)
        admitted = domain.admit_consistency(session, message)
        assert isinstance(admitted, domain.Session)
        session = domain.advance(admitted, NOW)
    assert session.phase == "unmask"
    assert run.hospital("h000").unmask(domain.consistency_list(session), NOW)


def views_of(run: Run) -> tuple[domain.Manifest, ...]:
    shown = domain.survivor_list(run.session)
    assert isinstance(shown, SurvivorList)
    return shown.entries


def test_a_neighbourhood_that_cannot_open_is_refused_on_both_sides() -> None:
    run = ring(20, 8, 1).upto("masked")
    # (8 - 1) // 2 = 3 of a neighbourhood of nine may be lost.
    gone = {around(run)[place] for place in (3, 5, 8, 10)}
    run.masked()
    kept = SurvivorList(entries=tuple(entry for entry in views_of(run) if entry.client not in gone))
    me = next(name for name in run.world.names if name not in gone)
    with pytest.raises(SurvivorsRefused, match="fewer than 6 are left of a client and its neighbours") as said:
        run.hospital(me).confirm(kept, NOW)
    assert said.value.code == "sparse-survivors"

    again = ring(20, 8, 1, "again").upto("masked")
    again.lost = {"masked": {around(again)[place] for place in (3, 5, 8, 10)}}
    again.masked()
    assert again.session.failure == "too-sparse-survivors"


def test_a_neighbourhood_without_enough_sharers_ends_the_session_before_training() -> None:
    run = ring(20, 8, 1).upto("shares")
    run.lost = {"shares": {around(run)[place] for place in (3, 5, 8, 10)}}
    run.shares()
    assert run.session.failure == "too-few-shares"


def test_a_round_of_no_more_than_a_neighbourhood_is_complete() -> None:
    run = ring(7, 6).finish()
    assert run.session.graph.is_complete
    assert (run.session.parameters.neighbours, run.session.parameters.threshold) == (6, 5)
    # So is one of which so many have come.
    fewer = ring(8, 6)
    fewer.lost = {"keys": {"h007"}}
    fewer.finish()
    assert fewer.session.parameters.neighbours == 6
    assert fewer.session.graph.is_complete
    totals = fewer.totals()
    assert isinstance(totals, dict)
    assert totals["terms"][:3].tolist() == total_of(fewer)


@pytest.mark.parametrize("step", ["consistency", "unmask"])
def test_replies_are_awaited_while_every_neighbourhood_may_still_open(step) -> None:
    run = ring(20, 8, 1).upto(step)
    line = around(run)
    left = run.session
    for name in (line[3], line[5], line[8]):
        left = domain.advance(domain.leave(left, name), NOW)
        assert left.phase == step
    # Far away nobody misses it; nearby it is the fourth of nine.
    assert domain.advance(domain.leave(left, line[16]), NOW).phase == step
    assert domain.advance(domain.leave(left, line[6]), NOW).failure == "too-few-replies"


def test_what_is_counted_from_reply_to_reply_is_what_is_counted_at_once() -> None:
    run = ring(16, 6, 1).upto("unmask")
    dice, session = random.Random(3), run.session
    names = list(session.survivors)
    dice.shuffle(names)
    shown = domain.consistency_list(session)
    openable: list[bool] = []
    for name in names:
        admitted = domain.admit_unmask(session, run.hospital(name).unmask(shown, NOW))
        assert isinstance(admitted, domain.Session)
        session = admitted
        # As another process reads it, with nothing carried on.
        fresh = domain.Session(**{field: getattr(session, field) for field in domain.Session.__dataclass_fields__})
        assert domain.is_openable(session) == domain.is_openable(fresh)
        openable.append(domain.is_openable(session))
    assert openable[-1]
    assert openable == sorted(openable)
    assert 0 < openable.index(True) < len(openable) - 1
    assert domain.is_openable(changed(session, unmasks={})) is False


def test_wrong_shares_of_a_neighbour_are_worked_around() -> None:
    run = ring(20, 8, 1).finish()
    session, liar = run.session, "h004"
    wrong = bytes(35) + b"\x01"
    message = session.unmasks[liar]
    forged = message.model_copy(update={"shares": wrong * len(session.peers(liar))})
    found = recovery.recover(changed(session, unmasks={**session.unmasks, liar: forged}))
    honest = recovery.recover(session)
    assert isinstance(found, recovery.Recovered)
    assert isinstance(honest, recovery.Recovered)
    assert (found.seeds, found.suspects) == (honest.seeds, (liar,))


def test_the_last_deadline_opens_what_is_tied() -> None:
    run = ring(20, 8, 1).upto("masked")
    gone = {around(run)[place] for place in (3, 5, 8)}
    run.lost = {"masked": gone}
    run.masked()
    assert (run.session.phase, set(run.session.lost)) == ("consistency", gone)
    assert domain.advance(run.session, DEADLINES.masked) is run.session
    run.consistency()
    run.unmask()
    totals = run.totals()
    assert isinstance(totals, dict)
    assert totals["terms"][:3].tolist() == total_of(run)
