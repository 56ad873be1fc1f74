"""ε of one study from its exported ledger alone, by implementations that share no code with ours.

What was charged is read off the ledger's own JSON: rounds and questions that were not cancelled, the settings in its
first entry, the noise and sensitivity of every question. Rényi divergence and loss distributions are dp-accounting's;
"never below" is held against mpmath (50 digits), because floats of others are rounded too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dp_accounting
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution
from mpmath import binomial, exp, findroot, fsum, log, mp, mpf, ncdf, sqrt

Json = Mapping[str, Any]
_GRID = 1e-4


@dataclass(frozen=True)
class Charged:
    """What the ledger charges.

    rounds  of training;  multiplier, rate: of each of their steps
    asked   s/Δ of every question, by who bears it
    """

    rounds: int
    multiplier: float
    rate: float
    order: float
    delta: float
    asked: Mapping[str, tuple[float, ...]]

    @property
    def sides(self) -> list[tuple[int, tuple[float, ...]]]:
        """Rounds and questions of who is trained on, and of who is set aside: everybody is one of both."""
        everybody, aside = self.asked["all"], self.asked["evaluated"]
        return [(self.rounds, everybody), (0, everybody + aside)]


def charged(entries: Sequence[Json]) -> Charged:
    """Of all the entries of one study with one classical limit at instance level."""
    opened = entries[0]["body"]
    settings = opened["settings"]
    rounds, asked = set[int](), dict[int, Json]()
    for entry in entries:
        if entry["kind"] == "reserved":
            rounds.add(entry["round"])
        elif entry["kind"] == "asked":
            asked[entry["round"]] = entry["body"]["cost"]
    # What was cancelled costs nothing, and what is under way is reserved and not yet spent.
    ended = {one["round"] for one in entries if one["kind"] in ("settled", "charged-in-full")}
    costs = [cost for number, cost in asked.items() if number in ended]
    sides = {
        who: tuple(cost["noise_std"] / cost["sensitivity"] for cost in costs if cost["bears"] == who)
        for who in ("all", "evaluated")
    }
    privacy = settings["privacy"]
    (limit,) = privacy["limits"]
    trains = privacy["scheme"] != "statistics"
    return Charged(
        rounds=len(rounds & ended),
        multiplier=_noise(privacy) if trains else math.inf,
        rate=privacy["sampling_rate"] if trains else 0.0,
        order=privacy["classical_order"] if trains else 0.0,
        delta=limit["delta"],
        asked=sides,
    )


def _noise(privacy: Json) -> float:
    """Of one step, by the scheme: local noise counts alone, distributed noise of all honest survivors together."""
    masking = privacy["masking"]
    honest = masking["min_survivors"] - masking["colluders"] if privacy["scheme"] == "sequential" else 1
    return privacy["noise_multiplier"] * math.sqrt(honest)


def renyi_by_dp_accounting(found: Charged) -> float:
    """ε at the study's own order, of whichever side has lost more; one step a round."""
    stated = list[float]()
    for rounds, asked in found.sides:
        account = rdp.RdpAccountant([found.order + 1], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        step = dp_accounting.GaussianDpEvent(found.multiplier)
        if rounds:
            account.compose(dp_accounting.PoissonSampledDpEvent(found.rate, step), rounds)
        for multiplier in asked:
            account.compose(dp_accounting.GaussianDpEvent(multiplier))
        stated.append(float(account.get_epsilon(found.delta)) if rounds or asked else 0.0)
    return max(stated)


def renyi_exactly(found: Charged) -> Any:
    """The same in 50 digits, from the formulas: Mironov, Talwar & Zhang 2019; Canonne, Kamath & Steinke 2020."""
    with mp.workdps(50):
        alpha = int(found.order) + 1
        q, s = mpf(found.rate), mpf(found.multiplier)
        weights = ((k, binomial(alpha, k) * q**k * (1 - q) ** (alpha - k)) for k in range(alpha + 1))
        step = log(fsum(weight * exp(k * (k - 1) / (2 * s * s)) for k, weight in weights)) / (alpha - 1)
        stated = [mpf(0)]
        for rounds, asked in found.sides:
            divergence = rounds * step + fsum(alpha / (2 * mpf(multiplier) ** 2) for multiplier in asked)
            if divergence:
                constant = log(1 - mpf(1) / alpha) - log(found.delta * alpha) / (alpha - 1)
                stated.append(divergence + constant)
        return max(stated)


def loss_distribution(found: Charged) -> tuple[float, float]:
    """(at least, at most) ε of whichever side has lost more, by dp-accounting's optimistic and pessimistic PLDs."""
    least, most = (max(_composed(found, side, pessimistic) for side in found.sides) for pessimistic in (False, True))
    return least, most


def _composed(found: Charged, side: tuple[int, tuple[float, ...]], pessimistic: bool) -> float:
    rounds, asked = side

    def gaussian(multiplier: float, rate: float) -> Any:
        return privacy_loss_distribution.from_gaussian_mechanism(
            multiplier, pessimistic_estimate=pessimistic, value_discretization_interval=_GRID, sampling_prob=rate
        )

    parts = [gaussian(found.multiplier, found.rate).self_compose(rounds)] if rounds else []
    # Gaussian noise composes as one of the summed precision: no grid, no truncation.
    if asked:
        parts.append(gaussian(math.fsum(multiplier**-2 for multiplier in asked) ** -0.5, 1.0))
    if not parts:
        return 0.0
    whole = parts[0] if len(parts) == 1 else parts[0].compose(parts[1])
    return float(whole.get_epsilon_for_delta(found.delta))


def gaussian_exactly(found: Charged) -> Any:
    """ε of questions alone: the analytic Gaussian of Σ Δ²/s² (Balle & Wang 2018, Theorem 8), solved in 50 digits."""
    assert not found.rounds
    with mp.workdps(50):
        mu = sqrt(fsum(mpf(multiplier) ** -2 for multiplier in found.asked["all"]))

        def excess(epsilon: Any) -> Any:
            tail = exp(epsilon) * ncdf(-mu / 2 - epsilon / mu)
            return log(ncdf(mu / 2 - epsilon / mu) - tail) - log(mpf(found.delta))

        return findroot(excess, (mpf("0.001"), mpf(60)), solver="anderson", tol=mpf("1e-40"), maxsteps=200)


def require_stated(budget: Json, entries: Sequence[Json]) -> Charged:
    """What the coordinator states of a study that trains is what the ledger's events cost: never less, hardly more."""
    found, stated = charged(entries), _stated(budget)
    exact = renyi_exactly(found)
    assert mpf(stated["spent"]) >= exact, (stated["spent"], exact, found)
    assert stated["spent"] <= renyi_by_dp_accounting(found) * (1 + 1e-9), found
    return found


def require_tight(budget: Json, entries: Sequence[Json]) -> None:
    """The loss distribution beside it: never below what dp-accounting says at least, hardly above what it says at most.

    Seconds of processor time.
    """
    found = charged(entries)
    (report,) = (one["epsilon"] for one in _stated(budget)["reports"] if one["name"] == "privacy-loss distribution")
    least, most = loss_distribution(found)
    assert least <= report <= most * 1.005, (least, report, most, found)
    # Two bounds so near to each other that lying between them says something.
    assert most - least < 0.002 * most


def _stated(budget: Json) -> Json:
    (stated,) = (one for one in budget["limits"] if one["epsilon"] is not None)
    return stated
