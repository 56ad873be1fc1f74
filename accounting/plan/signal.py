"""The size of a hospital's signal beside the noise: from public numbers alone.

In one noised step a hospital of n records draws q·n of them on average, each clipped to norm C, so that their expected
sum has norm S ≤ min(q·n·C, R), R the study's bound on a whole sum. The noise has standard deviation s = σ·C in every
coordinate. Of p parameters it has norm s·√p, nearly always. K such hospitals and T steps add up to K·T·S at most under
noise of norm s·√(K·T·p), or s·√(T·p) where only the coordinator adds noise: √K (or K) and √T times as much signal
beside the noise. If the noise is added in shares, of which h are counted on, K of them are there: s·√(T·p·K/h).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from accounting.plan.plan import Plan
from accounting.values import check_count, check_instance, check_positive


@dataclass(frozen=True)
class SignalToNoise:
    """One size of hospital. Norms are L2, on the scale of the sum that gets noise.

    records          of the hospital. None where its whole update is clipped, for any size
    expected_batch   records that one step draws on average
    signal           the most that its clipped sum can have on average
    noise            standard deviation of the noise in every coordinate, root mean square over a noise schedule
    alone            signal / noise of one hospital in one step, were all of it in one coordinate
    together         the same of all hospitals, each of this size, over all steps, were they all to agree
    parameters       of a model whose signal is as large as its noise, together: with more, the noise is larger
    """

    records: int | None
    expected_batch: float | None
    signal: float
    noise: float
    alone: float
    together: float

    @property
    def parameters(self) -> float:
        return self.together**2

    def noise_norm(self, parameters: int) -> float:
        """Norm of the noise over so many parameters."""
        return self.noise * math.sqrt(check_count("parameters", parameters))

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return {**asdict(self), "parameters": self.parameters}


def signal_to_noise(
    plan: Plan, records: int, *, hospitals: float, rounds: int, sum_radius: float | None = None
) -> SignalToNoise:
    """Of a hospital with so many records under this plan.

    hospitals   K: that take part in a round, as the study expects them
    rounds      that the study has
    sum_radius  R. None: no bound beside the clip norm

    Raises InvalidArgument.

    >>> from accounting import Definition, Level, LimitPlan, Observer, Plan
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> plan = Plan(scheme="parallel", limits=(limit,), clip_norm=1.0, client_clip_norm=None, noise_multiplier=2.0,
    ...             honest_survivors=1, sampling_rate=0.1, steps_per_round=1, max_steps=100, classical_order=8.0,
    ...             bayesian=None, disclosure="at-end", release=None, observer=Observer.COORDINATOR)
    >>> found = signal_to_noise(plan, 300, hospitals=4, rounds=100)
    >>> found.signal, found.noise, found.alone, found.together, found.parameters
    (30.0, 2.0, 15.0, 300.0, 90000.0)
    """
    check_instance("plan", Plan, plan)
    people, hospital_count = check_count("records", records), check_positive("hospitals", hospitals)
    steps = check_count("rounds", rounds, minimum=0) * plan.steps_per_round
    noise = _noise_multiplier(plan) * plan.clip_norm
    if plan.rules.divides_noise:
        noise *= math.sqrt(max(1.0, hospital_count / plan.honest_survivors))
    if plan.rules.clips_updates:
        hospital_signal = plan.clip_norm / noise
        return SignalToNoise(
            None, None, plan.clip_norm, noise, hospital_signal, hospital_signal * hospital_count * math.sqrt(steps)
        )
    batch = plan.sampling_rate * people
    bound = math.inf if sum_radius is None else check_positive("sum_radius", sum_radius)
    signal = min(batch * plan.clip_norm, bound)
    return SignalToNoise(
        people, batch, signal, noise, signal / noise, signal / noise * math.sqrt(hospital_count * steps)
    )


def _noise_multiplier(plan: Plan) -> float:
    """Root mean square over the rounds: a mean of them has as much noise as one of equal rounds with it."""
    if plan.noise_schedule is None:
        return plan.noise_multiplier
    squares = (stage.rounds * plan.noise_of(place) ** 2 for place, stage in enumerate(plan.stages))
    return math.sqrt(math.fsum(squares) / plan.rounds)
