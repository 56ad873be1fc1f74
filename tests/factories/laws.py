"""What must be true of a study whatever happened to it: checked from the database, the files and what clients know."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accounting.budget.budget import Budget, replay
from accounting.budget.ledger import Entry, digest
from server.db.rows import settings_of
from server.db.session import Transaction
from server.db.tables import BudgetRow, EventRow, LedgerRow, ModelRow, ParticipantRow, RoundRow, StudyRow
from server.db.tamper_check import entry_of
from server.domain.admission import central_noise, coordinates
from server.services import views
from server.services.coordinator import Coordinator
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.tensors import UPDATE, decode, encode, metadata_in, prefixed, spec_of, terms_spec
from tests.factories.hospital_double import MODEL
from tests.factories.studies import read_model


@dataclass
class RecordedNoise:
    """The real noise, remembered draw by draw."""

    draws: list[NDArray[np.int64]] = field(default_factory=list)
    _source: DiscreteGaussianNoise = field(default_factory=DiscreteGaussianNoise)

    def of(self, round: int) -> Callable[[float, int], NDArray[np.int64]]:
        draw = self._source.of(round)

        def recorded(std: float, size: int) -> NDArray[np.int64]:
            self.draws.append(draw(std, size))
            return self.draws[-1]

        return recorded


@dataclass
class Facts:
    """Everything that the database says about the one study in it."""

    settings: StudySettings
    study: StudyRow
    budget: BudgetRow
    entries: list[Entry]
    rounds: list[RoundRow]
    participants: list[ParticipantRow]
    models: list[ModelRow]
    events: list[EventRow]


def facts(coordinator: Coordinator) -> Facts:
    def work(tx: Transaction) -> Facts:
        rows = tx.session
        study = rows.query(StudyRow).one()
        return Facts(
            settings_of(study),
            study,
            rows.query(BudgetRow).one(),
            [entry_of(row) for row in rows.query(LedgerRow).order_by(LedgerRow.sequence)],
            rows.query(RoundRow).order_by(RoundRow.number).all(),
            rows.query(ParticipantRow).all(),
            rows.query(ModelRow).order_by(ModelRow.version).all(),
            rows.query(EventRow).order_by(EventRow.number).all(),
        )

    return coordinator.database.read("facts", work)


def check_ledger(found: Facts) -> None:
    """The chain holds, the row is what the chain says, nobody paid more than was reserved, nothing began without."""
    # Exactly, not nearly: a replayed float is the same float.
    assert found.budget.state == replay(found.entries).state()
    assert (found.budget.entries, found.budget.head_sha256) == (found.entries[-1].sequence, found.entries[-1].sha256)
    budget = Budget(plan_of(found.settings))
    reserved: list[float] = []
    for entry in found.entries[1:]:
        if entry.kind == "reserved":
            assert budget.authorise().is_allowed
            reserved = [
                account.epsilon_after_worst_round(publishes=budget.plan.publishes(entry.round or 0))
                for account in budget.accounts
            ]
        budget.apply(entry)
        if entry.kind in ("settled", "charged-in-full", "cancelled"):
            assert all(account.epsilon() <= most for account, most in zip(budget.accounts, reserved, strict=True))
        for account in budget.accounts:
            assert account.epsilon() <= account.limit.epsilon


def check_rounds(found: Facts) -> None:
    """Every round has its entries, every released round was paid for before, and was released once."""
    numbers = [round.number for round in found.rounds]
    assert numbers == [entry.round for entry in found.entries if entry.kind == "reserved"]
    endings = {
        entry.round: entry.kind for entry in found.entries if entry.kind in ("settled", "charged-in-full", "cancelled")
    }
    order = [(event.kind, event.round) for event in found.events]
    for round in found.rounds:
        if round.state in ("settled", "released"):
            assert endings[round.number] == "settled"
        elif round.state == "collecting":
            assert round.number not in endings
        else:
            assert round.number in endings
        if round.state == "released":
            assert order.count(("round-released", round.number)) == 1
            assert order.index(("round-settled", round.number)) < order.index(("round-released", round.number))
    assert [model.version for model in found.models if model.version > 0] == [
        round.number for round in found.rounds if round.state == "released"
    ]
    assert sum(round.ended_at is None for round in found.rounds) <= 1


def check_receipts(found: Facts, receipts: Mapping[tuple[int, str], bytes]) -> None:
    """What a client was told is recorded is recorded."""
    recorded = {(row.round, row.client): row.sha256 for row in found.participants if row.state == "received"}
    for key, body in receipts.items():
        assert recorded[key] == hashlib.sha256(body).hexdigest()


def check_model_file(coordinator: Coordinator, found: Facts, number: int) -> None:
    """A released file says which study and round it is of, and names the entry that settled the round."""
    (settled,) = [e for e in found.entries if (e.kind, e.round) == ("settled", number)]
    said = metadata_in(views.locate_model(coordinator, found.study.name, number).open().read(0, 1 << 30))
    assert said == {
        "wardround": "1",
        "study": found.study.name,
        "round": str(number),
        "task": found.settings.training.task,
        "task_parameters": canonical_json(found.settings.as_json()["training"]["task_parameters"]).decode(),
        "columns": said["columns"],
        "settings_sha256": digest(found.study.settings),
        "ledger_entries": str(settled.sequence),
        "ledger_sha256": settled.sha256,
    }


def check_models(
    coordinator: Coordinator, found: Facts, sent: Mapping[tuple[int, str], bytes], noise: RecordedNoise
) -> None:
    """Every released model is the one before plus the average of exactly the recorded updates and one draw of noise.

    For the plain optimiser and fedavg. Recomputed without the code under test.
    """
    spec = spec_of(MODEL)
    body = prefixed(spec, UPDATE)
    if found.settings.privacy.scheme == "parallel" and found.settings.privacy.bayesian is not None:
        body |= terms_spec(len(found.settings.privacy.bayesian.orders))
    mechanism = central_noise(found.settings.privacy, coordinates(spec))
    for round in found.rounds:
        if round.state != "released":
            continue
        check_model_file(coordinator, found, round.number)
        moved = np.zeros(coordinates(spec))
        for row in found.participants:
            if (row.round, row.state) == (round.number, "received"):
                tensors = decode(sent[row.round, row.client], body)
                flat = np.concatenate([tensors[UPDATE + name].ravel().astype(np.float64) for name in sorted(spec)])
                moved += flat if mechanism is None else np.rint(flat / mechanism.spacing) * mechanism.spacing
        before, after = (
            np.concatenate([model[name].ravel() for name in sorted(spec)])
            for model in (
                read_model(coordinator, found.study.name, round.base_version),
                read_model(coordinator, found.study.name, round.number),
            )
        )
        expected = [moved]
        if mechanism is not None:
            sizes = [MODEL[name].size for name in sorted(spec)]
            # Draws that a killed worker never committed are among them: one draw must fit, and no other.
            grouped = zip(*(noise.draws[i :: len(sizes)] for i in range(len(sizes))), strict=False)
            expected = [moved + np.concatenate(draw) * mechanism.spacing for draw in grouped]
        count = found.settings.privacy.expected_clients
        candidates = [(before.astype(np.float64) + values / count).astype(np.float32) for values in expected]
        matching = [v for v, c in zip(expected, candidates, strict=True) if np.array_equal(after, c)]
        assert len(matching) == 1
        if mechanism is not None:
            # The draw in the model is the one whose digest was committed before.
            assert _sum_digest(matching[0]) == round.noised_sha256


def _sum_digest(values: NDArray[np.float64]) -> str:
    parts, start = dict[str, NDArray[np.float64]](), 0
    for name in sorted(MODEL):
        parts[name] = values[start : start + MODEL[name].size].reshape(MODEL[name].shape)
        start += MODEL[name].size
    return hashlib.sha256(encode(parts)).hexdigest()
