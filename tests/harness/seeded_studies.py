"""Studies with a past, for pictures and measurements of the dashboard: rounds that no hospital has trained.

Budget, ledger and signatures are the coordinator's own; every round is reserved and settled by its accounts. Made up
are the hospitals' reports, the accuracies and the times, from a seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accounting import log_moment
from accounting.plan.report import DISTANCE_BINS, CumulativeMoments, DistanceHistogram, JointReport, report_to_dict
from accounting.plan.schemes import TRAINING_SCHEMES
from server.db.ledger_store import LedgerAccount, lock_account, names_models
from server.db.rows import append_event, clients, find_study
from server.db.session import Transaction
from server.db.tables import Answer, ModelRow, ParticipantRow, RoundRow, StudyRow
from study_protocol.study.settings import StudySettings
from tests.factories.live_coordinator import Live

_ORDERS = (2.0, 4.0, 8.0, 16.0)
_NO_MODEL = "0" * 64


def settings(
    scheme: str,
    *,
    rounds: int,
    epsilons: Mapping[str, float],
    noise: float,
    hospitals: int,
    enforcement: str | None = None,
    statistics: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Any] | None = None,
) -> StudySettings:
    """Logistic regression; `epsilons` by definition, at every level that the scheme protects.

    enforcement  of classical limits; with gaussian-filter all records are in every round
    """
    failure = {"estimator_failure_probability": 1e-6}
    limits = [
        {"level": level.value, "definition": definition, "epsilon": epsilon, "delta": 1e-5}
        | (failure if definition == "bayesian" else {} if enforcement is None else {"enforcement": enforcement})
        for level in TRAINING_SCHEMES[scheme].levels
        for definition, epsilon in epsilons.items()
    ]
    rules = TRAINING_SCHEMES[scheme]
    masked = rules.pooled
    privacy: dict[str, Any] = {
        "scheme": rules.papers or rules.id,
        "central_noise": rules.central_noise,
        "limits": limits,
        "clip_norm": 1.0,
        "client_clip_norm": 1.0 if rules.bounds_clients_too else None,
        "noise_multiplier": noise,
        "sampling_rate": 1.0 if enforcement == "gaussian-filter" else 0.25,
        "expected_batch_size": 64.0,
        "client_sampling_rate": 1.0,
        "expected_clients": float(hospitals),
        "max_steps": rounds,
        "classical_order": 6.0,
        "bayesian": _BAYESIAN if "bayesian" in epsilons else None,
        "disclosure": "plain",
        "histogram_noise": None,
        "accounting_sample": None,
        "masking": _MASKING if masked else None,
    }
    training = {
        "task": "logistic-regression",
        "task_parameters": {"label": "sepsis", "column.lactate": "0..20", "column.age": "0..110"},
        "algorithm": "fedsgd",
        "local_steps": 1,
    }
    schedule = {"min_clients": 4 if masked else 3, "round_deadline_seconds": 900.0}
    study = {"training": training, "privacy": privacy, "schedule": schedule}
    asked = {name: section for name, section in (("statistics", statistics), ("evaluation", evaluation)) if section}
    return StudySettings.model_validate(study | asked)


_BAYESIAN = {
    "orders": list(_ORDERS),
    "filter_order": 8.0,
    "estimator": "betting",
    "composition": "running",
    "adversary": "adaptive",
    "conversion": "improved",
}
_MASKING = {
    "colluders": 1,
    "neighbours": None,
    "min_survivors": 4,
    "mask_updates": True,
    "allow_three": False,
    "step_deadline_seconds": 300.0,
    "expiry_seconds": 3600.0,
}


@dataclass
class History:
    """What a study has been through.

    abandoned  round -> reason;  hours  between two rounds;  measured  every so many rounds
    open       whether one more round is under way
    """

    rounds: int
    abandoned: Mapping[int, str] = field(default_factory=dict[int, str])
    hours: float = 1.5
    measured: int = 1
    open: bool = True
    seed: int = 7


def write(coordinator: Live, study: str, past: History) -> None:
    """Add rounds to a study without one under way, as if they had happened; fewer where the budget ends before."""
    coordinator.coordinator.database.write("seed", lambda tx: _write(coordinator, tx, study, past))


def _write(coordinator: Live, tx: Transaction, study: str, past: History) -> None:
    row = find_study(tx, study)
    settings = StudySettings.model_validate(row.settings)
    chance, names = random.Random(past.seed), [client.name for client in clients(tx, row.id)]
    account = lock_account(tx, coordinator.coordinator.signer, row)
    begins = tx.now() - 3600.0 * past.hours * (past.rounds + past.open)
    row.state, before = "running", account.budget.last_round
    for place in range(1, past.rounds + past.open + 1):
        if account.budget.authorise().reason is not None:
            # The worker finds the same and ends the study.
            break
        number = before + place
        at = begins + 3600.0 * past.hours * (place - 1)
        ended = None if place > past.rounds else at + chance.uniform(200.0, 1200.0)
        round = _begin(tx, row, account, number, at, ended)
        answers = _answers(chance, len(names), past.abandoned.get(number), ended is None)
        tx.session.add_all(_participant(round, name, answer) for name, answer in zip(names, answers, strict=True))
        if ended is not None:
            _end(tx, row, account, round, settings, past, chance)


def _begin(
    tx: Transaction, row: StudyRow, account: LedgerAccount, number: int, at: float, ended: float | None
) -> RoundRow:
    account.record("reserved", number, {})
    round = RoundRow(
        study_id=row.id,
        number=number,
        state="collecting",
        base_version=0,
        started_at=at,
        deadline=at + 900.0 if ended else tx.now() + 900.0,
        ended_at=None,
        scrubbed_at=None,
    )
    tx.session.add(round)
    tx.session.flush()
    append_event(tx, row, "round-opened", number)
    return round


def _end(
    tx: Transaction,
    row: StudyRow,
    account: LedgerAccount,
    round_row: RoundRow,
    settings: StudySettings,
    past: History,
    chance: random.Random,
) -> None:
    round_row.ended_at = round_row.scrubbed_at = round_row.started_at + chance.uniform(200.0, 1200.0)
    reason = past.abandoned.get(round_row.number)
    if reason is not None:
        round_row.state, round_row.reason = "abandoned", reason
        account.conclude("cancelled", round_row, {"reason": reason})
        append_event(tx, row, "round-abandoned", round_row.number)
        return
    round_row.state = "released"
    report = _report(settings, round_row.number, chance)
    account.conclude("settled", round_row, {"report": None if report is None else report_to_dict(report)})
    metrics = _metrics(round_row.number, chance) if round_row.number % past.measured == 0 else None
    model = ModelRow(
        study_id=row.id,
        version=round_row.number,
        sha256=_NO_MODEL,
        bytes=1,
        optimiser_sha256=None,
        metrics=metrics,
        created_at=round_row.ended_at,
    )
    tx.session.add(model)
    if names_models(tx, row):
        account.record_release(model)
    append_event(tx, row, "round-released", round_row.number)


def _report(settings: StudySettings, number: int, chance: random.Random) -> Any:
    """Distances well below the clip norm, as where most gradients are small."""
    privacy = settings.privacy
    if privacy.bayesian is None:
        return None
    costs = log_moment(_ORDERS, 0.3, noise_std=privacy.noise_multiplier, sampling_rate=privacy.sampling_rate)
    moments = tuple(float(number * cost) for cost in costs)
    records = CumulativeMoments(moments[2], moments, complete=True)
    if privacy.client_clip_norm is None:
        return records
    counts = [0] * DISTANCE_BINS
    for _ in range(int(privacy.expected_clients)):
        counts[min(DISTANCE_BINS - 1, int(chance.gauss(26.0, 6.0)))] += 1
    return JointReport(DistanceHistogram(tuple(counts)), records)


def _metrics(number: int, chance: random.Random) -> dict[str, Any]:
    accuracy = 0.93 - 0.22 * math.exp(-number / 14.0) + chance.gauss(0.0, 0.004)
    values = {"accuracy": round(accuracy, 4), "auc": round(min(0.99, accuracy + 0.03), 4)}
    return {"evaluation_set": "public intensive-care set, 4,210 patients", "values": values}


def _answers(chance: random.Random, hospitals: int, reason: str | None, is_open: bool) -> Sequence[Answer]:
    if is_open:
        answers: Sequence[Answer] = ["received"] * (hospitals // 2)
        return [*answers, *["sampled"] * (hospitals - len(answers))]
    if reason is not None:
        return ["received", *["missing"] * (hospitals - 1)]
    late = chance.random() < 0.12
    return [*["received"] * (hospitals - 1), "missing" if late else "received"]


def _participant(round_row: RoundRow, name: str, answer: Answer) -> ParticipantRow:
    sent = answer == "received"
    return ParticipantRow(
        study_id=round_row.study_id,
        round=round_row.number,
        client=name,
        state=answer,
        sending_since=round_row.started_at if sent else None,
        answered_at=round_row.started_at + 60.0 if sent else None,
        sha256=_NO_MODEL if sent else None,
        bytes=1 if sent else None,
    )
