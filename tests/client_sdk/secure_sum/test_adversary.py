"""A coordinator that calls any step of any hospital in any order, with any of the material it has collected.

Whatever it does, of every hospital at most one secret can be rebuilt, and at most one sum per round.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from client_sdk.secure_sum.refusals import SecureSumRefused
from study_protocol.secure_sum import transcript
from study_protocol.secure_sum.graph import Graph
from study_protocol.secure_sum.messages import (
    SLOT_BYTES,
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SessionParameters,
    SharesMessage,
    SurvivorList,
    UnmaskMessage,
    opened_shares,
)
from study_protocol.secure_sum.shamir import SHARE_BYTES
from study_protocol.study.messages import SignedParameters
from tests.factories.secure_sum import NOW, World, small_counts

# t is 4 of all 6, and of the 5 of a neighbourhood on a ring of 4 neighbours.
CLIENTS, THRESHOLD, RING = 6, 4, 4
STEPS = ("advertise", "share", "mask", "confirm", "unmask")


@dataclass
class Collected:
    """What one session has yielded so far, newest per hospital."""

    signed: SignedParameters
    keys: dict[str, KeysMessage] = field(default_factory=dict)
    cohorts: dict[str, tuple[KeysMessage, ...]] = field(default_factory=dict)
    shares: dict[str, SharesMessage] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    consistency: dict[str, ConsistencyMessage] = field(default_factory=dict)
    unmasks: dict[str, UnmaskMessage] = field(default_factory=dict)
    opened: dict[str, list[tuple[str, str]]] = field(default_factory=dict)


class Adversary:
    def __init__(self, seed: int, neighbours: int | None) -> None:
        self.dice = random.Random(seed)
        self.world = World(CLIENTS, 1, tag=f"adversary {seed}", neighbours=neighbours)
        self.words = small_counts(self.world)
        self.honesty = self.dice.choice((0.8, 0.95, 0.99))
        self.sessions: list[Collected] = []
        self.joined: dict[str, Collected] = {}
        self.refused: Counter[str] = Counter()

    def _new_session(self) -> Collected:
        return Collected(self.world.signed(self.world.parameters()))

    def some(self, names: list[str]) -> list[str]:
        """Mostly all, else all but one, or any subset."""
        kind = self.dice.random()
        if kind < self.honesty or not names:
            return sorted(names)
        if kind < self.honesty + (1 - self.honesty) / 2:
            return sorted(set(names) - {self.dice.choice(names)})
        return sorted(name for name in names if self.dice.random() < 0.5)

    def play(self) -> None:
        """Up to three sessions: each goes through its steps with hospitals missing and lists varied, then at random."""
        for _ in range(self.dice.choice((1, 2, 3))):
            self.sessions.append(self._new_session())
            for move in STEPS:
                for name in self.dice.sample(self.world.names, CLIENTS - self.dice.choice((0, 0, 0, 1))):
                    self.attempt(move, name)
            for _ in range(40):
                self.attempt(self.dice.choice(STEPS), self.dice.choice(self.world.names))

    def attempt(self, move: str, name: str) -> None:
        if move != "advertise" and name not in self.joined:
            return
        try:
            getattr(self, move)(name)
        except SecureSumRefused as refused:
            self.refused[refused.code] += 1

    def advertise(self, name: str) -> None:
        session = self.sessions[-1] if self.dice.random() < 0.9 else self.dice.choice(self.sessions)
        message = self.world.hospitals[name].client.advertise(session.signed, self.world.plan, NOW)
        session.keys[name], self.joined[name] = message, session

    def share(self, name: str) -> None:
        session = self.joined[name]
        entries = tuple(session.keys[peer] for peer in self.some(list(session.keys)))
        message = self.world.hospitals[name].client.share(KeyList(entries=entries), NOW)
        session.shares[name], session.cohorts[name] = message, entries

    def mask(self, name: str) -> None:
        session = self.joined[name]
        slots = {
            peer: slot
            for peer in self.some(list(session.shares))
            if peer != name
            if (slot := self._slot(session, peer, name))
        }
        # Who is no neighbour of the reader, as that sees it, is only named.
        near = self._graph(session, name).neighbours(name) if name in session.cohorts else tuple(slots)
        row = b"".join(slots[peer] for peer in sorted(slots) if peer in near)
        inbox = Inbox(sharers=tuple(sorted({*slots, name})), slots=row)
        upload = self.world.hospitals[name].client.mask(inbox, self.words[name], NOW)
        session.manifests[name] = upload.manifest

    def _slot(self, session: Collected, sender: str, recipient: str) -> bytes:
        graph = self._graph(session, sender)
        others = graph.neighbours(sender)
        if recipient not in others:
            # Far away on the ring as the sender sees it: named all the same, with bytes that nobody should read.
            return bytes(SLOT_BYTES) if recipient in graph.members else b""
        start = SLOT_BYTES * others.index(recipient)
        return session.shares[sender].slots[start : start + SLOT_BYTES]

    def _graph(self, session: Collected, name: str) -> Graph:
        """As this hospital was shown it."""
        entries = session.cohorts[name]
        parameters = session.signed.parameters
        members = ((entry.client, entry.share_key, entry.mask_key) for entry in entries)
        h1 = transcript.cohort_hash(transcript.parameters_hash(parameters), members)
        neighbours = SessionParameters.from_bytes(parameters).neighbours
        return Graph(h1, tuple(entry.client for entry in entries), neighbours)

    def confirm(self, name: str) -> None:
        session = self.joined[name]
        entries = tuple(session.manifests[peer] for peer in self.some(list(session.manifests)))
        session.consistency[name] = self.world.hospitals[name].client.confirm(SurvivorList(entries=entries), NOW)

    def unmask(self, name: str) -> None:
        session = self.joined[name]
        signatures = ConsistencyList(entries=tuple(session.consistency.values()))
        message = self.world.hospitals[name].client.unmask(signatures, NOW)
        stored = self.world.hospitals[name].session
        survivors = {entry.client for entry in stored.survivors}
        holders = self._graph(session, name).holders(name)
        peers = [peer for peer in stored.sharers if peer in holders]
        opened = list(opened_shares(peers, survivors, message.shares))
        # What left this hospital is what its store said at that time.
        assert len(message.shares) == SHARE_BYTES * len(opened)
        session.unmasks[name], session.opened[name] = message, [(peer, kind) for peer, kind, _ in opened]


def completed(session: Collected) -> bool:
    return len(session.unmasks) >= THRESHOLD


def check(adversary: Adversary) -> None:
    """The promises, over everything that was ever opened."""
    released = Counter(name for session in adversary.sessions for name in session.unmasks)
    assert all(count == 1 for count in released.values()), "a hospital opened two sessions of one round"
    assert sum(completed(session) for session in adversary.sessions) <= 1, "two sums for one round"
    for session in adversary.sessions:
        shares = Counter(kind for name in session.unmasks for kind in session.opened[name])
        for peer in adversary.world.names:
            both = (shares[peer, "seed"], shares[peer, "mask-key"])
            assert min(both) < THRESHOLD, f"both secrets of {peer} can be rebuilt"
            # Stronger, thanks to the consistency exchange: nobody ever opens the other kind.
            assert min(both) == 0, f"hospitals disagree about {peer}"


@pytest.fixture(scope="module", params=[None, RING], ids=["complete", "ring"])
def played(request: pytest.FixtureRequest) -> list[Adversary]:
    games = [Adversary(seed, request.param) for seed in range(40)]
    for game in games:
        game.play()
    return games


@pytest.mark.quick("complete")
def test_no_order_of_calls_breaks_the_promises(played) -> None:
    for game in played:
        check(game)


@pytest.mark.quick("complete")
def test_the_games_went_deep_enough_to_mean_something(played) -> None:
    refused = sum((game.refused for game in played), Counter())
    assert sum(any(completed(session) for session in game.sessions) for game in played) >= 3
    assert sum(any(session.unmasks for session in game.sessions) for game in played) >= 5
    expected = {"second-key-list", "malformed-share", "few-shares", "few-survivors", "few-signatures", "session-over"}
    assert expected <= set(refused), expected - set(refused)
