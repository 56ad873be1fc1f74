"""Sessions as values: what is admitted when, and how the sets freeze."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from server.domain import secure_sum as domain
from server.domain import secure_sum as views
from server.domain.secure_sum_session import Declined, Repeated, Session, changed
from study_protocol.secure_sum import masking, transcript
from study_protocol.secure_sum.messages import ConsistencyMessage, KeysMessage, UnmaskMessage, opened_shares
from tests.factories.secure_sum import DEADLINES, EXPIRES, NOW, STEPS, Run, World, small_counts


def started(step: str, clients: int = 6, lost: dict[str, set[str]] | None = None) -> Run:
    world = World(clients)
    return Run(world, small_counts(world), lost or {}).upto(step)


def code(outcome: object) -> str:
    assert isinstance(outcome, Declined), outcome
    assert len(outcome.detail) > 15
    return outcome.code


def test_the_same_message_repeats_and_another_conflicts_at_every_step() -> None:
    run = started("unmask")
    run.unmask()
    session = run.session
    for admit, mine in (
        (domain.admit_keys, session.keys["h001"]),
        (domain.admit_shares, session.shares["h001"]),
        (domain.admit_manifest, session.manifests["h001"]),
        (domain.admit_consistency, session.consistency["h001"]),
        (domain.admit_unmask, session.unmasks["h001"]),
    ):
        assert admit(session, mine) == Repeated()
        assert code(admit(session, mine.model_copy(update={"signature": bytes(64)}))) == "conflict"


def test_messages_outside_their_phase_are_told_which_way() -> None:
    early, late = started("keys"), started("unmask")
    done = started("unmask")
    done.unmask()
    early.keys()
    session = early.session
    for admit, message in (
        (domain.admit_manifest, done.session.manifests["h001"]),
        (domain.admit_consistency, done.session.consistency["h001"]),
        (domain.admit_unmask, done.session.unmasks["h001"]),
    ):
        assert code(admit(session, message)) == "too-early"
    bare = replace(late.session, keys={}, shares={}, manifests={}, consistency={})
    for admit, message in (
        (domain.admit_keys, late.session.keys["h001"]),
        (domain.admit_shares, late.session.shares["h001"]),
        (domain.admit_manifest, late.session.manifests["h001"]),
    ):
        assert code(admit(bare, message)) == "phase-closed"
    failed = replace(bare, phase="failed", failure="expired")
    assert code(domain.admit_keys(failed, late.session.keys["h001"])) == "session-failed"


def test_signatures_are_checked_at_every_step() -> None:
    done = started("unmask")
    done.unmask()
    finished = done.session
    for step, admit, rows in (
        ("keys", domain.admit_keys, finished.keys),
        ("shares", domain.admit_shares, finished.shares),
        ("masked", domain.admit_manifest, finished.manifests),
        ("consistency", domain.admit_consistency, finished.consistency),
        ("unmask", domain.admit_unmask, finished.unmasks),
    ):
        before = _before(finished, step)
        forged = rows["h001"].model_copy(update={"signature": rows["h002"].signature})
        assert code(admit(before, forged)) == "bad-signature"
        assert isinstance(admit(before, rows["h001"]), Session)


def _before(finished: Session, step: str) -> Session:
    """The session when `step` has just opened."""
    fields = {
        "keys": {"keys": {}, "cohort": ()},
        "shares": {"shares": {}, "sharers": ()},
        "masked": {"manifests": {}, "survivors": ()},
        "consistency": {"consistency": {}},
        "unmask": {"unmasks": {}},
    }
    later = STEPS[STEPS.index(step) :]
    return replace(finished, phase=step, **{k: v for name in later for k, v in fields[name].items()})


def test_strangers_are_unknown_at_every_step() -> None:
    run = started("unmask", lost={"masked": {"h005"}})
    run.unmask()
    session = run.session
    stranger = session.keys["h001"].model_copy(update={"client": "h009"})
    assert code(domain.admit_keys(_before(session, "keys"), stranger)) == "unknown-client"
    for step, admit, rows in (
        ("shares", domain.admit_shares, session.shares),
        ("masked", domain.admit_manifest, session.manifests),
        ("consistency", domain.admit_consistency, session.consistency),
        ("unmask", domain.admit_unmask, session.unmasks),
    ):
        message = rows["h001"].model_copy(update={"client": "h009"})
        assert code(admit(_before(session, step), message)) == "unknown-client"
    # A member of U2 that did not survive has no say over the survivors.
    lost = session.consistency["h001"].model_copy(update={"client": "h005"})
    assert code(domain.admit_consistency(_before(session, "consistency"), lost)) == "unknown-client"


def test_no_more_keys_than_planned() -> None:
    world = World(6)
    parameters = world.parameters(clients=5, neighbours=4, threshold=4, min_survivors=4)
    run = Run(world, small_counts(world), parameters=parameters)
    messages = [run.hospital(name).advertise(run.signed, world.plan, NOW) for name in world.names]
    for message in messages[:5]:
        run.session = domain.admit_keys(run.session, message)
    assert code(domain.admit_keys(run.session, messages[5])) == "phase-closed"


def signed_keys(run: Run, client: str, share_key: bytes, mask_key: bytes) -> KeysMessage:
    statement = transcript.keys_statement(run.session.ph, client, share_key, mask_key)
    signature = run.world.hospitals[client].identity.sign(statement)
    return KeysMessage(client=client, share_key=share_key, mask_key=mask_key, signature=signature)


def test_keys_that_every_hospital_would_refuse_are_not_admitted() -> None:
    run = started("keys")
    first, other = masking.public_key(b"\x01" * 32), masking.public_key(b"\x02" * 32)
    run.session = domain.admit_keys(run.session, signed_keys(run, "h000", first, other))
    fresh = masking.public_key(b"\x03" * 32)
    for pair in ((fresh, fresh), (fresh, first), (other, fresh), (bytes(32), fresh), (fresh, bytes(32))):
        assert code(domain.admit_keys(run.session, signed_keys(run, "h001", *pair))) == "malformed"


def test_malformed_messages_are_named() -> None:
    run = started("unmask")
    run.unmask()
    session = run.session
    shares = session.shares["h001"]
    assert code(domain.admit_shares(_before(session, "shares"), _with(shares, slots=shares.slots[:-1]))) == "malformed"
    manifest = session.manifests["h001"]
    assert code(domain.admit_manifest(_before(session, "masked"), _with(manifest, digests={"x": bytes(32)}))) == (
        "malformed"
    )
    message = session.unmasks["h001"]
    opened = message.shares
    for bad in (opened[:-1], opened[:-36], opened + opened[:36]):
        assert code(domain.admit_unmask(_before(session, "unmask"), _with(message, shares=bad))) == "malformed"


def _with(message, **changes):
    return message.model_copy(update=changes)


def test_an_unmask_reply_with_words_outside_the_field_is_malformed() -> None:
    run = started("unmask")
    identity = run.world.hospitals["h001"].identity
    message = run.hospital("h001").unmask(views.consistency_list(run.session), NOW)
    bad = b"\xff" * 36 + message.shares[36:]
    opened = opened_shares(run.session.peers("h001"), run.session.survivor_set, bad)
    statement = transcript.unmask_statement(run.session.h1, run.session.survivors_hash, "h001", opened)
    forged = UnmaskMessage(client="h001", shares=bad, signature=identity.sign(statement))
    assert code(domain.admit_unmask(run.session, forged)) == "malformed"


def test_a_manifest_after_the_survivors_froze_comes_too_late() -> None:
    run = started("masked")
    late = run.hospital("h005").mask(views.inbox(run.session, "h005"), run.words["h005"], NOW)
    # Asked before the octets come: then it would have been taken.
    assert isinstance(domain.admit_manifest(run.session, late.manifest), Session)
    run.lost = {"masked": {"h005"}}
    run.masked()
    assert run.session.survivors == ("h000", "h001", "h002", "h003", "h004")
    assert code(domain.admit_manifest(run.session, late.manifest)) == "phase-closed"


@pytest.mark.parametrize(
    ("step", "deadline", "following"),
    [
        ("keys", DEADLINES.keys, "shares"),
        ("shares", DEADLINES.shares, "masked"),
        ("masked", DEADLINES.masked, "consistency"),
    ],
)
def test_a_set_freezes_at_its_deadline_and_not_before(step, deadline, following) -> None:
    finished = started("unmask").session
    rows = {"keys": "keys", "shares": "shares", "masked": "manifests"}[step]
    held = getattr(finished, rows)
    waiting = replace(_before(finished, step), **{rows: dict(list(held.items())[:-1])})
    assert domain.advance(waiting, deadline - 1) is waiting
    assert domain.advance(waiting, deadline).phase == following
    # Everybody is there: no reason to wait.
    assert domain.advance(replace(waiting, **{rows: held}), NOW).phase == following


def test_nobody_waits_for_a_client_that_left() -> None:
    finished = started("unmask").session
    waiting = replace(_before(finished, "keys"), keys=dict(list(finished.keys.items())[:-1]))
    assert domain.advance(waiting, NOW) is waiting
    assert domain.advance(domain.leave(waiting, "h005"), NOW).phase == "shares"
    waiting = replace(_before(finished, "shares"), shares=dict(list(finished.shares.items())[:-1]))
    assert domain.advance(domain.leave(waiting, "h005"), NOW).phase == "masked"


@pytest.mark.parametrize(
    ("step", "failure"), [("keys", "too-few-keys"), ("shares", "too-few-shares"), ("masked", "too-few-survivors")]
)
def test_too_few_at_a_freeze_fail_the_session(step, failure) -> None:
    run = started("consistency", lost={step: {"h003", "h004", "h005"}})
    assert (run.session.phase, run.session.failure) == ("failed", failure)
    assert domain.advance(run.session, EXPIRES + 1) is run.session


@pytest.mark.parametrize("step", ["consistency", "unmask"])
def test_short_of_replies_a_session_waits_until_it_expires(step) -> None:
    run = started(step, lost={step: {"h003", "h004", "h005"}})
    getattr(run, step)()
    waiting = domain.advance(run.session, EXPIRES)
    assert waiting.phase == step
    expired = domain.advance(waiting, EXPIRES + 1)
    assert (expired.phase, expired.failure) == ("failed", "expired")


@pytest.mark.parametrize("step", ["consistency", "unmask"])
def test_when_too_many_have_left_nobody_waits_for_replies(step) -> None:
    run = started(step, lost={step: {"h003", "h004", "h005"}})
    getattr(run, step)()
    for name in ("h003", "h004"):
        run.session = domain.advance(domain.leave(run.session, name), NOW)
    assert run.session.phase == step
    # What a client sent before it left still counts.
    assert domain.advance(domain.leave(run.session, "h000"), NOW).phase == step
    ended = domain.advance(domain.leave(run.session, "h005"), NOW)
    assert (ended.phase, ended.failure) == ("failed", "too-few-replies")


def test_signatures_are_welcome_while_shares_are_opened() -> None:
    run = started("consistency", lost={"consistency": {"h004", "h005"}})
    run.consistency()
    assert run.session.phase == "unmask"
    late = run.hospital("h005").confirm(views.survivor_list(run.session), NOW)
    assert isinstance(domain.admit_consistency(run.session, late), Session)


def test_views_say_when_it_is_too_early() -> None:
    run = started("keys")
    for view in (views.key_list, views.survivor_list, views.consistency_list):
        assert code(view(run.session)) == "too-early"
    assert code(views.inbox(run.session, "h001")) == "too-early"
    run = started("masked", lost={"shares": {"h005"}})
    assert code(views.inbox(run.session, "h005")) == "unknown-client"


def test_the_signatures_are_shown_from_t_on() -> None:
    run = started("consistency")
    threshold = run.session.parameters.threshold
    for count, name in enumerate(run.session.survivors, start=1):
        message: ConsistencyMessage = run.hospital(name).confirm(views.survivor_list(run.session), NOW)
        run.session = domain.admit_consistency(run.session, message)
        assert isinstance(views.consistency_list(run.session), Declined) == (count < threshold)


def test_admitting_needs_only_the_rows_of_its_client() -> None:
    finished = started("unmask").session
    alone = replace(_before(finished, "shares"), keys={"h001": finished.keys["h001"]})
    assert isinstance(domain.admit_shares(alone, finished.shares["h001"]), Session)


class Counting(dict[str, object]):
    """Stored messages, of which every one that is read is counted."""

    def __init__(self, rows: Mapping[str, object], mine: str) -> None:
        super().__init__(rows)
        self.mine, self.read = mine, 0

    def __getitem__(self, client: str) -> object:
        self.read += client != self.mine
        return super().__getitem__(client)


ADMITTED = (
    ("keys", "keys", domain.admit_keys),
    ("shares", "shares", domain.admit_shares),
    ("masked", "manifests", domain.admit_manifest),
    ("consistency", "consistency", domain.admit_consistency),
    ("unmask", "unmasks", domain.admit_unmask),
)


@pytest.mark.parametrize(("step", "rows", "admit"), ADMITTED)
def test_a_message_more_reads_and_works_out_nothing_of_the_others_again(step, rows, admit) -> None:
    """Else every message of a session of a thousand would cost what a thousand cost."""
    run = started("unmask")
    run.unmask()
    finished, before = run.session, _before(run.session, step)
    held = dict(getattr(finished, rows))
    last = held.pop("h005")
    first = admit(replace(before, **{rows: dict(list(held.items())[:-1])}), held["h004"])
    stored = {name: Counting(getattr(first, name), "h005") for _, name, _ in ADMITTED}
    session = domain.advance(changed(first, **{name: kept for name, kept in stored.items() if name != rows}), NOW)
    moved = admit(session, last)
    assert isinstance(moved, Session)
    assert sum(kept.read for kept in stored.values()) == 0
    for name in ("h1", "graph", "survivors_hash", "advertised_keys"):
        if name in vars(session) and name != rows:
            assert vars(moved)[name] == getattr(replace(moved), name), name
    assert vars(moved).keys() >= {"advertised_keys"} if step == "keys" else vars(moved)["h1"] is vars(session)["h1"]
