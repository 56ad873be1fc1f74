"""What one round costs, by scheme (Triastcyn & Faltings 2019, section V; Triastcyn 2020, section 6.4).

Every function returns log-moments in nats, never below the exact value, for accountants to estimate and sum. d and s
are on one scale: the sum of the updates as the coordinator receives it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import Values, log_moment, log_sum, sampled_bound
from accounting.units import (
    FloatArray,
    check_array,
    check_count,
    check_nonnegative,
    check_positive,
    check_rate,
)

# Sums of a few thousand float64 terms; covered once more by rounding every term up.
_SUM_INFLATION = 1e-12


def centred_distances(updates: FloatArray, centre: FloatArray, *, clip_norm: float) -> FloatArray:
    """d_i = ‖clip_C(u_i − v)‖ for updates (clients, parameters): the client level under add/remove.

    The centre v must be public or already released (the previous aggregate): then the clients' agreement makes d
    small, and the sensitivity of Σ clip_C(u_i − v) is still C. A centre computed from this round's updates is not.
    """
    ceiling = check_positive("clip_norm", clip_norm)
    rows = check_array("updates", updates, low=-math.inf, shape=2)
    point = check_array("centre", centre, low=-math.inf)
    if point.size != rows.shape[1]:
        raise InvalidArgument("centre", f"has {point.size} parameters, the updates {rows.shape[1]}")
    norms = np.linalg.norm(rows - point, axis=1)
    return np.minimum(np.nextafter(norms, np.inf), ceiling)


def client_terms(orders: Values, distances: Values, *, noise_std: float, sampling_rate: float) -> FloatArray:
    """Client level, noise s = σC on the sum with a public constant denominator: φ(λ, d_i; q, s).

    Shape orders × clients. Pairwise distances ‖u_i − u_j‖ do not belong here but to `replace_one_moment`.
    """
    return log_moment(orders, distances, noise_std=noise_std, sampling_rate=sampling_rate)


def sequential_as_in_papers(costs: FloatArray) -> FloatArray:
    """The papers' sequential instance accounting: Σ_i ĉ_i(λ), each client's cost computed at q = B_i/N.

    costs  clients × orders, from `paper_rate`

    As in the papers, for comparison. It presumes secret, independent participation that the sum does not betray,
    clients of equal size and total noise that does not depend on who takes part; where updates or participation are
    visible it understates the loss (`sequential_charge` is the sound one).
    """
    rows = check_array("costs", costs, shape=2)
    return rows.sum(axis=0) * (1 + _SUM_INFLATION)


def paper_rate(batch_size: int, total_records: int) -> float:
    """q = B_i/N of the papers' sequential accounting, N the records of all clients together."""
    batch, total = check_count("batch_size", batch_size), check_count("total_records", total_records)
    if batch > total:
        raise InvalidArgument("batch_size", f"is {batch}, more than total_records {total}")
    return batch / total


def sequential_charge(
    orders: Values,
    distances: Values,
    *,
    sampling_rate: float,
    noise_stds: Sequence[float],
    participation: float,
) -> FloatArray:
    """Sound sequential charge: log(1 − α + α e^{φ(λ, d; B_i/N_i, √Σs_j²)}), by joint convexity, both directions.

    distances      norms of this client's records' contributions to the sum
    sampling_rate  the client's own B_i/N_i, Poisson
    noise_stds     s_j of the honest survivors of the secure sum, this client among them; one noisy local step a round
    participation  α_i: the probability with which the client takes part unseen; 1 where participation is visible,
                   as it is to the coordinator and to peers

    Shape orders × records. A round costs the largest value over clients: a record lives at one of them. With several
    local steps a round the noise of others does not help: use `local_steps_charge`.
    """
    alpha = check_rate("participation", participation)
    return sampled_bound(
        log_moment(orders, distances, noise_std=total_noise(noise_stds), sampling_rate=sampling_rate), alpha
    )


