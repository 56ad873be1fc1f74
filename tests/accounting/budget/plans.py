"""Plans to keep a budget by, and their costs in extended precision."""

import mpmath as mp

from accounting.plan.limits import BayesianPlan, LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import EvaluationPlan, QueryCost, QueryPlan
from accounting.plan.statistics import StatisticsPlan
from accounting.units import Definition, Level, Observer

DELTA, FAILURE = 1e-5, 1e-6
STEPS = 2.0**20


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


def cost(noise_multiplier, *, sensitivity=1.0, cells=1, bears="all"):
    """Noise in grid steps: the ratio alone counts."""
    moved = STEPS / noise_multiplier * sensitivity
    return QueryCost(STEPS * sensitivity, moved, cells, bears)


def statistics(epsilon=1.0, delta=1e-5, max_queries=100, max_cells=1000):
    """A plan of queries alone."""
    limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, epsilon, delta, None)
    return StatisticsPlan((limit,), QueryPlan(max_queries, max_cells), Observer.COORDINATOR)


def ask(budget, *costs):
    """Reserve and settle one query after the other."""
    for query in costs:
        number = budget.last_round + 1
        budget.reserve_query(number, query)
        budget.settle(number, None)


def in_turn(budget, queries):
    """A round of training before every query."""
    for query in queries:
        number = budget.last_round + 1
        budget.reserve(number)
        budget.settle(number, None)
        ask(budget, query)


def mixed(order=8.0, definitions=("classical",), **changes):
    """A plan that trains and asks."""
    queries = changes.pop("queries", QueryPlan(50, 100))
    return plan(definitions=definitions, epsilon={"bayesian": 15.0, "classical": 20.0}, classical_order=order,
                queries=queries, **changes)  # fmt: skip


def split(every=None, scheduled=None, max_queries=50, allowance=None, **changes):
    """A study that sets patients aside."""
    evaluation = EvaluationPlan(every, scheduled)
    return mixed(queries=QueryPlan(max_queries, 100, allowance, evaluation), **changes)


def fixed(rounds=70, *, enforcement="fixed-plan", epsilon=2.0, delta=DELTA, share=None, queries=None, **changes):
    """A sampled plan that is kept as a whole, with questions where they have a share."""
    limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, epsilon, delta, None, enforcement)
    queries = QueryPlan(50, 100, None, None, share) if share is not None else queries
    defaults = {
        "definitions": ("classical",),
        "limits": (limit,),
        "steps_per_round": 1,
        "max_steps": rounds,
        "queries": queries,
        "disclosure": "at-end",
        "observer": Observer.COORDINATOR,
    }
    return plan(**{**defaults, **changes})


def full(rounds=40, **changes):
    """A plan with all records in every round: Σ Δ²/s² keeps its limit."""
    return fixed(
        rounds, **{"enforcement": "gaussian-filter", "sampling_rate": 1.0, "noise_multiplier": 12.0, **changes}
    )
