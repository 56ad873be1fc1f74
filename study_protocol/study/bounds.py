"""Bounds beyond which a study's guarantee is nearly void, the same for the coordinator and for every hospital.

A coordinator refuses to open such a study unless its lead says that this is wanted. A hospital takes part only if
its site policy says so in its own numbers.
"""

from __future__ import annotations

from accounting.plan.plan import total_noise
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings

MIN_NOISE_MULTIPLIER = 0.3
LARGEST_EPSILON = 20.0
LARGEST_DELTA = 1e-3
MAX_WEIGHT = 2.0**30
"""No weight that is sent or loaded is larger, about a billion. Trained weights lie far below it, and squares of weights
up to it add up to a finite number in float32 for any model: only what a record adds can overflow."""


def guaranteed_noise_multiplier(settings: StudySettings) -> float:
    """Return the standard deviation of the noise that is sure to be there, over what one neighbour can change.

    In a sum under masks: the noise of the honest survivors. The least over all levels that the scheme protects, and
    over all stages of a noise schedule.

    Raises:
        PlanError, InvalidArgument: settings that no budget can be kept for.
    """
    plan = plan_of(settings)
    noise_multiplier, adders = min(map(plan.noise_of, range(len(plan.stages)))), plan.adders
    noise = noise_multiplier if adders == 1 else total_noise([noise_multiplier] * adders)
    return min(noise * (plan.clip_norm / plan.mechanism(level).clip_norm) for level in plan.levels)


def largest_classical(settings: AnySettings) -> tuple[float, float]:
    """Return the largest ε and the largest δ of the study's classical limits, which every level has."""
    classical = [limit for limit in settings.privacy.limits if limit.definition == "classical"]
    return max(limit.epsilon for limit in classical), max(limit.delta for limit in classical)


def beyond_bounds(settings: AnySettings) -> list[str]:
    """Return every bound that the settings pass, in words, or none. Raises as `guaranteed_noise_multiplier`."""
    # Queries bring noise of their own, which the limits alone bound.
    noise = guaranteed_noise_multiplier(settings) if isinstance(settings, StudySettings) else MIN_NOISE_MULTIPLIER
    epsilon, delta = largest_classical(settings)
    violations: list[str] = []
    # Each written so that NaN counts as beyond.
    if not noise >= MIN_NOISE_MULTIPLIER:
        violations.append(f"the noise multiplier that is sure, {noise:.3g}, is below {MIN_NOISE_MULTIPLIER:g}")
    if not epsilon <= LARGEST_EPSILON:
        violations.append(f"the classical limit's epsilon, {epsilon:g}, is above {LARGEST_EPSILON:g}")
    if not delta <= LARGEST_DELTA:
        violations.append(f"the classical limit's delta, {delta:g}, is above {LARGEST_DELTA:g}")
    return violations
