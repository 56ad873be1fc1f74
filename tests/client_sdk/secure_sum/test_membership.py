"""Members that come, leave or change their keys while a session runs: nobody else's part in it suffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from client_sdk.secure_sum.refusals import SurvivorsRefused
from client_sdk.secure_sum.session import SecureSumClient
from server.domain import secure_sum as views
from study_protocol.secure_sum.messages import ConsistencyList, SurvivorList
from study_protocol.secure_sum.shamir import SHARE_BYTES
from tests.factories.secure_sum import NOW, ROUND, STUDY, Run, World, admitted, domain, small_counts

ME, OTHER = "h001", "h004"
Roster = Mapping[str, Ed25519PublicKey]


def restarted(run: Run, roster: Roster) -> SecureSumClient:
    """This hospital again, which is shown this roster now."""
    mine = run.world.hospitals[ME]
    return SecureSumClient(replace(mine.party, roster=roster), STUDY, ROUND, mine.store, mine.randomness)


def gone(roster: Roster) -> Roster:
    return {name: key for name, key in roster.items() if name != OTHER}


def rotated(roster: Roster) -> Roster:
    return {**roster, OTHER: Ed25519PrivateKey.generate().public_key()}


@pytest.mark.parametrize("change", [gone, rotated])
def test_who_left_after_the_shares_stays_in_the_sum_of_a_hospital_that_restarts(
    change: Callable[[Roster], Roster],
) -> None:
    world = World(6)
    run = Run(world, small_counts(world)).upto("consistency")
    again = restarted(run, change(world.roster))
    run.session = admitted(domain.admit_consistency(run.session, again.confirm(views.survivor_list(run.session), NOW)))
    for name in run.session.survivors:
        if name != ME:
            message = run.hospital(name).confirm(views.survivor_list(run.session), NOW)
            run.session = admitted(domain.admit_consistency(run.session, message))
    run.session = domain.advance(run.session, NOW)
    opened = restarted(run, change(world.roster)).unmask(views.consistency_list(run.session), NOW)
    run.session = admitted(domain.admit_unmask(run.session, opened))
    assert len(opened.shares) == SHARE_BYTES * len(world.names)


def test_a_newcomer_is_no_survivor_of_a_session_that_began_without_it() -> None:
    world = World(6)
    run = Run(world, small_counts(world)).upto("consistency")
    key = Ed25519PrivateKey.generate()
    full = views.survivor_list(run.session).entries
    stranger = full[-1].model_copy(update={"client": "h006"})
    again = restarted(run, {**world.roster, "h006": key.public_key()})
    before = world.hospitals[ME].store.load(STUDY, ROUND)
    with pytest.raises(SurvivorsRefused, match="h006 did not share") as refused:
        again.confirm(SurvivorList(entries=(*full, stranger)), NOW)
    assert refused.value.code == "outside-cohort"
    assert world.hospitals[ME].store.load(STUDY, ROUND) == before


def test_a_signature_with_a_key_of_after_the_shares_does_not_count() -> None:
    world = World(6)
    run = Run(world, small_counts(world)).upto("unmask")
    key = Ed25519PrivateKey.generate()
    entries = views.consistency_list(run.session).entries
    forged = tuple(e.model_copy(update={"signature": key.sign(b"another statement")}) for e in entries[3:])
    again = restarted(run, {**world.roster, **{e.client: key.public_key() for e in forged}})
    with pytest.raises(SurvivorsRefused, match="3 survivors signed"):
        again.unmask(ConsistencyList(entries=(*entries[:3], *forged)), NOW)
