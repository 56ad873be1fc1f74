"""Every drop-out over real HTTP: hospitals in threads fall silent at each step, one after the other in one study.

Deadlines cost no time: the coordinator's database lives by a clock that the test moves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy.orm import undefer_group

from client_sdk.api.client import Client, ServerClock, Signature
from client_sdk.api.config import Connection
from client_sdk.errors import SessionEnded
from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.delivery import ring_vectors_of
from client_sdk.secure_sum.round import MaskedRound
from client_sdk.secure_sum.steps import Party
from client_sdk.secure_sum.store import FileStore, RoundRecord
from private_learning.training import Contribution
from server.db.tables import SessionMessageRow, SessionRow
from server.services import views
from server.services.secure_sum import lists
from study_protocol.randomness.source import SecureRandomness
from study_protocol.secure_sum.messages import SessionParameters
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.secure_sum.vectors import RingVector
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import decode_public_key
from study_protocol.wire.tensors import spec_of
from tests.factories import laws
from tests.factories.dying import Killed
from tests.factories.hospital_double import MODEL, Hospital
from tests.factories.live_coordinator import ORIGIN, Live, live
from tests.factories.settings import settings
from tests.factories.studies import FakeClock, read_model

pytestmark = pytest.mark.timeout(300)

STUDY = "sepsis"
NAMES = tuple(f"h{i}" for i in range(6))  # t = 4 and at least 4 survivors: two may go
SPARE = 2
# Who is lost before a step dies at this failpoint; before keys it never comes.
DIES_AT = {"shares": "keys", "masked": "shares", "consistency": "octets", "unmask": "consistency"}
STEPS = ("keys", *DIES_AT)
# The phases of a session, each with what everybody alive has said when it may end.
PHASES = {"keys": "keys", "shares": "shares", "masked": "manifest", "consistency": "consistency", "unmask": "unmask"}
CELLS = [(step, gone) for step in STEPS for gone in range(1, SPARE + 2)]
# Ends (session's failure, ledger entry) with one more gone than can be borne; only opened shares cost anything.
TOO_MANY = {
    "keys": ("too-few-keys", "cancelled"),
    "shares": ("too-few-shares", "cancelled"),
    "masked": ("too-few-survivors", "cancelled"),
    "consistency": ("expired", "cancelled"),
    "unmask": ("expired", "charged-in-full"),
}


@dataclass
class Steps:
    """Kills whoever is to die at a failpoint."""

    dying: dict[str, str] = field(default_factory=dict)

    def begin(self, dying: dict[str, str]) -> None:
        self.dying = dying

    def come(self, name: str) -> None:
        step = name.removeprefix("hospital.after-")
        if self.dying.get(threading.current_thread().name) == step:
            raise Killed(name)


class Site:
    """One hospital's half of every round: the real requests and the state on a disk, without any training."""

    def __init__(self, here: Live, who: Hospital, settings: StudySettings, folder: Path) -> None:
        self.settings, self.name = settings, who.name
        self.store = FileStore(folder / who.name)
        self.value = (int(who.name[1:]) + 1) / 64
        members = views.roster(here.coordinator, STUDY)
        self.party = Party(
            client=who.name,
            identity=who.key,
            coordinator=decode_public_key(here.coordinator.signer.public_key),
            roster={m.client: decode_public_key(m.public_key) for m in members.members},
            roster_fingerprint=members.fingerprint,
            floors=Floors(colluders=1, min_survivors=4, allow_three=False),
        )
        signature = Signature(who.key, who.name, STUDY, ORIGIN)
        clock = ServerClock(here.now)
        self.client = Client(Connection(url=here.url, patience_seconds=30.0), signature, clock=clock)
        self.ended: BaseException | None = None

    def take_part(self) -> None:
        """One round; `ended` is what came between."""
        self.ended = None
        try:
            given = self.client.assignment(STUDY, 0)
            assert given is not None
            reported = given.assignment
            model = spec_of(MODEL)
            plan = SessionPlan.of(
                *(self.settings, model),
                study=STUDY,
                round_number=reported.round,
                roster=reported.roster_sha256,
                model=reported.model.sha256,
                ledger=(reported.ledger.entries, reported.ledger.sha256),
            )
            masked = MaskedRound(self.client, self.party, plan, self.store)
            assert given.session is not None
            vectors = masked.prepare(given.session)
            update = {name: np.full_like(array, self.value) for name, array in MODEL.items()}
            words: dict[str, RingVector] = ring_vectors_of(
                *(self.settings.privacy, model, vectors, Contribution(update, None), None),
                records=100,
                randomness=SecureRandomness().in_round(self.party.client, reported.round),
            )
            masked.complete(words)
        except (SessionEnded, Killed, AssertionError) as ended:
            self.ended = ended

    def released(self, round: int) -> bool:
        raw = self.store.load(STUDY, round)
        return raw is not None and RoundRecord.from_bytes(raw).released


