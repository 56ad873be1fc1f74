"""From one record to several, one after the other: what holds for any mechanism.

With P_i the law after i of k changes, P_0 ≤ e^ε P_1 + δ, …, so that P_0 ≤ e^{kε} P_k + (1 + e^ε + … + e^{(k−1)ε})·δ(ε)
(Vadhan 2017, Lemma 2.2). A record that is exchanged is removed, and another one is added: two links.
"""

from __future__ import annotations

import math
from collections.abc import Callable

# Each further link of ε moves the next one less.
_MOST_ROUNDS = 60
_LEAST_DELTA = 1e-300


def chained_epsilon(read: Callable[[float], float], delta: float, links: int) -> float:
    """Least ε of a chain, rounded up, or inf without an answer. read: ε of one link at a δ."""
    link = 0.0
    for _ in range(_MOST_ROUNDS):
        share = delta / _sum_of_factors(link, links) * (1 - 1e-12)
        epsilon = read(share) if share > 1e-280 else math.inf
        if epsilon <= link:
            return links * link
        if not epsilon < 700:
            break
        # It grows with `link`, and repeated from below it ends at the least that is enough. A little beyond, so that it
        # does end.
        link = epsilon * (1 + 1e-6)
    return math.inf


def chained_delta(read: Callable[[float], float], epsilon: float, links: int) -> float:
    """Least δ(ε) of a chain, at most 1. read: δ of one link at an ε."""
    link = epsilon / links
    # No less than what underflows: the factors may be beyond every float.
    return min(1.0, max(read(link), _LEAST_DELTA) * _sum_of_factors(link, links) * (1 + 1e-12))


def _sum_of_factors(epsilon: float, links: int) -> float:
    """1 + e^ε + … + e^{(links − 1)ε}, or a float near the largest where it is beyond."""
    largest = (links - 1) * epsilon
    if largest > 650:
        return math.exp(700.0)
    return math.fsum(math.exp(link * epsilon) for link in range(links))
