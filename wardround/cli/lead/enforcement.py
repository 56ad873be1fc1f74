"""How a study keeps its classical limits: the tightest sound rule, why it is that one, and what it would bring.

A limit that names no rule is kept at one Rényi order, as in settings written before there was a choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accounting.budget.forecast import Forecast
    from accounting.plan.plan import Plan
    from study_protocol.study.settings import StudySettings

# Of the budget, for questions on all patients beside a fixed plan, where the settings name no other share.
SHARE = 0.2


def with_tightest(plan: Plan, share: float | None = SHARE) -> tuple[Plan, list[str]]:
    """Return the plan with the tightest sound rule where it names none, and for each such limit why it is that one.

    share: as of `accounting.budget.enforcement.tightest`.
    """
    from accounting.budget.enforcement import names_no_rule, tightest, tightest_rule

    tightest_plan = tightest(plan, share)
    reasons = [
        f'note: {limit.level} {limit.definition}: enforcement = "{rule}", because {reason}'
        for limit in plan.limits
        if names_no_rule(limit)
        for rule, reason in [tightest_rule(plan, limit, share)]
    ]
    queries = tightest_plan.queries
    if plan.queries is not None and queries is not None and queries.share != plan.queries.share:
        reasons.append(
            f"note: statistics.share = {queries.share:g}: the part of the limit that questions on all patients may "
            "use. The steps of training have the rest"
        )
    return tightest_plan, reasons


def for_creation(settings: StudySettings) -> tuple[StudySettings, list[str]]:
    """Return the settings with the tightest sound rule where they name none and lose nothing by it, and notes.

    A plan that is longer than its limit, or whose questions have no share, stays as it is.
    """
    from accounting.budget.enforcement import names_no_rule
    from study_protocol.study.plan_of import plan_of
    from wardround.cli.shared.settings_file import changed_settings

    plan = plan_of(settings)
    if not any(map(names_no_rule, plan.limits)):
        return settings, []
    tightest_plan, reasons = with_tightest(plan, share=None)
    rules = {limit.enforcement for limit in tightest_plan.limits}
    loses = plan.queries is not None and "fixed-plan" in rules
    # One Rényi order is what an entry that is left out means.
    if loses or rules <= {None, "renyi-order"} or not _opens(tightest_plan):
        return settings, _list(hint(plan))
    return changed_settings(settings, tightest_plan)[0], reasons


def hint(plan: Plan, outlook: Forecast | None = None) -> str | None:
    """Return in one line what the tightest rule would give a plan that names none. None: no note, or it has a rule.

    outlook: the plan's forecast, where it is known.
    """
    from accounting.budget.enforcement import names_no_rule
    from accounting.errors import AccountingError

    if not any(map(names_no_rule, plan.limits)):
        return None
    tightest_plan, _ = with_tightest(plan)
    try:
        advantage = _advantage(plan, tightest_plan, outlook)
    except AccountingError:
        return None
    rules = dict.fromkeys(f'"{limit.enforcement}"' for limit in tightest_plan.limits if limit.enforcement)
    queries = tightest_plan.queries
    # What the questions would have left is a part of the offer.
    share = f" and statistics.share = {queries.share:g}" if queries is not None and queries != plan.queries else ""
    return None if advantage is None else f"note: with enforcement = {' and '.join(rules)}{share} {advantage}"


def _advantage(plan: Plan, tightest_plan: Plan, outlook: Forecast | None) -> str | None:
    """Return which rounds or which noise the tightest rule would give. None: the same. Raises AccountingError."""
    from accounting.budget.forecast import forecast
    from accounting.budget.solve import least_noise, most_rounds

    rounds = (outlook or forecast(plan, tight=False)).rounds
    if rounds < plan.rounds and plan.noise_schedule is None:
        more = min(most_rounds(tightest_plan, at_most=plan.max_steps).rounds, plan.rounds)
        if more <= rounds:
            return None
        return f"{more} rounds would begin at this noise, not {rounds}: wardround plan --solve rounds"
    if all(limit.enforcement in (None, "renyi-order") for limit in tightest_plan.limits):
        # The rule that is kept without a name: the same noise.
        return None
    noise, before = (least_noise(each).noise_multiplier for each in (tightest_plan, plan))
    if noise >= before:
        return None
    return (
        f"a noise multiplier of {noise:g} would be enough for these rounds, not {before:g}: "
        "wardround plan --solve noise"
    )


def _opens(plan: Plan) -> bool:
    from accounting.budget.budget import Budget
    from accounting.errors import AccountingError

    try:
        Budget.open(plan)
    except AccountingError:
        return False
    return True


def _list(line: str | None) -> list[str]:
    return [] if line is None else [line]
