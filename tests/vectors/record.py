"""Record the studies that the second reader is held against: ledgers as `ledger export` writes them, and statements.

    python -m tests.vectors.record          writes tests/vectors/studies

Everything is the coordinator's own but the hospitals of clear studies, which are doubles with made-up updates, from a
seed. Masked studies are those of the goldens, with real training and real sums. Keys, coins and noise are seeded, so
that a new recording differs only where the program does.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from server.db.file_blobs import FileBlobs
from server.db.schema import migrate
from server.db.session import Database
from server.domain.change_request import ChangeRequest
from server.services import ledger_pages, views
from server.services.certificates import certificate
from server.services.coordinator import Coordinator
from server.services.people.audit import acting
from server.services.queries import ask, show
from server.services.studies import lifecycle
from server.signing_key import SigningKey
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import AddressedCoins, SeededRandomness
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.audit_log import Actor
from study_protocol.study.messages import StudyCreate
from study_protocol.study.queries import Consent, QueryDocument
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.settings import changed, limit, settings, statistics_settings
from tests.factories.studies import FakeClock, put_model, work
from tests.goldens.adapter.settings import settings_of
from tests.goldens.adapter.study import Study as MaskedStudy
from tests.goldens.combinations import Combination

FOLDER = Path(__file__).with_name("studies")
SEED = bytes(range(32))
# As the coordinator's deadlines of these studies, and a little more.
LATE = 601.0
BAYESIAN = {"estimator_failure_probability": 1e-4, "delta": 1e-3, "epsilon": 60.0}
EVALUATION = {"kind": "evaluation", "model": 0, "prediction": "binary"}
SCHEDULED = {"prediction": "binary", "noise_multiplier": 8.0}

# By name, in the goldens' words; their statements are those after the last round.
MASKED = {
    "distributed-noised": "client-distributed updates noised bayesian betting holder path improved none",
    "joint-at-end": "joint updates final bayesian band running adaptive chernoff members",
    "joint-noised": "joint updates noised clients betting holder adaptive improved none",
    "parallel-noised": "parallel costs noised bayesian betting running path improved members",
    "sequential-papers": "sequential updates plain bayesian betting running path improved members",
}


def key_of(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"key of {name}".encode()).digest())


def coordinator_in(folder: Path, clock: FakeClock) -> Coordinator:
    """On a database of its own; its key is that of SEED."""
    randomness = SeededRandomness(7, allow_insecure=True)
    database = Database(f"sqlite:///{folder / 'recorded.db'}", clock=clock)
    migrate(database.engine)
    return Coordinator(
        database=database,
        blobs=FileBlobs(folder / "blobs"),
        coins=AddressedCoins(randomness),
        noise=DiscreteGaussianNoise(randomness),
        signer=SigningKey(Ed25519PrivateKey.from_private_bytes(SEED)),
        origin="https://study.example.org",
    )


@dataclass
class Recording:
    """One study in the clear, driven round by round."""

    coordinator: Coordinator
    clock: FakeClock
    name: str
    chosen: AnySettings
    count: int = 4
    queries: int = 0
    hospitals: list[Hospital] = field(default_factory=list)
    moments: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.name)
        lifecycle.create(self.coordinator, StudyCreate(study=self.name, settings=self.chosen))
        if isinstance(self.chosen, StudySettings):
            put_model(self.coordinator, self.name)
        way = UseCases(self.coordinator)
        self.hospitals = [Hospital(way, self.name, f"h{i}", key_of(f"h{i}")).enrol() for i in range(self.count)]
        lifecycle.act(self._asked("start_study"), self.name, "start")
        work(self.coordinator)
        privacy = self.chosen.privacy
        reports = isinstance(self.chosen, StudySettings) and any(
            (one.level, one.definition) == ("instance", "bayesian") for one in privacy.limits
        )
        orders = 1 + len(privacy.bayesian.orders) if reports else 0
        self.moments = [[0.0] * orders for _ in self.hospitals]

    def train(self, sent: int | None = None) -> None:
        """One round in which so many of the sampled hospitals answer; None: all."""
        # After a round that came to nothing the next one waits.
        while lifecycle.show(self.coordinator, self.name).under_way is None:
            self.clock.sleep(60.0)
            work(self.coordinator)
        asked = [(i, each.assignment()) for i, each in enumerate(self.hospitals)]
        present = [(i, given.assignment.round) for i, given in asked if given is not None]
        for i, number in present[:sent]:
            # Sums of hospitals' costs only grow; the larger the order, the faster.
            grown = [0.02 * (1 + place) * self._chance.random() for place in range(len(self.moments[i]))]
            self.moments[i] = [old + new for old, new in zip(self.moments[i], grown, strict=True)]
            told = tuple(self.moments[i]) or None
            self.hospitals[i].send(number, update(0.05 * self._chance.random(), log_moments=told))
        self._close(sent)

    def ask(self, sent: int | None = None, **question: Any) -> None:
        """One question, whose round follows the one that is open; so many hospitals answer."""
        document = QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": 5.0} | question})
        self.consent(ask.ask(self._asked("ask_query"), self.name, document).body.number)
        if isinstance(self.chosen, StudySettings):
            self.train()
        self.answer(sent)

    def consent(self, number: int) -> None:
        for hospital in self.hospitals:
            ask.consent(self.coordinator, self.name, number, hospital.name, Consent(allowed=True))
        self.queries = number
        if not isinstance(self.chosen, StudySettings):
            work(self.coordinator)

    def answer(self, sent: int | None = None) -> None:
        query = show.show_query(self.coordinator, self.name, self.queries, with_clients=True)
        assert query.round is not None
        cells = [100.0 * 2**18] * query.document.question.cells
        for hospital in self.hospitals[:sent]:
            hospital.send(query.round, encode({ANSWER_TENSOR: _array(cells)}))
        self._close(sent)

    def _asked(self, operation: str) -> Coordinator:
        """The coordinator as it serves a lead, whom the ledger names."""
        lead = Actor(kind="key", id="0" * 16, name="Ada Example", role="lead")
        return acting(self.coordinator, ChangeRequest(lead, self.name, operation))

    def _close(self, sent: int | None) -> None:
        if sent is not None:
            self.clock.sleep(LATE)
        work(self.coordinator)

    def stop(self) -> None:
        lifecycle.act(self._asked("stop_study"), self.name, "stop")
        work(self.coordinator)


def _array(numbers: list[float]) -> Any:
    import numpy as np

    return np.array(numbers)


def client_central(at: Callable[..., Recording]) -> None:
    """Nine hospitals' histograms; a round charged in full, one cancelled."""
    limits = [limit("client", epsilon=60.0), limit("client", "bayesian", **BAYESIAN)]
    study = at(settings("client", bayesian={"adversary": "path"}, noise_multiplier=2.0, limits=limits, max_steps=6), 9)
    study.train()
    study.train(1)
    study.train(0)
    study.train()


