"""From a study's settings to the plan that its budget keeps, the same on both sides of the wire.

The coordinator opens its ledger with it. A hospital counts with it the cost of its records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from accounting.plan.limits import HistogramRelease
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryPlan
from accounting.plan.schemes import Credit
from accounting.plan.statistics import AnyPlan, StatisticsPlan
from accounting.units import Observer
from study_protocol.study.any_settings import AnySettings, StatisticsSettings, settings_from
from study_protocol.study.setting_names import naming_settings
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import canonical_json

_ABSENT = object()


@overload
def plan_of(settings: StudySettings) -> Plan: ...
@overload
def plan_of(settings: StatisticsSettings) -> StatisticsPlan: ...
@overload
def plan_of(settings: AnySettings) -> AnyPlan: ...


def plan_of(settings: AnySettings) -> AnyPlan:
    """Return the accounting plan of a study.

    Raises:
        PlanError, InvalidArgument: settings that no budget can be kept for.
    """
    with naming_settings():
        return _plan_of(settings)


def _plan_of(settings: AnySettings) -> AnyPlan:
    if isinstance(settings, StatisticsSettings):
        # Noised before it leaves its hospital, or masked with the others' noise.
        return StatisticsPlan(settings.privacy.limit_plans, settings.statistics.plan(), Observer.COORDINATOR)
    privacy = settings.privacy
    noise = privacy.histogram_noise
    return Plan(
        scheme=privacy.rules.id,
        limits=privacy.limit_plans,
        clip_norm=privacy.clip_norm,
        client_clip_norm=privacy.client_clip_norm,
        noise_multiplier=privacy.noise_multiplier,
        honest_survivors=privacy.honest_adders,
        sampling_rate=_credited_rate(settings),
        steps_per_round=settings.steps_per_round,
        max_steps=privacy.max_steps,
        classical_order=privacy.classical_order,
        bayesian=privacy.bayesian_plan,
        disclosure=privacy.disclosure,
        release=None if noise is None else HistogramRelease(noise.std, noise.every),
        observer=_observer(settings),
        queries=None if settings.statistics is None else _queries(settings),
        noise_schedule=privacy.noise_stages,
    )


def _queries(settings: StudySettings) -> QueryPlan | None:
    statistics = settings.statistics
    return None if statistics is None else statistics.plan(settings.evaluation, later=settings.monitoring is not None)


class PlanDiffers(ValueError):
    """A ledger's plan is not that of the settings beside it. `fields` names the differences, none if these are none."""

    def __init__(self, reason: str, fields: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.fields = fields


def require_plan(settings: Mapping[str, Any], plan: Mapping[str, Any]) -> AnySettings:
    """Return the settings in a ledger's first entry, if their plan is the one beside them.

    Every keeper of an account compares.

    Raises:
        PlanDiffers: they are no settings, no budget can be kept for them, or their plan is another one.
    """
    try:
        parsed = settings_from(dict(settings))
        expected, is_canonical = (
            plan_of(parsed).to_dict(),
            canonical_json(parsed.as_json()) == canonical_json(dict(settings)),
        )
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise PlanDiffers(f"its settings are none that a budget can be kept for: {error}") from error
    # A default that was left out has another digest than the one that hospitals join under.
    if not is_canonical:
        raise PlanDiffers("its settings are not written in their one form")
    different = tuple(
        sorted(name for name in {*expected, *plan} if expected.get(name, _ABSENT) != plan.get(name, _ABSENT))
    )
    if different:
        raise PlanDiffers(f"its plan is not the plan of its settings: {', '.join(different)} differ", different)
    return parsed


def hides_attendance(settings: AnySettings) -> bool:
    """Return whether only the coordinator may learn who takes part in a round: the sampling of clients is credited."""
    if isinstance(settings, StatisticsSettings):
        return False
    return settings.privacy.rules.protects[0].credit is Credit.CLIENTS and _credited_rate(settings) < 1.0


def _credited_rate(settings: StudySettings) -> float:
    """Return the Poisson rate that may be credited to the units that the noise protects first.

    Records have their own rate, as no report counts the records that were drawn. Clients have theirs only if no report
    ever tells how many were sampled. A round abandoned for want of clients tells it. So does the histogram of their
    distances, from which every Bayesian limit of clients is read, shown in every round or at the end.
    """
    privacy, credit = settings.privacy, settings.privacy.rules.protects[0].credit
    if credit is Credit.RECORDS:
        return privacy.sampling_rate
    needs_participation = privacy.bayesian is not None or settings.schedule.min_clients > 0
    return 1.0 if needs_participation or credit is Credit.NONE else privacy.client_sampling_rate


def _observer(settings: StudySettings) -> Observer:
    """Return against whom the numbers hold. It is the coordinator only if it receives noised values alone."""
    privacy = settings.privacy
    noised_log_moments = privacy.bayesian is None or privacy.disclosure == "noised"
    return Observer.COORDINATOR if noised_log_moments and not privacy.rules.central else Observer.RELEASES
