"""Do the hospital's own limits leave room for a whole study? Asked before anything is waited for."""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections.abc import Callable

from accounting.errors import AccountingError
from accounting.units import Level
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.guard.charges import Charge, epsilon_spent
from client_sdk.guard.individual import rule_of, spec_of, worst_cost
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.limit_terms import LedgerTerms, LimitRule, WholePlan
from client_sdk.guard.planned import PlannedStudy
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.policy_limits import IndividualLimit, LimitSection
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.limits import LevelName
from study_protocol.study.settings import StudySettings
from study_protocol.wire.rounded import number

_LOG = logging.getLogger(__name__)
# Beyond it a limit limits nothing, and none is proposed.
_LARGEST = 1e4
_WAY_OUT = "raise the entry, name another data set (join --dataset), or do not take part"


def admit(policy: SitePolicy, ledger: HospitalLedger, name: str, settings: StudySettings) -> WholePlan | None:
    """Require that every limit of the hospital's own has room for all that a study plans.

    Questions without a share in the settings are compared when they are asked.

    Returns:
        What is reserved for the study if it is admitted whole, or None if each round is charged by itself.

    Raises:
        OwnBudgetExceeded: names the entry, how many rounds fit, and the smallest ε that would do, rounded up. Or the
            study plans more than its own limit allows.
        ConfigurationError: the policy names another rule than the ledger was begun under.
    """
    study, terms = PlannedStudy.of(settings), ledger.terms(policy.limits)
    study.require_feasible()
    if policy.individual is not None:
        rule = rule_of(policy.individual, ledger.individual())
        _require_patient(policy.individual, rule, Charge.of(settings, [1]))
    # Once it has joined, a study stays admitted as it was.
    whole_plan, has_joined = ledger.whole_plans().get(name), ledger.opened(name) is not None
    if whole_plan is not None:
        return whole_plan
    # A study charges one level alone.
    level = Charge.of(settings).level
    section = policy.limits.by_level().get(level)
    if section is None:
        return None
    whole_plan = None if has_joined else _admit_whole(study, ledger, level, section, terms)
    # Rounds of a lost ledger are charged as a part of the plan: each further one is compared when it is paid.
    if whole_plan is None and not ledger.rounds_known(name):
        _require_rounds(study, ledger, level, section, terms)
    if whole_plan is None and study.has_open_questions:
        _LOG.info(
            "the study may ask questions for which it sets no budget aside: this hospital's own limits were compared "
            "with its training alone, and each question is compared when it is asked"
        )
    return whole_plan


def own_limit_in_words(policy: SitePolicy, ledger: HospitalLedger, name: str, settings: AnySettings) -> str:
    """Return this hospital's own limit at the study's level, and what of it is spent after the whole study.

    The study states another ε for the same rounds: its account is of this study alone, and another rule may keep it.
    """
    sections = policy.limits.by_level()
    level = Charge.of(settings).level if isinstance(settings, StudySettings) else "instance"
    if (section := sections.get(level)) is None:
        return f"none for {level} (policy.toml, [limits.{level}]): only the study's limits hold"
    limit_words = f"{level} epsilon {section.epsilon:g} at delta {section.delta:g}, over all studies on these records"
    differs = _other_deltas_in_words(settings, level, section)
    if not isinstance(settings, StudySettings):
        return f"{limit_words}. Each question is compared with it when it is asked{differs}"
    terms, rounds_known = ledger.terms(policy.limits), ledger.rounds_known(name)
    plans = [plan for plan in ledger.whole_plans().values() if plan.level == level]
    limit, study = section.at(level, terms, plans), PlannedStudy.of(settings)
    try:
        charges = [*ledger.charges(), *([] if rounds_known else study.charges(study.rounds))]
        # What is reserved for whole plans counts beside what is charged round by round.
        spent = math.fsum(plan.epsilon for plan in plans) + epsilon_spent(charges, limit)
    except AccountingError:
        return limit_words
    so_far = "What is charged so far is" if rounds_known else "With all rounds of this study it is"
    return (
        f"{limit_words}, kept by rule {terms.rule}. {so_far} at {number(spent)} by that rule. The study counts itself "
        f"alone, by a rule of its own: the two ε differ, and both hold{differs}"
    )


def _other_deltas_in_words(settings: AnySettings, level: LevelName, section: LimitSection) -> str:
    deltas = {limit.delta for limit in settings.privacy.limits if limit.level == level} - {section.delta}
    return "".join(
        f". The study's delta is {delta:g}, and ε at different delta cannot be compared: write it into policy.toml "
        "before the first round of a data set"
        for delta in sorted(deltas)
    )