def client_sampled(at: Callable[..., Recording]) -> None:
    """Secret sampling of hospitals, credited, at an order that is no whole number."""
    chosen = settings(
        "client",
        noise_multiplier=1.5,
        client_sampling_rate=0.5,
        classical_order=4.5,
        limits=[limit("client", epsilon=30.0)],
        schedule={"min_clients": 0},
        max_steps=4,
    )
    study = at(chosen, 5)
    for _ in range(3):
        study.train()


def parallel_sampled(at: Callable[..., Recording]) -> None:
    """Reports in every round; a round charged in full, one cancelled, one under way."""
    limits = [limit("instance", epsilon=40.0), limit("instance", "bayesian", epsilon=40.0)]
    how = {"bayesian": {"adversary": "path"}, "noise_multiplier": 3.0, "sampling_rate": 0.3}
    study = at(settings(**how, limits=limits, max_steps=8), 4)
    for sent in (None, None, 1, 0, None):
        study.train(sent)


def parallel_finished(at: Callable[..., Recording]) -> None:
    """Reports told at the end, which has come."""
    how = {"bayesian": {"adversary": "path", "conversion": "chernoff"}, "disclosure": "at-end"}
    study = at(settings(**how, noise_multiplier=1.5, sampling_rate=0.25, classical_order=3.5), 4)
    for _ in range(3):
        study.train()


def questions(at: Callable[..., Recording]) -> None:
    """Questions alone: answered, charged in full, cancelled."""
    study = at(statistics_settings(masked=False, epsilon=6.0), 4)
    for sent, noise in ((None, 5.0), (1, 7.5), (0, 6.0), (None, 12.5)):
        study.ask(sent, noise_multiplier=noise)


def mixed(at: Callable[..., Recording]) -> None:
    """Rounds, questions on everybody, and evaluations that cost those set aside more than the rounds cost others."""
    chosen = settings(
        statistics={"max_queries": 9, "max_cells": 100},
        evaluation={"share": 0.3},
        limits=[limit("instance", epsilon=25.0)],
        noise_multiplier=2.0,
        sampling_rate=0.2,
        max_steps=6,
        classical_order=5.0,
    )
    study = at(chosen, 4)
    study.ask(None, noise_multiplier=4.0)
    study.ask(1, noise_multiplier=6.0)
    study.ask(None, noise_multiplier=1.5, **EVALUATION)
    study.stop()