def local_steps_charge(
    orders: Values, distances: Values, *, noise_std: float, sampling_rate: float, local_steps: int
) -> FloatArray:
    """Several noisy local steps in a round: each is charged at the client's own noise, and they add up."""
    steps = check_count("local_steps", local_steps)
    return steps * log_moment(orders, distances, noise_std=noise_std, sampling_rate=sampling_rate)


def parallel_maximum(ledgers: FloatArray) -> FloatArray:
    """Parallel instance accounting: the largest of the clients' cumulative ledgers (clients × orders), per order.

    On cumulative ledgers it is tighter than summing each round's maximum, and valid: a record's whole loss stands in
    its own client's ledger.
    """
    return check_array("ledgers", ledgers, shape=2).max(axis=0)


def log_sum_exp_bound(values: Values, sharpness: float) -> float:
    """(1/ρ) ln Σ_i e^{ρ c_i}: a sum stands in for the maximum; between max and max + ln K/ρ, rounded up."""
    rho = check_positive("sharpness", sharpness)
    costs = check_array("values", values)
    bound = float(log_sum(rho * costs)) / rho
    return max(float(costs.max()), bound * (1 + _SUM_INFLATION))


def threshold_bound(values: Values, thresholds: Values) -> float:
    """The least threshold that nobody exceeds: what a secure sum of blinded "above g_k" words shows.

    thresholds  strictly increasing, public; a value above the last is an error, since no threshold bounds it
    """
    grid, costs = check_array("thresholds", thresholds), check_array("values", values)
    if bool((np.diff(grid) <= 0).any()):
        raise InvalidArgument("thresholds", "must be strictly increasing")
    if costs.max() > grid[-1]:
        raise InvalidArgument("values", f"holds {float(costs.max())!r}, above the last threshold")
    return float(grid[np.searchsorted(grid, costs.max(), side="left")])


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
    noise_stds      s_j of the honest survivors that are guaranteed; a surplus is free
    sampling_rate   below 1 only with `constant_noise`
    constant_noise  the total noise does not depend on who takes part: a helper or the coordinator tops it up

    Shape orders × clients. The neighbouring relation is zero-out: the client takes part and adds its noise, its
    signal is zero. Removing the client would remove its noise too, and in many dimensions that shows. One noisy step
    a round (FedSGD) only.
    """
    if check_rate("sampling_rate", sampling_rate) < 1 and not constant_noise:
        raise InvalidArgument("sampling_rate", "below 1 needs constant_noise: who takes part shows in the noise")
    return log_moment(orders, update_norms, noise_std=total_noise(noise_stds), sampling_rate=sampling_rate)


def with_missing(terms: FloatArray, worst: FloatArray, missing: int) -> FloatArray:
    """Terms (orders × clients) with `missing` clients counted at the worst case (orders,)."""
    rows = check_array("terms", terms, shape=2)
    ceiling = check_array("worst", worst)
    if ceiling.size != rows.shape[0]:
        raise InvalidArgument("worst", f"has {ceiling.size} orders, the terms {rows.shape[0]}")
    return np.concatenate([rows, np.repeat(ceiling[:, None], check_count("missing", missing, least=0), axis=1)], axis=1)


def total_noise(noise_stds: Sequence[float]) -> float:
    """√Σ s_j², rounded down: the noise of independent shares."""
    shares = check_array("noise_stds", noise_stds)
    if bool((shares <= 0).any()):
        raise InvalidArgument("noise_stds", "every share must be > 0")
    return math.sqrt(math.fsum(float(share) ** 2 for share in shares)) * (1 - 1e-15)


def honest_share_std(total_std: float, honest: int) -> float:
    """What each client adds so that `honest` of them together reach `total_std`, rounded up."""
    return check_nonnegative("total_std", total_std) / math.sqrt(check_count("honest", honest)) * (1 + 1e-15)
