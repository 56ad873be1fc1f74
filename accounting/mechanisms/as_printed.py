"""The seeds' formulas as printed, beside the sound ones, for study. No budget is kept by these.

Triastcyn & Faltings 2019 ("the federated paper") and 2020. Triastcyn 2020 ("the thesis"). Every function returns
log-moments in nats unless it says otherwise, never below the exact value of its own formula. If that formula is no
bound, its docstring says "not sound", and docs/definitions/as-printed.md shows the number it gives beside the true one.
d and s are on one scale: the sum of the updates as the coordinator receives it. Client level: `log_moment` of
`centred_distances`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.errors import EstimatorRefused, InvalidArgument
from accounting.mechanisms.divergence import (
    INFLATION,
    Values,
    log_binomial,
    log_expm1,
    log_moment,
    log_sum,
    sampled_bound,
)
from accounting.mechanisms.general import OutcomePair
from accounting.plan.plan import total_noise
from accounting.values import (
    FloatArray,
    check_array,
    check_count,
    check_delta,
    check_nonnegative,
    check_positive,
    check_rate,
)

_functions = cast(Any, _special)

# Sums of a few thousand float64 terms. Covered once more by rounding every term up.
_SUM_INFLATION = 1e-12


def centred_distances(updates: FloatArray, centre: FloatArray, *, clip_norm: float) -> FloatArray:
    """d_i = ‖clip_C(u_i − v)‖, shape (clients,), for updates (clients, parameters) and a centre (parameters,).

    The centre v must be public or already released (the previous aggregate): then the clients' agreement makes d
    small, and the sensitivity of Σ clip_C(u_i − v) is still C. A centre computed from this round's updates is not.
    Raises InvalidArgument.
    """
    ceiling = check_positive("clip_norm", clip_norm)
    rows = check_array("updates", updates, low=-math.inf, shape=2)
    point = check_array("centre", centre, low=-math.inf)
    if point.size != rows.shape[1]:
        raise InvalidArgument("centre", f"has {point.size} parameters, the updates {rows.shape[1]}")
    with np.errstate(over="ignore"):
        moves = np.abs(rows - point)
    largest = moves.max(axis=1)
    charged = (largest > 0) & np.isfinite(largest)
    # Clipped where a difference overflowed, because nextafter would move a distance of 0.
    norms = np.where(largest > 0, math.inf, 0.0)
    # In units of the largest: squares neither overflow nor vanish. A sum of n squares may lose n units in the last
    # place, its root half of them.
    scaled = np.linalg.norm(moves[charged] / largest[charged, None], axis=1)
    with np.errstate(over="ignore"):
        norms[charged] = np.nextafter(scaled * largest[charged] * (1 + (point.size / 2 + 8) * 2.0**-53), np.inf)
    return np.minimum(norms, ceiling)


def sequential_as_in_papers(costs: FloatArray) -> FloatArray:
    """The papers' sequential instance accounting: Σ_i ĉ_i(λ), each client's cost computed at q = B_i/N.

    costs  (clients, orders) nats, N the records of all clients together

    Returns (orders,).

    As in the papers, for comparison. It presumes secret, independent participation that the sum does not betray,
    clients of equal size and total noise that does not depend on who takes part. If updates or participation are
    visible it understates the loss (`sequential_charge` is the sound one). Raises InvalidArgument.
    """
    return check_array("costs", costs, shape=2).sum(axis=0) * (1 + _SUM_INFLATION)


def sequential_charge(
    orders: Values, distances: Values, *, sampling_rate: float, noise_stds: Sequence[float], participation: float
) -> FloatArray:
    """Sound sequential charge: log(1 − α + α e^{φ(λ, d; B_i/N_i, √Σs_j²)}), by joint convexity, both directions.

    distances      norms of this client's records' contributions to the sum
    sampling_rate  the client's own B_i/N_i, Poisson
    noise_stds     s_j of the honest survivors of the secure sum, this client among them. One noisy local step a round
    participation  α_i: the probability with which the client takes part unseen. 1 where participation is visible,
                   as it is to the coordinator and to peers

    Shape (orders, records). A round costs the largest value over clients: a record lives at one of them. With several
    local steps a round the noise of others does not help: each is charged at the client's own noise. Raises
    InvalidArgument.
    """
    alpha = check_rate("participation", participation)
    full = log_moment(orders, distances, noise_std=total_noise(noise_stds), sampling_rate=sampling_rate)
    return sampled_bound(full, alpha)


def parallel_maximum(ledgers: FloatArray) -> FloatArray:
    """Parallel instance accounting: the largest of the clients' cumulative ledgers (clients, orders), per order.

    On cumulative ledgers it is tighter than summing each round's maximum, and valid: a record's whole loss stands in
    its own client's ledger. Raises InvalidArgument.
    """
    return check_array("ledgers", ledgers, shape=2).max(axis=0)


def log_sum_exp_bound(values: Values, sharpness: float) -> float:
    """(1/ρ) ln Σ_i e^{ρ c_i}: a sum stands in for the maximum. Between max and max + ln K/ρ, rounded up.

    values  (clients,) nats. Raises InvalidArgument.
    """
    rho, costs = check_positive("sharpness", sharpness), check_array("values", values)
    bound = float(log_sum(rho * costs)) / rho
    # Rounding in ρ·c and back could bring the sum below its own largest value.
    return max(float(costs.max()), bound * (1 + _SUM_INFLATION))


def joint_terms(
    orders: Values,
    update_norms: Values,
    *,
    noise_stds: Sequence[float],
    sampling_rate: float = 1.0,
    constant_noise: bool = False,
) -> FloatArray:
    """Joint accounting: client-level log-moments from the noise that clients already add for their records.

    update_norms    ‖u_i‖ before noise, clipped: divergence with and without the whole update
    noise_stds      s_j of the honest survivors that are guaranteed. A surplus is free
    sampling_rate   below 1 only with `constant_noise`
    constant_noise  the total noise does not depend on who takes part: a helper or the coordinator tops it up

    Shape (orders, clients). The neighbouring relation is zero-out: the client takes part and adds its noise, its
    signal is zero. Removing the client would remove its noise too, and in many dimensions that shows. One noisy step
    a round (FedSGD) only. A missing client counts at the clip norm. Raises InvalidArgument.
    """
    if check_rate("sampling_rate", sampling_rate) < 1 and not constant_noise:
        raise InvalidArgument("sampling_rate", "below 1 needs constant_noise: who takes part shows in the noise")
    return log_moment(orders, update_norms, noise_std=total_noise(noise_stds), sampling_rate=sampling_rate)


def product_composition(log_moments: FloatArray) -> float:
    """Σ_t ln E_x e^{φ_t(x)}, the federated paper's Theorem 1: a product of the rounds' own averages. Not sound.

    log_moments  (rounds, records): φ_t(λ) of the records of a sample, or of a whole population

    The same x is in every round, so the loss of the run is E_x Π_t e^{φ_t(x)}, which is larger wherever a record that
    is expensive in one round is so in the next. `BayesianSpec(composition="holder")` or "running" bound it. Raises
    InvalidArgument.
    """
    costs = check_array("log_moments", log_moments, shape=2)
    return float(np.sum(log_sum(costs) - math.log(costs.shape[1]))) * (1 + _SUM_INFLATION)


def general_subsampled(order: int, pair: OutcomePair, *, sampling_rate: float) -> float:
    """max(c^L, c^R) of the thesis's Theorem 4 before the expectation over data: e^{k D_{k+1}} in both sums.

    Sound, but far too large: E (P/Q)^k is e^{(k−1) D_k}, so that the printed c^L has a first-order term in q, and most
    of the amplification by sampling is lost (`subsampled_moment`). Raises InvalidArgument.
    """
    lam, rate = check_count("order", order), check_rate("sampling_rate", sampling_rate)
    if rate == 0:
        return 0.0

    def side(trials: int, divergences: list[float]) -> float:
        exponents = np.array([k * divergence for k, divergence in enumerate(divergences, start=1)])
        if not np.isfinite(exponents).all():
            return math.inf
        if rate == 1:
            return float(exponents[-1])
        # k = 0 has exponent 0.
        return float(np.logaddexp(0.0, log_sum(log_binomial(trials, rate)[1:] + log_expm1(exponents))))

    forward = side(lam + 1, [pair.divergence(float(k + 1)) for k in range(1, lam + 2)])
    right = side(lam, [pair.reverse_divergence(float(k + 1)) for k in range(1, lam + 1)])
    return max(forward, right) * (1 + INFLATION)


def basic_composition(guarantees: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(Σε, Σδ) of (ε, δ) pairs: the thesis's Proposition 4, for k equal ones (kε, kδ). Not sound where one adapts.

    It holds for algorithms fixed beforehand, and for classical pairs always. A Bayesian δ is an average over x′. An
    algorithm chosen after the answers of another meets an x′ of whom those answers spoke, and may fail for just these:
    its δ then counts up to e^ε times. Raises InvalidArgument.
    """
    if not guarantees:
        raise InvalidArgument("guarantees", "is empty")
    if any(len(pair) != 2 for pair in guarantees):
        raise InvalidArgument("guarantees", "must hold pairs of ε and δ")
    losses = [check_nonnegative("guarantees", epsilon) for epsilon, _ in guarantees]
    failures = [check_nonnegative("guarantees", delta) for _, delta in guarantees]
    up = 1 + 2.0**-50
    return math.fsum(losses) * up, min(1.0, math.fsum(failures) * up)


