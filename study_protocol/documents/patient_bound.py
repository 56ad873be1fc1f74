"""What the limits of a study promise to one patient, also where they are limits for the hospital as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.budget.statements import chance_by_epsilon
from study_protocol.study.limit_statement import LimitStatement
from study_protocol.study.limits import LevelName

_UP = 1 + 2.0**-48
_COUNTED_HERE = "It holds for every patient, by this hospital's own noise."
_AGAINST = {
    "releases": "people who see what the study released",
    "coordinator": "people who see what the study released, and the coordinator",
}


@dataclass(frozen=True)
class PatientBound:
    """One bound on what a study reveals of a patient.

    name       the label of the number, such as "classical"
    epsilon    None: no finite number is promised
    guess      highest probability of a right guess whether the patient took part, at equal odds
    condition  for whom and against whom it holds, in sentences
    """

    name: str
    epsilon: float | None
    delta: float
    guess: float
    condition: str


def patient_bounds(limits: Sequence[LimitStatement]) -> list[PatientBound]:
    """Return the bounds for one patient, the classical ones first. What a round under way adds is in them.

    A limit for a hospital compares the study with and without all its records. To change one patient of it is at most
    two such changes, so that (ε, δ) becomes (2ε, (1 + e^ε) δ): its definition, applied twice (Vadhan 2017, lemma 2.2).
    Only a classical limit says this of every hospital.
    """
    by_patient = [limit for limit in limits if limit.level == "instance" and limit.state != "unbounded"]
    bounds = [_of_patient(limit) for limit in by_patient]
    # Two changes of a hospital are worse than one of a patient: only where nothing better is there.
    if not any(limit.definition == "classical" for limit in by_patient):
        bounds += [_of_hospital(limit) for limit in limits if limit.level == "client" and _is_classical(limit)]
    return sorted(bounds, key=lambda bound: not bound.name.startswith("classical"))


def total_bound(by_study: Sequence[Sequence[PatientBound]]) -> PatientBound | None:
    """Return the bound on all of several studies together, or None where one of them has no classical number.

    Losses of several studies about one patient add up (Dwork & Roth 2014, theorem 3.16).
    """
    classical = [next((each for each in bounds if each.name.startswith("classical")), None) for bounds in by_study]
    losses = [(each.epsilon, each.delta) for each in classical if each is not None and each.epsilon is not None]
    if len(losses) < len(classical) or not losses:
        return None
    epsilon, delta = (math.fsum(values) * _UP for values in zip(*losses, strict=True))
    return PatientBound(
        "classical, added up",
        epsilon,
        min(1.0, delta),
        chance_by_epsilon(epsilon, min(1.0, delta)),
        "It holds for a patient whose records are in all of these studies, against people who see all of them.",
    )


def own_bound(level: LevelName, epsilon: float, delta: float) -> PatientBound:
    """Return the bound on what a hospital counted itself, where no coordinator's ledger has a number.

    level, epsilon, delta  of its own limit, and what is spent of it
    """
    if level == "client":
        epsilon, delta = _twice(epsilon, delta)
    return PatientBound("classical, counted here", epsilon, delta, chance_by_epsilon(epsilon, delta), _COUNTED_HERE)


def _twice(epsilon: float, delta: float) -> tuple[float, float]:
    # Beyond 600 the factor alone is above any δ, and e^ε may overflow.
    return 2 * epsilon, 1.0 if epsilon > 600 else min(1.0, (1 + math.exp(epsilon)) * delta * _UP)


def _is_classical(limit: LimitStatement) -> bool:
    return limit.definition == "classical" and limit.state != "unbounded"


def _epsilon(limit: LimitStatement) -> float | None:
    if limit.spent is None or not limit.reserved:
        # As certificates state it: not 3.001 for 3.
        return limit.spent
    return (limit.spent + limit.reserved) * _UP


def _of_patient(limit: LimitStatement) -> PatientBound:
    epsilon, delta = _epsilon(limit), limit.delta or 0.0
    guess = 1.0 if epsilon is None else chance_by_epsilon(epsilon, delta)
    against = f"It holds against {_AGAINST[str(limit.observer)]}."
    if limit.definition == "classical":
        if epsilon is not None and limit.attack_success is not None:
            # Over all that the plan may release, so that a round under way is in it.
            guess = limit.attack_success
        scope = "It holds for every patient, whatever else an attacker knows."
        return PatientBound("classical", epsilon, delta, guess, f"{scope} {against}")
    scope = (
        "It holds on average over patients like those that the study measured. A patient unlike them is covered by the "
        "classical number alone."
    )
    assumption = str((limit.certificate or {}).get("assumption", ""))
    rests = f" It rests on: {assumption}." if assumption else ""
    return PatientBound("Bayesian", epsilon, delta, guess, f"{scope} {against}{rests}")


def _of_hospital(limit: LimitStatement) -> PatientBound:
    once, delta = _epsilon(limit), limit.delta or 0.0
    epsilon, twice = (None, 1.0) if once is None else _twice(once, delta)
    return PatientBound(
        "classical, from the limit for the hospital",
        epsilon,
        twice,
        1.0 if epsilon is None else chance_by_epsilon(epsilon, twice),
        "The study protects the hospital as a whole. To change one patient counts as two changes of it. It holds "
        f"against {_AGAINST[str(limit.observer)]}.",
    )
