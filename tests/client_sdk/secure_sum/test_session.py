"""The hospital's half: order of steps, repetition, restarts, retries, and what stays in the store."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from client_sdk.secure_sum.refusals import ResultRefused, StateRefused, VectorsRefused
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.store import RoundRecord
from server.domain import secure_sum as views
from server.domain import secure_sum_recovery as recovery
from study_protocol.secure_sum.messages import ConsistencyList, Inbox, KeyList, SumResult, SurvivorList
from tests.factories.secure_sum import EXPIRES, NOW, ROUND, STUDY, Run, World, small_counts

ME = "h001"


@pytest.fixture
def run() -> Run:
    world = World(5)
    return Run(world, small_counts(world), {"unmask": {ME}})


def me(run: Run) -> SecureSumClient:
    return run.hospital(ME)


def record(run: Run) -> RoundRecord:
    stored = run.world.hospitals[ME].store.load(STUDY, ROUND)
    assert stored is not None
    return RoundRecord.from_bytes(stored)


def test_every_step_repeats_its_message_byte_for_byte_after_a_restart(run) -> None:
    run.upto("shares")
    keys = me(run).advertise(run.signed, run.world.plan, NOW)
    assert keys == run.session.keys[ME]
    run.shares()
    assert me(run).share(views.key_list(run.session), NOW) == run.session.shares[ME]
    run.masked()
    again = me(run).mask(views.inbox(run.session, ME), run.words[ME], NOW)
    assert again.manifest == run.uploads[ME].manifest
    assert np.array_equal(again.vectors["terms"], run.uploads[ME].vectors["terms"])
    run.consistency()
    assert me(run).confirm(views.survivor_list(run.session), NOW) == run.session.consistency[ME]
    opened = me(run).unmask(views.consistency_list(run.session), NOW)
    assert me(run).unmask(views.consistency_list(run.session), NOW) == opened


def test_the_phase_follows_the_steps(run) -> None:
    seen = [me(run).phase]
    for step in ("keys", "shares", "masked", "consistency"):
        getattr(run, step)()
        seen.append(me(run).phase)
    me(run).unmask(views.consistency_list(run.session), NOW)
    assert [*seen, me(run).phase] == ["idle", "advertised", "shared", "masked", "confirmed", "unmasked"]


def test_state_is_written_before_each_message_is_returned(run) -> None:
    store = run.world.hospitals[ME].store
    for step, name in (("keys", "keys"), ("shares", "shares"), ("masked", "manifest"), ("consistency", "consistency")):
        getattr(run, step)()
        assert json.loads(store.history[-1])["session"][name] is not None
    assert len(store.history) == 4


def test_a_failing_disk_stops_the_message() -> None:
    world = World(5)
    run = Run(world, small_counts(world)).upto("shares")
    store = world.hospitals[ME].store
    before = store.load(STUDY, ROUND)

    class Full(type(store)):
        def save(self, study: str, round_number: int, record: bytes) -> None:
            raise OSError("disk full")

    hospital = world.hospitals[ME]
    client = SecureSumClient(hospital.party, STUDY, ROUND, Full(records=store.records), hospital.randomness)
    with pytest.raises(OSError, match="disk full"):
        client.share(views.key_list(run.session), NOW)
    assert store.load(STUDY, ROUND) == before
    run.shares()
    assert run.session.phase == "masked"


def test_steps_out_of_order_are_refused(run) -> None:
    nothing = Inbox(sharers=(), slots=b""), KeyList(entries=()), SurvivorList(entries=()), ConsistencyList(entries=())
    inbox, keys, survivors, signatures = nothing
    for attempt in (
        lambda: me(run).share(keys, NOW),
        lambda: me(run).mask(inbox, run.words[ME], NOW),
        lambda: me(run).confirm(survivors, NOW),
        lambda: me(run).unmask(signatures, NOW),
    ):
        with pytest.raises(StateRefused) as refused:
            attempt()
        assert refused.value.code == "no-session"
    run.keys()
    with pytest.raises(StateRefused, match="after sharing"):
        me(run).mask(inbox, run.words[ME], NOW)
    run.shares()
    with pytest.raises(StateRefused, match="after masking"):
        me(run).confirm(survivors, NOW)
    run.masked()
    with pytest.raises(StateRefused, match="after confirming"):
        me(run).unmask(signatures, NOW)
    with pytest.raises(StateRefused, match="after unmasking"):
        me(run).check_result(SumResult(survivors=(ME,), digests={"terms": bytes(32)}, signature=bytes(64)))


def secrets_ever_stored(run: Run) -> list[bytes]:
    found: list[bytes] = []
    for version in run.world.hospitals[ME].store.history:
        secrets = RoundRecord.from_bytes(version).session.secrets
        if secrets is not None:
            found += [secrets.share_private, secrets.mask_private, secrets.seed, *secrets.shares.values()]
    return found


def in_json(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def test_secrets_leave_the_store_after_unmasking_and_the_release_stays(run) -> None:
    run.upto("unmask")
    me(run).unmask(views.consistency_list(run.session), NOW)
    stored = run.world.hospitals[ME].store.load(STUDY, ROUND)
    assert len(secrets_ever_stored(run)) > 3
    assert not any(in_json(secret) in stored for secret in secrets_ever_stored(run))
    assert me(run).released


def test_secrets_leave_the_store_at_abort_and_the_session_is_over(run) -> None:
    run.upto("masked")
    me(run).abort()
    stored = run.world.hospitals[ME].store.load(STUDY, ROUND)
    assert not any(in_json(secret) in stored for secret in secrets_ever_stored(run))
    assert me(run).phase == "ended"
    with pytest.raises(StateRefused) as refused:
        me(run).mask(views.inbox(run.session, ME), run.words[ME], NOW)
    assert refused.value.code == "session-over"
    with pytest.raises(StateRefused, match="erased"):
        me(run).advertise(run.signed, run.world.plan, NOW)
    assert not me(run).released


def test_secrets_leave_the_store_when_the_session_expires(run) -> None:
    run.upto("consistency")
    assert me(run).confirm(views.survivor_list(run.session), EXPIRES)
    with pytest.raises(StateRefused, match="expired"):
        me(run).confirm(views.survivor_list(run.session), EXPIRES + 1)
    assert record(run).session.secrets is None
    assert not me(run).released


def test_expired_secrets_can_be_forgotten_without_a_step(run) -> None:
    run.upto("masked")
    me(run).forget_if_expired(EXPIRES)
    assert record(run).session.secrets is not None
    me(run).forget_if_expired(EXPIRES + 1)
    assert record(run).session.secrets is None
    assert me(run).phase == "ended"


def test_every_session_has_keys_of_its_own() -> None:
    world = World(5)
    seen: list[bytes] = []
    for _ in range(4):
        keys = world.hospitals[ME].client.advertise(world.signed(world.parameters()), world.plan, NOW)
        seen += [keys.share_key, keys.mask_key]
    assert len(set(seen)) == 8


def test_a_failed_round_is_retried_with_new_keys_and_the_same_words() -> None:
    world = World(5)
    words = small_counts(world)
    first = Run(world, words, {"masked": {"h000", "h004"}}).upto("consistency")
    assert first.session.failure == "too-few-survivors"
    second = Run(world, words).upto("masked")
    assert second.session.keys[ME] != first.session.keys[ME]
    with pytest.raises(VectorsRefused) as refused:
        second.hospital(ME).mask(views.inbox(second.session, ME), words["h002"], NOW)
    assert refused.value.code == "other-words"
    second.masked()
    assert not np.array_equal(second.uploads[ME].vectors["terms"], first.uploads[ME].vectors["terms"])
    second.consistency()
    second.unmask()
    assert second.totals()["terms"][:3].tolist() == [5, 60, 10_000]


def test_joining_a_new_session_erases_the_old_secrets(run) -> None:
    run.upto("masked")
    old = secrets_ever_stored(run)
    me(run).advertise(run.world.signed(run.world.parameters()), run.world.plan, NOW)
    stored = run.world.hospitals[ME].store.load(STUDY, ROUND)
    assert not any(in_json(secret) in stored for secret in old)


def test_an_earlier_session_is_not_joined_again(run) -> None:
    run.keys()
    me(run).advertise(run.world.signed(run.world.parameters()), run.world.plan, NOW)
    with pytest.raises(StateRefused) as refused:
        me(run).advertise(run.signed, run.world.plan, NOW)
    assert refused.value.code == "session-replayed"


def test_a_released_round_is_never_joined_again(run) -> None:
    run.upto("unmask")
    me(run).unmask(views.consistency_list(run.session), NOW)
    for signed in (run.signed, run.world.signed(run.world.parameters())):
        with pytest.raises(StateRefused) as refused:
            me(run).advertise(signed, run.world.plan, NOW)
        assert refused.value.code == "already-released"


def test_a_damaged_record_is_refused(run) -> None:
    run.keys()
    run.world.hospitals[ME].store.records[STUDY, ROUND] = b"{}"
    with pytest.raises(StateRefused) as refused:
        me(run).share(views.key_list(run.session), NOW)
    assert refused.value.code == "unreadable-state"


def announced(run: Run) -> SumResult:
    return recovery.summed(run.session, {"terms": b"\x01" * 32}, run.world.coordinator.sign)[1]


def test_the_result_is_compared_and_closes_the_session() -> None:
    world = World(5)
    run = Run(world, small_counts(world), {"masked": {"h004"}}).finish()
    result = announced(run)
    for changes, code in (
        ({"survivors": (*result.survivors, "h004")}, "other-survivors"),
        ({"digests": {"terms": b"\x02" * 32}}, "unsigned-result"),
        ({"signature": bytes(64)}, "unsigned-result"),
    ):
        with pytest.raises(ResultRefused) as refused:
            me(run).check_result(result.model_copy(update=changes))
        assert refused.value.code == code
    me(run).check_result(result)
    assert record(run).session is None
    assert me(run).released


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({}, "other-vectors"),
        ({"terms": np.zeros(3, "<u4"), "metrics": np.zeros(3, "<u4")}, "other-vectors"),
        ({"terms": np.zeros(4, "<u4")}, "out-of-range"),
        ({"terms": np.zeros(3, "<u8")}, "out-of-range"),
        ({"terms": np.full(3, 2**31, "<u4")}, "out-of-range"),
    ],
)
def test_own_vectors_that_do_not_fit_are_refused(run, words, code) -> None:
    run.upto("masked")
    with pytest.raises(VectorsRefused) as refused:
        me(run).mask(views.inbox(run.session, ME), words, NOW)
    assert refused.value.code == code
    assert me(run).phase == "shared"


def test_the_last_opened_cohort_is_remembered_for_ever_and_only_once_shares_were_opened(run) -> None:
    hospital = run.world.hospitals[ME]

    def later(round_number: int) -> frozenset[str] | None:
        return SecureSumClient(hospital.party, STUDY, round_number, hospital.store).opened_cohort()

    run.upto("unmask")
    assert later(ROUND + 1) is None
    me(run).unmask(views.consistency_list(run.session), NOW)
    me(run).forget_if_expired(EXPIRES + 1)
    assert later(ROUND + 1) == later(ROUND + 20) == frozenset(run.world.names)
    assert later(ROUND) is None
