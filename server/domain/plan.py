"""From a study's settings to the plan that its budget keeps."""

from __future__ import annotations

from accounting.plan.plan import BayesianPlan, HistogramRelease, LimitPlan, Plan
from accounting.units import Definition, Level, Observer
from client_sdk.protocol.study.settings import StudySettings


def plan_of(settings: StudySettings) -> Plan:
    """The accounting plan of a study.

    Raises:
        accounting.PlanError: settings that no budget can be kept for.
    """
    privacy = settings.privacy
    bayesian = privacy.bayesian
    return Plan(
        scheme=privacy.scheme,
        limits=tuple(
            LimitPlan(
                Level(limit.level),
                Definition(limit.definition),
                limit.epsilon,
                limit.delta,
                limit.estimator_failure_probability,
            )
            for limit in privacy.limits
        ),
        clip_norm=privacy.clip_norm,
        client_clip_norm=privacy.client_clip_norm,
        noise_multiplier=privacy.noise_multiplier,
        honest_survivors=honest_survivors(settings),
        sampling_rate=credited_sampling_rate(settings),
        steps_per_round=settings.steps_per_round,
        max_steps=privacy.max_steps,
        classical_order=privacy.classical_order,
        bayesian=None
        if bayesian is None
        else BayesianPlan(
            orders=bayesian.orders,
            filter_order=bayesian.filter_order,
            estimator=bayesian.estimator,
            composition=bayesian.composition,
            adversary=bayesian.adversary,
            conversion=bayesian.conversion,
            sample="members" if privacy.accounting_sample is None else privacy.accounting_sample.source,
        ),
        disclosure=privacy.disclosure,
        release=None
        if privacy.histogram_noise is None
        else HistogramRelease(privacy.histogram_noise.std, privacy.histogram_noise.every),
        observer=observer(settings),
    )


def honest_survivors(settings: StudySettings) -> int:
    """Noise shares that are sure to be in every sum: the guaranteed survivors that do not collude."""
    masking = settings.privacy.masking
    if masking is None or settings.privacy.scheme not in ("sequential", "joint"):
        return 1
    return masking.honest_survivors


def credited_sampling_rate(settings: StudySettings) -> float:
    """The Poisson rate that may be credited to what the noise protects: clients in scheme client, records otherwise.

    Records: their own rate. Clients: theirs only if a round is released whoever came, because a round abandoned for
    want of clients tells who was sampled.
    """
    if settings.privacy.scheme != "client":
        return settings.privacy.sampling_rate
    return settings.privacy.client_sampling_rate if settings.schedule.min_clients == 0 else 1.0


def observer(settings: StudySettings) -> Observer:
    """Against whom the numbers hold: the coordinator itself only where it receives nothing but noised values."""
    privacy = settings.privacy
    noised_log_moments = privacy.bayesian is None or privacy.disclosure == "noised"
    return Observer.COORDINATOR if privacy.scheme != "client" and noised_log_moments else Observer.RELEASES
