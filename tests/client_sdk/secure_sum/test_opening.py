"""A coordinator that deviates once vectors are masked: survivor lists, signatures on them, and what is opened twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client_sdk.secure_sum.refusals import SecureSumRefused
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.store import Opened, keep_opened, opened_from
from server.domain import secure_sum as domain
from server.domain import secure_sum as views
from study_protocol.secure_sum.messages import (
    ConsistencyList,
    Manifest,
    SurvivorList,
)
from study_protocol.secure_sum.shamir import SHARE_BYTES
from tests.factories.deviating_coordinator import GRAPHS, ME, me, refuses, started
from tests.factories.secure_sum import EXPIRES, MODEL, NOW, ROUND, STUDY, MemoryStore, Run, World, small_counts

# --- survivors ------------------------------------------------------------------------------------------------


@GRAPHS
def test_a_second_survivor_list_and_with_it_the_other_share_of_a_client(neighbours) -> None:
    run = started("consistency", neighbours=neighbours)
    full = views.survivor_list(run.session)
    me(run).confirm(full, NOW)
    without = SurvivorList(entries=tuple(e for e in full.entries if e.client != "h004"))
    refuses(run, lambda: me(run).confirm(without, NOW), "second-survivor-list", "another survivor list before")


@GRAPHS
def test_different_survivor_lists_never_gather_t_signatures(neighbours) -> None:
    run = started("consistency", neighbours=neighbours)
    full = views.survivor_list(run.session)
    without = SurvivorList(entries=tuple(e for e in full.entries if e.client != "h005"))
    for name in ("h000", ME, "h002"):
        run.session = _admit_any(run, run.hospital(name).confirm(full, NOW))
    for name in ("h003", "h004"):
        run.session = _admit_any(run, run.hospital(name).confirm(without, NOW))
    signatures = ConsistencyList(entries=tuple(run.session.consistency.values()))
    assert len(signatures.entries) > run.session.parameters.threshold
    refuses(run, lambda: me(run).unmask(signatures, NOW), "few-signatures", "3 survivors signed .* 4 signatures")


def _admit_any(run: Run, message) -> domain.Session:
    return replace(run.session, consistency={**run.session.consistency, message.client: message})


def opened(run: Run, survivors: tuple[str, ...], *, model: str = MODEL, round: int = ROUND - 2) -> None:
    """As after an earlier round whose sum this hospital helped to open."""
    earlier = Opened(round=round, cohort=survivors, survivors=survivors, model=model)
    keep_opened(run.world.hospitals[ME].store, STUDY, earlier)


@GRAPHS
def test_the_same_model_again_over_other_hospitals(neighbours) -> None:
    run = started("consistency", neighbours=neighbours)
    full = views.survivor_list(run.session)
    names = tuple(entry.client for entry in full.entries)
    # One less, one more, another one, two less, and two others: enough of any of these can be solved.
    for survivors in (names[:-1], (*names, "h006"), (*names[1:], "h006"), names[:-2], (*names[2:], "h006", "h007")):
        opened(run, survivors)
        # Other rounds may have come in between.
        opened(run, names, model="11" * 32, round=ROUND - 1)
        refuses(run, lambda: me(run).confirm(full, NOW, exact=True), "same-model-again", "round 5 .* over other hosp")
    # Another model gives other updates; the same hospitals give nothing new.
    for survivors, model in ((names[:-1], "00" * 32), (names, MODEL)):
        run = started("consistency", neighbours=neighbours)
        opened(run, survivors, model=model)
        assert me(run).confirm(full, NOW, exact=True)


@GRAPHS
def test_a_cohort_without_a_hospital_of_an_earlier_sum_from_the_same_model(neighbours) -> None:
    """Before anything is paid: whoever is missing in U1 cannot be in U3."""
    run = started("shares", neighbours=neighbours)
    cohort = views.key_list(run.session)
    names = tuple(run.world.names)
    opened(run, (*names[1:], "h006", "h007", "h008", "h009"))
    refuses(
        run,
        lambda: me(run).share(cohort, NOW, exact=True),
        "same-model-again",
        r"\(h006, h007, h008 and 1 more: not here now\).* has to end the study \(wardround study stop\)",
    )
    # More than there were may lose one again on the way.
    opened(run, names[1:])
    assert me(run).share(cohort, NOW, exact=True)


@GRAPHS
def test_what_is_opened_is_found_without_reading_every_earlier_round(neighbours) -> None:
    run = started("unmask", neighbours=neighbours)
    store = run.world.hospitals[ME].store
    me(run).unmask(views.consistency_list(run.session), NOW)
    read: list[int | str] = []

    class Counting(MemoryStore):
        def load(self, study: str, key: int | str) -> bytes | None:
            read.append(key)
            return super().load(study, key)

    counting = Counting(store.records)
    for late in (ROUND + 1, ROUND + 100_000):
        read.clear()
        later = SecureSumClient(run.world.hospitals[ME].party, STUDY, late, counting)
        assert later.opened_cohort() == frozenset(run.world.names)
        assert opened_from(counting, STUDY, MODEL) is not None
        assert len(read) == 2


@GRAPHS
def test_killed_while_shares_are_opened_they_count_as_opened(neighbours) -> None:
    run = started("unmask", neighbours=neighbours)
    store = run.world.hospitals[ME].store
    save = store.save

    def die(study: str, key: int | str, record: bytes) -> None:
        if key == ROUND:
            raise KeyboardInterrupt
        save(study, key, record)

    store.save = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        me(run).unmask(views.consistency_list(run.session), NOW)
    store.save = save  # type: ignore[method-assign]
    found = opened_from(store, STUDY, MODEL)
    assert found is not None
    assert found.survivors == run.session.survivors
    # And the very same shares are opened once it is back.
    assert me(run).unmask(views.consistency_list(run.session), NOW)


@GRAPHS
def test_noised_updates_may_lack_one_client(neighbours) -> None:
    run = started("consistency", neighbours=neighbours)
    full = views.survivor_list(run.session)
    names = tuple(entry.client for entry in full.entries)
    opened(run, names[:-1])
    assert me(run).confirm(full, NOW)


@GRAPHS
def test_all_but_two_dropped(neighbours) -> None:
    run = started("consistency", neighbours=neighbours)
    full = views.survivor_list(run.session).entries
    for size in (2, 3):
        kept = SurvivorList(entries=tuple(e for e in full if e.client in (ME, "h000", "h002")[:size]))
        refuses(
            run,
            lambda k=kept: me(run).confirm(k, NOW),
            "few-survivors",
            f"{size} clients survive. A sum needs at least 4",
        )


@GRAPHS
def test_survivor_lists_that_are_forged_or_disordered(neighbours) -> None:
    run = started("consistency", neighbours=neighbours)
    full = views.survivor_list(run.session).entries
    outsider = full[0].model_copy(update={"client": "h009"})
    other_digest = full[2].model_copy(update={"digests": {"terms": bytes(32)}})
    fewer_vectors = full[2].model_copy(update={"digests": {"other": full[2].digests["terms"]}})
    mine: Manifest = next(e for e in full if e.client == ME)
    for entries, code in (
        ((*full, outsider), "outside-cohort"),
        ((full[0], full[1], other_digest, *full[3:]), "unsigned-vector"),
        ((full[0], full[1], fewer_vectors, *full[3:]), "unsigned-vector"),
        (full[::-1], "unsorted-survivors"),
        ((full[0], full[0], *full[1:]), "unsorted-survivors"),
        (tuple(e for e in full if e.client != ME), "own-vector-altered"),
        ((full[0], mine.model_copy(update={"signature": bytes(64)}), *full[2:]), "own-vector-altered"),
    ):
        refuses(
            run,
            lambda e=entries: me(run).confirm(SurvivorList(entries=e), NOW),
            code,
            "did not share|not signed|in the order|missing or altered",
        )


def test_a_survivor_who_never_shared_with_this_hospital() -> None:
    world = World(6)
    run = Run(world, small_counts(world), {"shares": {"h004"}}).upto("consistency")
    full = views.survivor_list(run.session).entries
    ghost = full[-1].model_copy(update={"client": "h004"})
    entries = tuple(sorted([*full, ghost], key=lambda e: e.client))
    refuses(run, lambda: me(run).confirm(SurvivorList(entries=entries), NOW), "outside-cohort", "h004 did not share")


# --- opening --------------------------------------------------------------------------------------------------


@GRAPHS
def test_too_few_repeated_or_foreign_signatures(neighbours) -> None:
    run = started("unmask", neighbours=neighbours)
    good = views.consistency_list(run.session).entries
    outsider = good[0].model_copy(update={"client": "h009"})
    borrowed = good[0].model_copy(update={"client": "h003"})
    assert run.session.parameters.threshold == 4
    for entries in (good[:3], (*good[:3], good[0], good[1]), (*good[:3], outsider), (*good[:3], borrowed), ()):
        refuses(
            run,
            lambda e=entries: me(run).unmask(ConsistencyList(entries=e), NOW),
            "few-signatures",
            "A sum needs 4 signatures",
        )


@GRAPHS
def test_a_consistency_signature_replayed_from_another_session(neighbours) -> None:
    run = started("unmask", neighbours=neighbours)
    old = views.consistency_list(run.session).entries
    other = Run(run.world, run.words).upto("unmask")
    refuses(other, lambda: me(other).unmask(ConsistencyList(entries=old), NOW), "few-signatures", "0 survivors signed")


def test_a_second_unmask_request_gets_the_same_shares_and_never_the_other_kind() -> None:
    world = World(6)
    run = Run(world, small_counts(world), {"masked": {"h005"}}).upto("unmask")
    secrets = world.hospitals[ME].session.secrets
    assert secrets is not None
    first = me(run).unmask(views.consistency_list(run.session), NOW)
    assert me(run).unmask(ConsistencyList(entries=()), NOW) == first
    # Of what it held of each peer, the seed's half comes first.
    seeds = [secrets.shares[name][:SHARE_BYTES] for name in run.session.survivors]
    assert first.shares == b"".join([*seeds, secrets.shares["h005"][SHARE_BYTES:]])
    full = views.survivor_list(run.session)
    without = SurvivorList(entries=full.entries[:-1])
    refuses(run, lambda: me(run).confirm(without, NOW), "session-over", "erased")


@GRAPHS
def test_the_same_round_again_after_a_release(neighbours) -> None:
    run = started("unmask", neighbours=neighbours)
    me(run).unmask(views.consistency_list(run.session), NOW)
    signed = run.world.signed(run.world.parameters())
    refuses(run, lambda: me(run).advertise(signed, run.world.plan, NOW), "already-released", "only once")


@GRAPHS
def test_a_replayed_session(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    me(run).abort()
    me(run).advertise(run.world.signed(run.world.parameters()), run.world.plan, NOW)
    refuses(run, lambda: me(run).advertise(run.signed, run.world.plan, NOW), "session-replayed", "joined before")


@GRAPHS
def test_the_same_session_with_other_parameters(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    run.world.min_survivors = 5
    changed = run.world.parameters(session=run.session.parameters.session)
    refuses(
        run,
        lambda: me(run).advertise(run.world.signed(changed), run.world.plan, NOW),
        "session-replayed",
        "other parameters",
    )


@GRAPHS
def test_anything_after_expiry(neighbours) -> None:
    run = started("unmask", neighbours=neighbours)
    with pytest.raises(SecureSumRefused) as refused:
        me(run).unmask(views.consistency_list(run.session), EXPIRES + 1)
    assert refused.value.code == "session-over"
    assert me(run).phase == "ended"
