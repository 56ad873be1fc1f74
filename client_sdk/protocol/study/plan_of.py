"""From a study's settings to the plan that its budget keeps: the same on both sides of the wire.

The coordinator opens its ledger with it; a hospital counts with it what its records cost.
"""

from __future__ import annotations

from accounting.plan.plan import HistogramRelease, Plan
from accounting.plan.schemes import Credit
from accounting.units import Observer
from client_sdk.protocol.study.settings import StudySettings


def plan_of(settings: StudySettings) -> Plan:
    """The accounting plan of a study.

    Raises:
        PlanError, InvalidArgument: settings that no budget can be kept for.
    """
    privacy = settings.privacy
    noise = privacy.histogram_noise
    return Plan(
        scheme=privacy.scheme,
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
    )


def _credited_rate(settings: StudySettings) -> float:
    """The Poisson rate that may be credited to what the noise protects first.

    Records: their own rate. Clients: theirs only if a round is released whoever came, because a round abandoned for
    want of clients tells who was sampled.
    """
    privacy = settings.privacy
    if privacy.rules.protects[0].credit is Credit.RECORDS:
        return privacy.sampling_rate
    return privacy.client_sampling_rate if settings.schedule.min_clients == 0 else 1.0


def _observer(settings: StudySettings) -> Observer:
    """Against whom the numbers hold: the coordinator itself only where it receives nothing but noised values."""
    privacy = settings.privacy
    noised_log_moments = privacy.bayesian is None or privacy.disclosure == "noised"
    return Observer.COORDINATOR if noised_log_moments and not privacy.rules.central else Observer.RELEASES
