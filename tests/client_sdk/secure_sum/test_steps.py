"""A coordinator that deviates: every attempt is refused by the hospital, in words, with its state unchanged.

The coordinator here signs whatever it likes and shows each hospital what it likes; it has no hospital's identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.secure_sum.store import RoundRecord
from server.domain import secure_sum as views
from study_protocol.secure_sum import masking, transcript
from study_protocol.secure_sum.messages import (
    SLOT_BYTES,
    Inbox,
    KeyList,
    KeysMessage,
    SharesMessage,
    SurvivorList,
)
from tests.factories.deviating_coordinator import GRAPHS, ME, me, refuses, started
from tests.factories.secure_sum import NOW, ROUND, STUDY, Run, World, small_counts


def slots_of(run: Run, reader: str = ME) -> dict[str, bytes]:
    """What each neighbour in U2 sealed for the reader."""
    inbox = views.inbox(run.session, reader)
    senders = [name for name in run.session.peers(reader) if name != reader]
    return {name: inbox.slots[SLOT_BYTES * i : SLOT_BYTES * (i + 1)] for i, name in enumerate(senders)}


def delivered(run: Run, slots: Mapping[str, bytes], reader: str = ME) -> Inbox:
    """These slots, as if of all neighbours nobody else had sent any."""
    far = set(run.session.members) - set(run.session.graph.holders(reader))
    return Inbox(sharers=tuple(sorted({*slots, reader, *far})), slots=b"".join(slots[name] for name in sorted(slots)))


def forged_keys(run: Run, client: str, signer: Ed25519PrivateKey) -> KeysMessage:
    share_key, mask_key = masking.public_key(b"\x11" * 32), masking.public_key(b"\x12" * 32)
    statement = transcript.keys_statement(run.session.ph, client, share_key, mask_key)
    return KeysMessage(client=client, share_key=share_key, mask_key=mask_key, signature=signer.sign(statement))


def with_entry(entries: tuple[KeysMessage, ...], entry: KeysMessage) -> KeyList:
    others = [e for e in entries if e.client != entry.client]
    return KeyList(entries=tuple(sorted([*others, entry], key=lambda e: e.client)))


# --- keys -----------------------------------------------------------------------------------------------------


@GRAPHS
def test_a_swapped_mask_key(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    swapped = run.session.cohort[3].model_copy(update={"mask_key": masking.public_key(b"\x11" * 32)})
    refuses(
        run, lambda: me(run).share(with_entry(run.session.cohort, swapped), NOW), "unsigned-key", "h003 are not signed"
    )


@GRAPHS
def test_an_unsigned_key(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    unsigned = run.session.cohort[3].model_copy(update={"signature": bytes(64)})
    refuses(run, lambda: me(run).share(with_entry(run.session.cohort, unsigned), NOW), "unsigned-key", "not signed")


@GRAPHS
def test_a_key_signed_by_the_coordinator(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    forged = forged_keys(run, "h003", run.world.coordinator)
    refuses(run, lambda: me(run).share(with_entry(run.session.cohort, forged), NOW), "unsigned-key", "not signed")


def test_a_client_outside_the_roster() -> None:
    world = World(6)
    run = Run(world, small_counts(world), {"keys": {"h005"}}).upto("shares")
    sybil = forged_keys(run, "h009", Ed25519PrivateKey.generate())
    refuses(
        run, lambda: me(run).share(with_entry(run.session.cohort, sybil), NOW), "outside-roster", "h009 is not on the"
    )


@GRAPHS
def test_a_key_replayed_from_another_session(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    other = Run(run.world, run.words)
    old = run.session.cohort[4]
    other.keys()
    refuses(
        other, lambda: me(other).share(with_entry(other.session.cohort, old), NOW), "unsigned-key", "for this session"
    )


@GRAPHS
def test_own_keys_altered_or_missing(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    mine = run.world.hospitals[ME].identity
    for entries in (
        with_entry(run.session.cohort, forged_keys(run, ME, mine)),
        KeyList(entries=tuple(e for e in run.session.cohort if e.client != ME)),
    ):
        refuses(run, lambda e=entries: me(run).share(e, NOW), "own-key-altered", "missing or altered")


@GRAPHS
def test_one_key_under_two_names(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    stolen = run.session.cohort[2]
    statement = transcript.keys_statement(run.session.ph, "h003", stolen.share_key, stolen.mask_key)
    copied = stolen.model_copy(
        update={"client": "h003", "signature": run.world.hospitals["h003"].identity.sign(statement)}
    )
    refuses(run, lambda: me(run).share(with_entry(run.session.cohort, copied), NOW), "repeated-key", "occurs twice")


def low_order(run: Run, share_key: bytes, mask_key: bytes) -> KeysMessage:
    statement = transcript.keys_statement(run.session.ph, "h003", share_key, mask_key)
    signature = run.world.hospitals["h003"].identity.sign(statement)
    return KeysMessage(client="h003", share_key=share_key, mask_key=mask_key, signature=signature)


@GRAPHS
def test_a_share_key_of_small_order(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    weak = low_order(run, bytes(32), masking.public_key(b"\x12" * 32))
    refuses(
        run, lambda: me(run).share(with_entry(run.session.cohort, weak), NOW), "unusable-key", "h003 is not a usable"
    )


def test_a_mask_key_of_small_order() -> None:
    # Everybody is shown it, so that only the masking step can notice.
    world = World(6)
    run = Run(world, small_counts(world), {"keys": {"h003"}, "shares": {"h003"}})
    run.keys()
    run.session = replace(
        run.session,
        cohort=with_entry(run.session.cohort, low_order(run, masking.public_key(b"\x11" * 32), bytes(32))).entries,
    )
    run.shares()
    agreement = masking.KeyAgreement("h003", b"\x11" * 32, run.session.h1)
    key = agreement.share_key(ME, next(e.share_key for e in run.session.cohort if e.client == ME))
    sealed = masking.seal_share(key, run.session.h1, "h003", ME, bytes(72))
    inbox = delivered(run, {**slots_of(run), "h003": sealed})
    refuses(
        run,
        lambda: me(run).mask(inbox, run.words[ME], NOW),
        "unusable-key",
        "h003 is not a usable",
    )


@GRAPHS
def test_lists_in_disorder_or_of_the_wrong_size(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    entries = run.session.cohort
    for bad, code in (
        (entries[::-1], "unsorted-cohort"),
        ((*entries[:2], entries[1], *entries[2:]), "unsorted-cohort"),
        (entries[:3], "cohort-size"),
        ((), "cohort-size"),
    ):
        refuses(run, lambda b=bad: me(run).share(KeyList(entries=b), NOW), code, "order of|clients have keys")


@GRAPHS
def test_two_key_lists_for_one_hospital(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    run.shares()
    shorter = KeyList(entries=run.session.cohort[:-1])
    refuses(run, lambda: me(run).share(shorter, NOW), "second-key-list", "another list of keys before")


@GRAPHS
def test_split_key_lists_end_in_shares_that_do_not_open(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    full, shorter = views.key_list(run.session), KeyList(entries=run.session.cohort[:-1])
    # h002 is shown a cohort without h005: its shares hang on another H1, and its slots are shifted to fit.
    misled = run.hospital("h002").share(shorter, NOW)
    honest = {name: run.hospital(name).share(full, NOW) for name in run.session.members if name != "h002"}
    # All five of that cohort are neighbours on either graph.
    position = [e.client for e in shorter.entries if e.client != "h002"].index(ME)
    slot = misled.slots[88 * position : 88 * (position + 1)]
    near = run.session.graph.neighbours(ME)
    inbox = delivered(run, {"h002": slot, **{n: _slot(honest[n], run, n) for n in near if n != "h002"}})
    refuses(
        run,
        lambda: me(run).mask(inbox, run.words[ME], NOW),
        "malformed-share",
        "share from h002 is refused: .* does not open",
    )


def _slot(message: SharesMessage, run: Run, sender: str) -> bytes:
    position = run.session.graph.neighbours(sender).index(ME)
    return message.slots[88 * position : 88 * (position + 1)]


@GRAPHS
def test_a_cohort_one_client_away_from_the_last_one(neighbours) -> None:
    run = started("shares", neighbours=neighbours)
    names = frozenset(run.session.members)
    last = names - {"h005"}
    refuses(
        run, lambda: me(run).share(views.key_list(run.session), NOW, last), "neighbouring-cohort", "differs .* by one"
    )
    assert me(run).share(views.key_list(run.session), NOW, names)


# --- shares ---------------------------------------------------------------------------------------------------


@GRAPHS
def test_malformed_misdirected_repeated_and_missing_shares(neighbours) -> None:
    run = started("masked", neighbours=neighbours)
    good = slots_of(run)
    foreign = list(slots_of(run, "h000").values())[-1]
    all_of = views.inbox(run.session, ME)
    flipped = bytes([good["h000"][0] ^ 1]) + good["h000"][1:]
    for inbox, code in (
        (delivered(run, {**good, "h000": flipped}), "malformed-share"),
        (delivered(run, {**good, "h005": foreign}), "malformed-share"),
        (delivered(run, {**good, "h000": good["h002"], "h002": good["h000"]}), "malformed-share"),
        (all_of.model_copy(update={"slots": all_of.slots[:-1]}), "malformed-share"),
        (all_of.model_copy(update={"slots": all_of.slots + good["h005"]}), "malformed-share"),
        (all_of.model_copy(update={"sharers": all_of.sharers[::-1]}), "unexpected-share"),
        (all_of.model_copy(update={"sharers": (*all_of.sharers, "h005")}), "unexpected-share"),
        (all_of.model_copy(update={"sharers": tuple(n for n in all_of.sharers if n != ME)}), "unexpected-share"),
        (delivered(run, {**good, "h009": foreign}), "unexpected-share"),
        (delivered(run, {name: good[name] for name in ("h000", "h002")}), "few-shares"),
        (delivered(run, {}), "few-shares"),
    ):
        refuses(
            run,
            lambda i=inbox: me(run).mask(i, run.words[ME], NOW),
            code,
            "is refused|are no shares of|not members of|only . (clients|neighbours)",
        )


@GRAPHS
def test_a_share_that_is_no_field_element(neighbours) -> None:
    # A dishonest hospital, not the coordinator: it seals 72 bytes that are no shares.
    run = started("masked", neighbours=neighbours)
    liar = RecordOf(run, "h002")
    sealed = masking.seal_share(liar.share_key(ME), run.session.h1, "h002", ME, b"\xff" * 72)
    inbox = delivered(run, {**slots_of(run), "h002": sealed})
    refuses(
        run,
        lambda: me(run).mask(inbox, run.words[ME], NOW),
        "malformed-share",
        "h002 is refused: .* no field element",
    )


class RecordOf:
    """What a hospital that turns dishonest can compute."""

    def __init__(self, run: Run, name: str) -> None:
        record = RoundRecord.from_bytes(run.world.hospitals[name].store.load(STUDY, ROUND) or b"")
        assert record.session is not None
        assert record.session.secrets is not None
        self.run, self.name, self.secrets = run, name, record.session.secrets

    def share_key(self, peer: str) -> bytes:
        public = next(e.share_key for e in self.run.session.cohort if e.client == peer)
        return masking.KeyAgreement(self.name, self.secrets.share_private, self.run.session.h1).share_key(peer, public)


@GRAPHS
def test_two_share_lists_for_one_hospital(neighbours) -> None:
    run = started("masked", neighbours=neighbours)
    me(run).mask(views.inbox(run.session, ME), run.words[ME], NOW)
    good = slots_of(run)
    fewer = delivered(run, {name: slot for name, slot in good.items() if name != "h005"})
    refuses(run, lambda: me(run).mask(fewer, run.words[ME], NOW), "second-share-list", "other clients before")


@GRAPHS
def test_split_share_lists_show_in_the_survivors_manifests(neighbours) -> None:
    run = started("masked", neighbours=neighbours)
    # h002 masks without h005; everybody else with it.
    good = slots_of(run, "h002")
    fewer = delivered(run, {name: slot for name, slot in good.items() if name != "h005"}, "h002")
    misled = run.hospital("h002").mask(fewer, run.words["h002"], NOW).manifest
    run.lost = {"masked": {"h002"}}
    run.masked()
    entries = sorted([*views.survivor_list(run.session).entries, misled], key=lambda e: e.client)
    refuses(
        run,
        lambda: me(run).confirm(SurvivorList(entries=tuple(entries)), NOW),
        "unsigned-vector",
        "vectors of h002 are not signed",
    )
