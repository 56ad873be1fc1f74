"""What a Bayesian account states: its certificate, and in one sentence what the number rests on."""

from __future__ import annotations

from dataclasses import replace

from accounting.accountants.bayesian_spec import BayesianSpec
from accounting.errors import InvalidArgument
from accounting.units import Definition, Guarantee

_SAMPLES = {
    "members": "the members' own records, though the run depends on them, are an independent sample",
    "held-out": "the held-out accounting sample, declared before the first round, is an independent sample",
    "public": "the public sample is an independent sample",
}
_ADVERSARIES = {
    "path": "no round depends on what earlier rounds said about that record",
    "adaptive": "every round may depend on all earlier ones",
}


def assumption_of(settings: BayesianSpec) -> str:
    """The sentence."""
    model = "; e^{TλD} is normal" if settings.estimator == "student-t" else ""
    path = ""
    if settings.adversary == "adaptive" and settings.limit_epsilon is None:
        path = "; no other course of the run would have cost more (this account enforced no limit)"
    printed = "; costs are the larger of the two printed directions" if settings.direction == "printed" else ""
    return (
        f"Assumes that the record is drawn from the population of which {_SAMPLES[settings.sample]}{model}; "
        f"{_ADVERSARIES[settings.adversary]}{path}{printed}."
    )


def bayesian_guarantee(
    settings: BayesianSpec,
    epsilon: float,
    orders: tuple[float, ...],
    order: float,
    *,
    steps: int,
    rates: tuple[float, float] | None,
    resolution: str,
) -> Guarantee:
    """The certificate of a Bayesian account."""
    return Guarantee(
        epsilon=epsilon,
        delta=settings.delta,
        level=settings.level,
        definition=settings.definition,
        relation=settings.relation,
        observer=settings.observer,
        assumption=assumption_of(settings),
        steps=steps,
        orders=orders,
        order=order,
        sampling_rate=rates,
        max_steps=settings.max_steps,
        estimator=settings.estimator,
        composition=settings.composition,
        beta=settings.beta,
        gamma=settings.estimator_failure_probability,
        adversary=settings.adversary,
        sample=settings.sample,
        conversion=settings.conversion,
        resolution=resolution,
    )


def capped_by(bayesian: Guarantee, classical: Guarantee) -> Guarantee:
    """The smaller ε of two certificates that make the same claim; what holds for everybody holds on average."""
    if classical.definition is not Definition.CLASSICAL:
        raise InvalidArgument("classical", f"is a guarantee of definition {classical.definition}")
    for name in ("level", "relation", "observer", "delta"):
        if getattr(classical, name) != getattr(bayesian, name):
            raise InvalidArgument("classical", f"has another {name}")
    if classical.epsilon >= bayesian.epsilon:
        return bayesian
    return replace(bayesian, epsilon=classical.epsilon, capped=True)