def scheduled(at: Callable[..., Recording]) -> None:
    """An allowance for questions against a path, and evaluations by a schedule; one of them is under way."""
    chosen = settings(
        bayesian={"adversary": "path"},
        statistics={"max_queries": 9, "max_cells": 100, "allowance": 0.08},
        evaluation={"share": 0.3, "every": 2, "question": SCHEDULED},
        limits=[limit("instance", epsilon=40.0), limit("instance", "bayesian", epsilon=40.0)],
        noise_multiplier=2.0,
        sampling_rate=1.0,
        expected_batch_size=40.0,
        max_steps=6,
    )
    study = at(chosen, 4)
    study.ask(None, noise_multiplier=5.0)
    study.train()
    study.consent(2)
    study.train()


def fixed_plan(at: Callable[..., Recording]) -> None:
    """A plan of eight steps with a share for questions: a round cancelled, one charged in full, stopped early."""
    chosen = settings(
        statistics={"max_queries": 9, "max_cells": 100, "share": 0.1},
        limits=[limit("instance", epsilon=4.0, enforcement="fixed-plan")],
        noise_multiplier=2.0,
        sampling_rate=0.2,
        max_steps=8,
    )
    study = at(chosen, 4)
    study.ask(None, noise_multiplier=15.0)
    study.train(0)
    study.train(1)
    study.stop()


def planned_pending(at: Callable[..., Recording]) -> None:
    """A plan of six steps whose second round is under way."""
    limits = [limit("instance", epsilon=4.0, enforcement="fixed-plan")]
    at(settings(limits=limits, noise_multiplier=2.0, sampling_rate=0.2, max_steps=6), 4).train()


def gaussian_filter(at: Callable[..., Recording]) -> None:
    """All records in every round, and questions, under one sum of squares; a round under way."""
    chosen = settings(
        statistics={"max_queries": 9, "max_cells": 100},
        limits=[limit("instance", epsilon=6.0, enforcement="gaussian-filter")],
        noise_multiplier=4.0,
        sampling_rate=1.0,
        expected_batch_size=40.0,
        max_steps=8,
    )
    study = at(chosen, 4)
    study.ask(None, noise_multiplier=5.0)
    study.train(0)
    study.train(1)
    study.train()


CLEAR: Mapping[str, tuple[Callable[[Callable[..., Recording]], None], str]] = {
    each.__name__.replace("_", "-"): (each, each.__doc__ or "")
    for each in (
        client_central,
        client_sampled,
        parallel_sampled,
        parallel_finished,
        questions,
        mixed,
        scheduled,
        fixed_plan,
        planned_pending,
        gaussian_filter,
    )
}


def exported(coordinator: Coordinator, study: str) -> tuple[str, str]:
    """The ledger as `ledger export` writes it, and the statement as it is served."""
    page = ledger_pages.ledger_page(coordinator, study, limit=10_000)
    last = {
        "head": page.head.model_dump(mode="json"),
        "coordinator_key": coordinator.signer.public_key,
        "roster": views.roster(coordinator, study).model_dump(mode="json"),
        "witnesses": [witness.model_dump(mode="json") for witness in page.witnesses],
    }
    lines = [*(entry.model_dump(mode="json") for entry in page.entries), last]
    ledger = "".join(f"{json.dumps(line, sort_keys=True, ensure_ascii=False)}\n" for line in lines)
    return ledger, views.read_budget(coordinator, study).model_dump_json(indent=1) + "\n"


def run(name: str, folder: Path) -> Coordinator:
    """The study of this name, as far as it is recorded, on a coordinator under `folder`."""
    clock = FakeClock()
    coordinator = coordinator_in(folder, clock)
    if name in CLEAR:
        CLEAR[name][0](lambda chosen, count: Recording(coordinator, clock, name, chosen, count))
    else:
        run_masked(coordinator, name, Combination.parse(MASKED[name]))
    return coordinator


def run_masked(coordinator: Coordinator, name: str, chosen: Combination) -> None:
    study = settings_of(chosen)
    if name in ("distributed-noised", "parallel-noised"):
        # Steps enough to the deviation that loss distributions answer; in the third one Rényi divergences do.
        study = changed(study, histogram_noise={"std": 12.0, "every": 2})
    MaskedStudy(coordinator, name, study, SeededRandomness(11, allow_insecure=True)).run()


def record(into: Path) -> None:
    """Every study, and the certificate of the one that has finished."""
    into.mkdir(exist_ok=True)
    for name in (*CLEAR, *MASKED):
        with tempfile.TemporaryDirectory() as folder:
            coordinator = run(name, Path(folder))
            ledger, statement = exported(coordinator, name)
            (into / f"{name}.jsonl").write_text(ledger)
            (into / f"{name}.statement.json").write_text(statement)
            if name == "parallel-finished":
                signed = certificate(coordinator, name)
                (into / f"{name}.certificate.json").write_text(signed.model_dump_json(indent=1) + "\n")
            coordinator.database.dispose()


if __name__ == "__main__":
    record(FOLDER)