def student_t_from_summary(mean: float, deviation: float, count: int, failure_probability: float) -> float:
    """ln(M + F⁻¹(1−γ, m−1) S/√(m−1)) from M, S and m alone: the thesis's Definition 17 times T. Not sound.

    mean, deviation  of e^{TλD} over the sample, the deviation with 1/m
    count            m

    Exact only if e^{TλD} is normal. The rarest records carry its mean, and a sample that lacks them shows neither them
    nor a deviation. `upper_mean(method="betting")` needs no law. Raises InvalidArgument, and EstimatorRefused for
    m < 3 or a deviation of zero.
    """
    centre, spread = check_positive("mean", mean), check_nonnegative("deviation", deviation)
    m, gamma = check_count("count", count), check_delta(failure_probability, "failure_probability")
    if m < 3:
        raise EstimatorRefused(f"{m} samples: an estimate needs at least 3")
    if spread == 0:
        raise EstimatorRefused("the sample variance is zero: Student t would claim to know the population exactly")
    # An upper quantile: 1 − γ is 1 for the γ in use.
    bound = centre + -float(_functions.stdtrit(m - 1, gamma)) * spread / math.sqrt(m - 1)
    return max(0.0, math.log(bound)) * (1 + _SUM_INFLATION)


def sum_of_maxima(costs: FloatArray) -> FloatArray:
    """Σ_t max_i c_{t,i}: the federated paper's parallel accounting, each round at its dearest client.

    costs  (rounds, clients, orders)

    Returns (orders,).

    Sound, but wasteful: a record lives at one client, whose own sum stands for its whole loss. The largest of the
    clients' sums is never above (`parallel_maximum`), and far below where clients take turns at being dear. Raises
    InvalidArgument.
    """
    return check_array("costs", costs, shape=3).max(axis=1).sum(axis=0) * (1 + _SUM_INFLATION)
