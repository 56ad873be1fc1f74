"""Plans to keep a budget by, and their costs in extended precision."""

import mpmath as mp

from accounting.plan.limits import BayesianPlan, LimitPlan
from accounting.plan.plan import Plan
from accounting.units import Definition, Level, Observer

DELTA, FAILURE = 1e-5, 1e-6


def plan(**changes):
    definition = changes.pop("definitions", ("bayesian", "classical"))
    epsilon = changes.pop("epsilon", {"bayesian": 2.0, "classical": 6.0})
    defaults = {
        "scheme": "parallel",
        "limits": tuple(
            LimitPlan(Level.INSTANCE, Definition(name), epsilon[name], DELTA, FAILURE if name == "bayesian" else None)
            for name in definition
        ),
        "clip_norm": 0.5,
        "client_clip_norm": None,
        "honest_survivors": 1,
        "release": None,
        "noise_multiplier": 2.0,
        "sampling_rate": 0.1,
        "steps_per_round": 2,
        "max_steps": 300,
        "classical_order": 8.0,
        "bayesian": BayesianPlan((4.0, 8.0, 16.0), 12.0, "betting", "running", "path", "improved")
        if "bayesian" in definition
        else None,
        "disclosure": "plain",
        "observer": Observer.RELEASES,
    }
    return Plan(**{**defaults, **changes})


def exact_moment(order, sigma, q):
    """φ by the definition, 40 digits; independent of the package."""
    with mp.workdps(40):
        terms = (
            mp.binomial(order + 1, k) * mp.mpf(q) ** k * (1 - mp.mpf(q)) ** (order + 1 - k)
            * mp.exp(mp.mpf(k * k - k) / (2 * mp.mpf(sigma) ** 2))
            for k in range(order + 2)
        )  # fmt: skip
        return mp.log(mp.fsum(terms))


def exact_epsilon(order, moment, beta):
    with mp.workdps(40):
        order = mp.mpf(order)
        constant = order * mp.log(order / (order + 1)) - mp.log(order + 1)
        return max(mp.mpf(0), (moment + constant - mp.log(beta)) / order)


def client_plan(**changes):
    limits = (
        LimitPlan(Level.CLIENT, Definition.BAYESIAN, 3.0, DELTA, FAILURE),
        LimitPlan(Level.CLIENT, Definition.CLASSICAL, 8.0, DELTA, None),
    )
    bayesian = BayesianPlan((4.0, 8.0), 8.0, "student-t", "holder", "path", "improved")
    return plan(**{"scheme": "client", "limits": limits, "bayesian": bayesian, "steps_per_round": 1, **changes})


def exact_moment_at(order, sigma, q, ratio):
    return exact_moment(order, sigma / float(ratio), q)
