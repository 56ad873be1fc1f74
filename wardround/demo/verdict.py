"""What the demonstration has shown, in one sentence that is computed from the run's own numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from study_protocol.study.limit_statement import LimitStatement
from study_protocol.study.limit_words import running_in_words
from wardround.cli.shared.shared import number


def verdict(accuracy: float | None, alone: Mapping[str, float], limits: Sequence[LimitStatement]) -> str:
    """Whether taking part paid, true in every outcome.

    accuracy  of the study's model; None where no round was released
    alone     of each hospital's own model, without privacy, on the same patients
    """
    if accuracy is None:
        return "Taking part did not pay: no model was released."
    beaten = sorted(((name, value) for name, value in alone.items() if accuracy > value), key=lambda item: item[1])
    within = f"The study, within its budget ({_limits(limits)}), "
    if not beaten:
        return f"{within}is no better than any hospital alone without privacy: in this run taking part did not pay."
    of = f"all {len(alone)}" if len(beaten) == len(alone) else f"{len(beaten)} of {len(alone)}"
    gains = ", ".join(f"{name} by {_points(accuracy - value)}" for name, value in beaten)
    ending = _unbeaten(accuracy, alone)
    return f"{within}is better than {of} hospitals alone WITHOUT privacy ({gains}){ending}."


def _unbeaten(accuracy: float, local_accuracies: Mapping[str, float]) -> str:
    better = [
        f", {name} alone does better ({value:.3f})" for name, value in local_accuracies.items() if value > accuracy
    ]
    equal = [f", {name} alone does as well" for name, value in local_accuracies.items() if value == accuracy]
    return "".join(better + equal)


def meaning(limit: LimitStatement) -> str | None:
    """A limit's enforced ε, its tighter reading, and the chance of an attacker's right guess; None: unbounded."""
    if limit.epsilon is None or limit.attack_success is None:
        return None
    person = f"any one {_unit(limit)}" if limit.definition == "classical" else f"a typical {_unit(limit)}"
    guess = math.ceil(1000 * limit.attack_success) / 10
    running = running_in_words(limit)
    tighter = "".join(f" ({report.name}: {number(report.epsilon, 2)})" for report in limit.reports[:1])
    tighter = tighter if running is None else f" ({running})"
    return (
        f"{limit.definition} ε = {number(limit.spent, 2)}{tighter}: whether {person} took part, an attacker who knows "
        f"all other records guesses right in at most {guess:g} % of cases on average (a coin: 50 %)"
    )


def _unit(limit: LimitStatement) -> str:
    return "hospital" if limit.level == "client" else "patient"


def _limits(limits: Sequence[LimitStatement]) -> str:
    return ", ".join(f"{limit.definition} ε ≤ {limit.epsilon:g}" for limit in limits if limit.epsilon is not None)


def _points(difference: float) -> str:
    return f"{100 * difference:.1f} points"