def _admit_whole(
    study: PlannedStudy, ledger: HospitalLedger, level: LevelName, section: LimitSection, terms: LedgerTerms
) -> WholePlan | None:
    account = study.fixed_limit(Level(level))
    if account is None or not terms.whole_plans:
        return None
    reserved_plans = [plan for plan in ledger.whole_plans().values() if plan.level == level]
    epsilon = terms.whole_plans * section.epsilon - math.fsum(plan.epsilon for plan in reserved_plans)
    # Half of what is left at most: another study may come.
    delta = (terms.whole_plans * section.delta - math.fsum(plan.delta for plan in reserved_plans)) / 2
    rest = section.at(level, terms)
    # Of a policy that was lowered, the rest may have spent more than its part.
    epsilon -= max(0.0, epsilon_spent(ledger.charges(), rest) - rest.epsilon)
    epsilon, delta = max(0.0, epsilon), min(max(0.0, delta), account.limit.delta)
    if epsilon and delta and (epsilon_needed := study.whole_epsilon(account, delta, epsilon)) <= epsilon:
        return WholePlan(level, epsilon_needed, delta, study.steps)
    _LOG.info(
        "the whole plan needs more than the epsilon of %g at delta %g that are left for it in whole_plans, where one "
        "study takes at most half of the delta that is left: each round is charged by itself, by rule %s",
        epsilon,
        delta,
        terms.rule,
    )
    return None


def _require_rounds(
    study: PlannedStudy, ledger: HospitalLedger, level: LevelName, section: LimitSection, terms: LedgerTerms
) -> None:
    per_round, planned_rounds = Charge.of(study.settings), study.rounds
    charges, plans = ledger.charges(), ledger.whole_plans().values()

    def fits(rounds: int, epsilon: float) -> bool:
        # An order that is not written down follows ε.
        limit = section.model_copy(update={"epsilon": epsilon}).at(level, terms, plans)
        # Written so that NaN does not fit.
        return epsilon_spent([*charges, *study.charges(rounds)], limit) <= limit.epsilon

    if fits(planned_rounds, section.epsilon):
        return
    fitting_rounds = bisect_right(
        range(1, planned_rounds + 1), False, key=lambda rounds: not fits(rounds, section.epsilon)
    )
    needed = min_epsilon(lambda epsilon: fits(planned_rounds, epsilon), section.epsilon)
    enough = f"at least {needed:g}" if needed is not None else "more noise: no epsilon is enough"
    room, subject = ("no room for one round", "It needs")
    if fitting_rounds:
        room, subject = f"room for {fitting_rounds} of the {planned_rounds} rounds", f"All {planned_rounds} rounds need"
    spent = ", with what other rounds on this data set have spent" if charges else ""
    hints = [hint for hint, applies in _hints(per_round, study, terms) if applies]
    raise OwnBudgetExceeded(
        "own-budget-exceeded",
        f"[limits.{level}] epsilon = {section.epsilon:g} in policy.toml leaves {room} of this study. "
        f"{subject} {enough} at delta {section.delta:g}{spent}: {_WAY_OUT}{''.join(hints)}",
    )


def _hints(per_round: Charge, study: PlannedStudy, terms: LedgerTerms) -> list[tuple[str, bool]]:
    return [
        (
            '. This ledger\'s rule "gaussian" counts a sampled step as one of all patients',
            terms.rule == "gaussian" and per_round.sampling_rate < 1,
        ),
        (
            '. This ledger\'s rule "gaussian" needs more noise on published histograms (privacy.histogram_noise)',
            terms.rule == "gaussian" and study.plan.release is not None,
        ),
        (
            f". Of the entry a share of {terms.whole_plans:g} is set aside for studies that are admitted whole",
            terms.whole_plans > 0,
        ),
    ]


def _require_patient(section: IndividualLimit, rule: LimitRule, first: Charge) -> None:
    """Whether a patient without a charge so far could take part in a whole round at the clip norm."""
    if _bears(first, rule, section):
        return
    needed = min_epsilon(
        lambda epsilon: _bears(first, rule, section.model_copy(update={"epsilon": epsilon})), section.epsilon
    )
    enough = f"at least {needed:g}" if needed is not None else "a study with more noise: no epsilon is enough"
    raise OwnBudgetExceeded(
        "own-budget-exceeded",
        f"[individual] epsilon = {section.epsilon:g} in policy.toml leaves no room for one round of this study. It "
        f"needs {enough} at delta {section.delta:g}: {_WAY_OUT}",
    )


def _bears(first: Charge, rule: LimitRule, section: IndividualLimit) -> bool:
    try:
        spec = spec_of(section, rule)
    except AccountingError:
        return False
    return worst_cost(first, spec) <= spec.bound


def min_epsilon(fits: Callable[[float], bool], too_small: float) -> float | None:
    """Return the smallest ε that fits, rounded up to three digits, or None where none up to 10 000 does.

    The search doubles and halves. The result itself fits, whether or not a smaller ε does.
    """
    low, high = too_small, 2 * too_small
    while not fits(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return None
    while high > low * 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    digits = 10.0 ** (math.floor(math.log10(high)) - 2)
    # As it is printed and would be copied.
    rounded = float(f"{math.ceil(high / digits) * digits:.6g}")
    return rounded if fits(rounded) else None
