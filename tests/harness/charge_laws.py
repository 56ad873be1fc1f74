"""Laws of what was charged: by a formula that shares no code with the accounts, and at both ends alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry
from accounting.plan.queries import QueryCost
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import RoundView
from study_protocol.study.settings import StudySettings
from tests.harness.law_broken import LawBroken

# Two sums of some thousand floats in another order.
RELATIVE_TOLERANCE = 1e-9
_CHARGED = ("settled", "charged-in-full")


def spent_is_what_the_formula_says(settings: AnySettings, entries: Sequence[Entry], budget: Budget) -> None:
    """The classical limit of a study of Gaussian steps at integer order, in the clear or under masks.

    Rényi divergence of the sampled Gaussian at an integer order (Mironov, Talwar & Zhang 2019, equation 3) and its
    conversion (Canonne, Kamath & Steinke 2020, proposition 12), by sums of binomials.
    """
    if not isinstance(settings, StudySettings) or settings.privacy.scheme not in ("parallel", "client"):
        return
    ended = {entry.round for entry in entries if entry.kind in _CHARGED}
    charged = sorted(ended & {entry.round for entry in entries if entry.kind == "reserved"}, key=lambda r: r or 0)
    asked_costs = [entry.body["cost"] for entry in entries if entry.kind == "asked" and entry.round in ended]
    order = int(settings.privacy.classical_order) + 1
    noises = [settings.privacy.noise_multiplier * _factor(settings, entries, round or 0) for round in charged]
    trained = math.fsum(_renyi(order, _rate(settings), noise) for noise in noises)
    everybody = ("all", "evaluated")
    sides = [(trained, ("all",)), (0.0, everybody)] if settings.evaluation else [(trained, everybody)]
    for limit in budget.statements():
        if limit["definition"] != "classical" or limit["spent"] is None:
            continue
        if limit.get("progress") is not None:
            _counted_as_it_happened(limit, noises, settings)
            continue
        expected = 0.0
        for steps, bearers in sides:
            costs = [(cost["sensitivity"] / cost["noise_std"]) ** 2 for cost in asked_costs if cost["bears"] in bearers]
            divergence = steps + math.fsum(order * cost / 2 for cost in costs)
            if divergence > 0:
                expected = max(expected, _converted(order, divergence, _delta(settings, limit)))
        if not abs(limit["spent"] - expected) <= RELATIVE_TOLERANCE * max(1.0, expected):
            raise LawBroken(f"{limit['level']}: {limit['spent']} is stated, and {expected} follows from the events")


def _counted_as_it_happened(limit: Mapping[str, Any], noises: Sequence[float], settings: StudySettings) -> None:
    """Steps of a fixed plan are those of all charged rounds. Squares are at least theirs, and the guarantee stands."""
    rounds = len(noises)
    progress, guaranteed = limit["progress"], limit["spent"]
    if progress["enforcement"] == "fixed-plan":
        used, allowed = progress["steps"]["used"], progress["steps"]["allowed"]
        is_counted = used == rounds * settings.steps_per_round
    else:
        used, allowed = progress["squares"]["used"], progress["squares"]["allowed"]
        trained = settings.steps_per_round * math.fsum(1 / noise**2 for noise in noises)
        is_counted = used >= trained * (1 - RELATIVE_TOLERANCE) and (rounds == 0 or guaranteed == limit["epsilon"])
    if not (is_counted and used <= allowed and guaranteed <= limit["epsilon"]):
        raise LawBroken(f"{limit['level']}: {used} of {allowed} and ε {guaranteed} are stated after {rounds} rounds")


def _rate(settings: StudySettings) -> float:
    privacy = settings.privacy
    rate = privacy.client_sampling_rate if privacy.scheme == "client" else privacy.sampling_rate
    return 1.0 if rate is None else rate


def _delta(settings: StudySettings, limit: dict[str, object]) -> float:
    (delta,) = [
        own_limit.delta
        for own_limit in settings.privacy.limits
        if (own_limit.level, own_limit.definition) == (limit["level"], limit["definition"])
    ]
    return delta


def _renyi(order: int, rate: float, noise: float) -> float:
    terms = (
        math.comb(order, k) * rate**k * (1 - rate) ** (order - k) * math.exp(k * (k - 1) / (2 * noise**2))
        for k in range(order + 1)
    )
    return math.log(math.fsum(terms)) / (order - 1)


def _converted(order: int, divergence: float, delta: float) -> float:
    return divergence + math.log(1 - 1 / order) - math.log(delta * order) / (order - 1)


def hospital_agrees(
    name: str, home: Path, study: str, settings: AnySettings, entries: Sequence[Entry], views: Sequence[RoundView]
) -> int:
    """The hospital's ledger says what the coordinator's does, or more: rounds that it paid for and were given back.

    Returns:
        How many rounds more.
    """
    begun = {entry.round: entry for entry in entries if entry.kind in ("reserved", "asked")}
    charged = {entry.round for entry in entries if entry.kind in _CHARGED}
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        paid = {e.round: e for e in ledger.entries if e.kind == "reserved" and e.body["study"] == study}
        finished = {e.round for e in ledger.entries if e.kind == "settled" and e.body["study"] == study}
        head = ledger.seen_ledger(study).head
    if head.sequence and (len(entries) < head.sequence or entries[head.sequence - 1].sha256 != head.sha256):
        raise LawBroken(f"{name} has seen a ledger that the coordinator's does not continue")
    for round, entry in paid.items():
        if round not in begun:
            raise LawBroken(f"{name} paid for round {round}, which was never reserved")
        cost = begun[round].body.get("cost")
        if cost is None and not isinstance(settings, StudySettings):
            raise LawBroken(f"round {round} of a study of questions asks none")
        place = _place(settings, entries, round or 0)
        expected = Charge.of_query(QueryCost(**cost)) if cost else Charge.of(settings, [round or 0], place)  # type: ignore[arg-type]
        if not cost and entry.body.get("attempt") != place:
            raise LawBroken(f"{name} paid for another place in the noise schedule than that of round {round}")
        if Charge.from_body(entry.body) != expected:
            raise LawBroken(f"{name} paid another price for round {round} than its settings say")
    received_rounds = {v.round for v in views for c in v.clients or [] if c.client == name and c.state == "received"}
    if missing := sorted(round for round in received_rounds if round not in paid or round not in finished):
        raise LawBroken(
            f"the coordinator has an update of {name} for round {missing[0]}, which its ledger does not know"
        )
    if free := sorted(received_rounds - charged):
        raise LawBroken(f"round {free[0]} holds an update of {name} and is not charged")
    return len(set(paid) - charged)


def _factor(settings: StudySettings, entries: Sequence[Entry], round: int) -> float:
    """Of the round's noise: the list of all places, written out."""
    place = _place(settings, entries, round)
    if place is None:
        return 1.0
    return [stage.factor for stage in settings.privacy.noise_schedule or () for _ in range(stage.rounds)][place - 1]


def _place(settings: AnySettings, entries: Sequence[Entry], round: int) -> int | None:
    """The place of a round in the study's noise schedule: by what was reserved, whatever became of it."""
    if not isinstance(settings, StudySettings) or settings.privacy.noise_schedule is None:
        return None
    return sum(entry.kind == "reserved" and (entry.round or 0) <= round for entry in entries)