@dataclass
class Scene:
    """One study in which everything happens, and the clock that its deadlines pass by."""

    here: Live
    clock: FakeClock
    steps: Steps
    sites: list[Site]
    rounds: int = 0

    def play(self, step: str, lost: set[str]) -> None:
        """The next round, from which `lost` fall silent before `step`."""
        self.rounds += 1
        absent = lost if step == "keys" else set[str]()
        self.steps.begin(dict.fromkeys(lost, DIES_AT.get(step, "")))
        threads = {
            site.name: threading.Thread(target=site.take_part, name=site.name)
            for site in self.sites
            if site.name not in absent
        }
        for thread in threads.values():
            thread.start()
        for phase, reached in PHASES.items():
            if lists.read_session(self.here.coordinator, STUDY, self.rounds)[1].phase == "failed":
                break
            silent = lost if STEPS.index(step) <= STEPS.index(phase) else set[str]()
            self.wait(reached, len(NAMES) - len(silent))
            for name in silent - absent:
                threads[name].join(30)
            if silent:
                self.pass_deadline(phase)
            self.here.work()
        for thread in threads.values():
            thread.join(30)
            assert not thread.is_alive()
        for site in self.sites:
            assert not isinstance(site.ended, AssertionError), site.ended
            assert (site.name in lost - absent) == isinstance(site.ended, Killed)

    def pass_deadline(self, phase: str) -> None:
        """If the session still waits in this phase, for those who are lost."""
        view = lists.read_session(self.here.coordinator, STUDY, self.rounds)[1]
        parameters = SessionParameters.from_bytes(view.signed.parameters)
        due = parameters.deadlines.model_dump().get(phase, parameters.expires + 1)
        # While shares are opened the session waits for the worker, unless too few have replied.
        if view.phase == phase and (phase != "unmask" or self.said(phase) < parameters.threshold):
            self.clock.seconds = float(due)

    def said(self, step: str) -> int:
        """How many have said something at this step of the round."""
        return sum(message.step == step for message in self.rows(self.rounds)[1])

    def wait(self, step: str, count: int) -> None:
        """Until so many have: nobody has the answer before all have, or the deadline has passed."""
        end = time.monotonic() + 30
        while self.said(step) < count:
            assert time.monotonic() < end, (step, count, self.said(step))
            time.sleep(0.01)

    def go_on(self) -> None:
        """The pause after a round that came to nothing passes, and the next one begins."""
        self.clock.seconds += 61.0
        self.here.work()

    def rows(self, round: int) -> tuple[SessionRow, list[SessionMessageRow]]:
        return self.here.coordinator.database.read(
            "look",
            lambda tx: (
                tx.session.query(SessionRow).options(undefer_group("large")).filter_by(round=round).one(),
                tx.session.query(SessionMessageRow).filter_by(round=round).all(),
            ),
        )

    def model(self, version: int) -> float:
        """All weights are alike."""
        (value,) = {float(v) for a in read_model(self.here.coordinator, STUDY, version).values() for v in a.flat}
        return value


@pytest.fixture
def scene(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    # A power of two, so that means of these updates are exact in float32.
    chosen = settings(masked=True, max_steps=len(CELLS), expected_clients=4.0)
    clock, steps = FakeClock(), Steps()
    monkeypatch.setattr("client_sdk.secure_sum.round.failpoint", steps.come)
    with live(tmp_path / "home", time_of_day=clock, database_url=database_url, long_poll_seconds=2.0) as here:
        enrolled = here.running(STUDY, *NAMES, settings=chosen)
        sites = [Site(here, who, chosen, tmp_path / "hospitals") for who in enrolled]
        yield Scene(here, clock, steps, sites)
        for site in sites:
            site.client.close()
            site.store.close()


@pytest.mark.slow
def test_at_every_step_as_many_may_go_as_were_promised_and_one_more_ends_the_round(scene: Scene) -> None:
    weights = 0.0
    for step, gone in CELLS:
        # Everybody is lost some time, and comes back with what is on its disk.
        lost = {NAMES[(scene.rounds + i) % len(NAMES)] for i in range(gone)}
        scene.play(step, lost)
        found = laws.facts(scene.here.coordinator)
        round, case = found.rounds[scene.rounds - 1], (step, gone)
        (kind,) = [e.kind for e in found.entries if e.round == round.number and e.kind not in ("reserved", "released")]
        row, said = scene.rows(round.number)
        assert [m.step for m in said if m.step in ("shares", "unmask") and m.body is not None] == [], case
        assert scene.here.coordinator.blobs.folders(f"rounds/{STUDY}") == [], case
        if gone <= SPARE:
            counted = NAMES if step in ("consistency", "unmask") else set(NAMES) - lost
            total = sum(site.value for site in scene.sites if site.name in counted)
            assert (round.state, kind, set(row.survivors)) == ("released", "settled", set(counted)), case
            assert weights - scene.model(round.number) == total / 4, case
            weights = scene.model(round.number)
            assert all(site.ended is None for site in scene.sites if site.name not in lost), case
        else:
            assert (row.failure, kind) == TOO_MANY[step], case
            assert (round.state, round.reason) == ("abandoned", row.failure), case
            _nothing_is_revealed(scene, row, said, step)
            left = [site.ended for site in scene.sites if site.name not in lost]
            assert [str(e.code) for e in left if isinstance(e, SessionEnded)] == [row.failure] * len(left), case
            scene.go_on()
    found = laws.facts(scene.here.coordinator)
    laws.check_ledger(found)
    laws.check_rounds(found)
    assert [model.version for model in found.models] == [0, *(i + 1 for i, (_, g) in enumerate(CELLS) if g <= SPARE)]


def _nothing_is_revealed(scene: Scene, row: SessionRow, said: list[SessionMessageRow], step: str) -> None:
    opened = [m for m in said if m.step == "unmask"]
    threshold = SessionParameters.from_bytes(row.parameters).threshold
    assert row.result is None
    assert row.reported is None
    assert row.opened == (step == "unmask")
    assert len(opened) == (threshold - 1 if step == "unmask" else 0), "fewer than t shares rebuild nothing"
    assert sum(site.released(row.round) for site in scene.sites) == len(opened)
