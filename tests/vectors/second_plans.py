"""Limits that are kept by counting, a second time: a fixed plan of steps, and a sum of squares of rounds at rate 1.

What is drawn is the rounding of continuous noise with a variance 1/12 of a grid step smaller, but for a total variation
that comes off δ (docs/guarantees.md). Every number here is an interval: the least and the most that is right.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.vectors.second_epsilon import excess_of, gaussian_epsilon, least, mp, mpf, sampled_bounds, spendable
from tests.vectors.second_limits import step_of
from tests.vectors.second_study import SCHEMES, Json, Study

# Grid steps to the deviation of a round's noise, and of a query's, at least.
ROUND_STD, QUERY_STD = mpf(2**16), mpf(2**20 - 1)
# μ² and ε of a whole plan are rounded to seven and nine digits, to the safe side.
SEVEN, NINE = mpf("2e-6"), mpf("2e-8")
# Errors of floats: of an ε that is computed for a sum of squares.
FLOATS = mpf("1e-9")


class Range(NamedTuple):
    """The least and the most that a number may be."""

    low: mpf
    high: mpf


def lattice_error(std: mpf) -> mpf:
    return mpf("1e-3") / std**4


# Of all numbers of a round's sum: gradients of up to 1e8 have 2^22 grid steps to the deviation, updates of d have
# 2^14 √d, and at least 2^16.
STEP_ERROR = max(10**8 * lattice_error(mpf(2**22)), 16 * lattice_error(ROUND_STD))


class CountedLimit:
    """One classical limit of a study that trains, kept by counting."""

    enforcement: str

    def __init__(self, study: Study, limit: Json) -> None:
        self.study, self.limit, self.plan = study, limit, study.plan
        self.step, self.queries = step_of(self.plan, limit["level"]), self.plan["queries"]
        self.release = self.plan["release"]
        self.moved = mp.sqrt(SCHEMES[self.plan["scheme"]][1])
        asked = 0 if self.queries is None else self.queries["max_queries"]
        cells = 0 if self.queries is None else asked * self.queries["max_cells"]
        steps = self.plan["max_steps"]
        delta = spendable(limit["delta"], limit["epsilon"], steps * (1 if self.release is None else 2) + asked)
        error = steps * STEP_ERROR + cells * lattice_error(QUERY_STD)
        self.delta = delta - (1 + mp.exp(limit["epsilon"])) * error

    @property
    def rounds(self) -> int:
        return self.plan["max_steps"] // self.step.per_round

    @property
    def begun(self) -> bool:
        """Whether anything was charged."""
        return bool(self.study.rounds or self.study.queries or self.study.published)

    def spent(self) -> Range:
        """The ε that holds for every stop."""
        raise NotImplementedError

    def running(self) -> Range:
        """ε so far."""
        raise NotImplementedError

    def allowed(self) -> Range:
        """The most that the sum of squares may become."""
        raise NotImplementedError

    def used(self) -> mpf:
        """Σ Δ²/s² so far, of what `allowed` bounds."""
        raise NotImplementedError

    def squares(self, *bears: str) -> mpf:
        """Σ Δ²/s² of questions, of continuous noise."""
        pairs = [(query, count) for query, count in self.study.queries.items() if query.bears in bears]
        return mp.fsum(n * mpf(q.sensitivity) ** 2 / (mpf(q.noise_std) ** 2 - mpf(1) / 12) for q, n in pairs)

    def multipliers(self) -> list[tuple[mpf, int]]:
        """σ of every stage's continuous noise, and its rounds in the plan."""
        stages = self.plan.get("noise_schedule") or [{"rounds": self.rounds, "factor": 1.0}]
        less = mp.sqrt(1 - 1 / (12 * ROUND_STD**2))
        return [(self.step.std / mpf(self.step.clip) * mpf(one["factor"]) * less, one["rounds"]) for one in stages]

    def charged(self) -> list[tuple[mpf, int]]:
        """The same of the rounds that were charged."""
        stages, counts = self.multipliers(), [0] * len(self.multipliers())
        ends = [sum(rounds for _, rounds in stages[: i + 1]) for i in range(len(stages))]
        for place in self.study.places:
            counts[next((i for i, end in enumerate(ends) if place <= end), len(ends) - 1)] += 1
        return [(sigma, count) for (sigma, _), count in zip(stages, counts, strict=True)]

    def histograms(self, published: int) -> tuple[mpf, mpf]:
        """Σ Δ²/s² of so many histograms, and what their lattice adds at most."""
        if self.release is None or not published:
            return mpf(0), mpf(0)
        multiplier = mpf(self.release["std"]) / self.moved
        return published / multiplier**2, excess_of(multiplier, self.release["std"])

    def most_histograms(self) -> int:
        if self.release is None:
            return 0
        asked = 0 if self.queries is None else self.queries["max_queries"]
        return min(self.rounds, -(-(self.rounds + asked) // self.release["every"]))

    def gaussian(self, squares: mpf, published: int = 0) -> Range:
        """ε of releases with so many squares and of histograms beside them."""
        of_histograms, excess = self.histograms(published)
        total = squares + of_histograms
        return Range(gaussian_epsilon(total, self.delta), gaussian_epsilon(total, self.delta, excess) * (1 + FLOATS))

    def within(self, published: int) -> Range:
        """The most squares beside so many histograms that are within the limit: seven digits, rounded down."""

        def most(place: int) -> mpf:
            return least(lambda x: self.gaussian(x, published)[place] > self.limit["epsilon"], mpf(1), mpf("1e-11"))

        # The larger ε allows fewer.
        return Range(most(1) * (1 - SEVEN), most(0))


class WholePlan(CountedLimit):
    """Theorem B: in any order and for any stop, T steps and questions with Σ Δ²/s² ≤ μ² lose no more than all of
    them at once."""

    enforcement = "fixed-plan"

    def spent(self) -> Range:
        return self.whole() if self.begun else Range(mpf(0), mpf(0))

    def whole(self) -> Range:
        share = self.allowed()
        low = self._losses(self.multipliers(), self.most_histograms(), share.low)
        high = low if share.low == share.high else self._losses(self.multipliers(), self.most_histograms(), share.high)
        evaluates = self.queries is not None and self.queries["evaluation"] is not None
        floor = mpf(self.limit["epsilon"]) if evaluates else mpf(0)
        return Range(max(low.low, floor), max(high.high * (1 + NINE), floor))

    def allowed(self) -> Range:
        share = None if self.queries is None else self.queries.get("share")
        if share is None:
            return Range(mpf(0), mpf(0))
        low, high = self.within(0)
        return Range(mpf(share) * low, mpf(share) * high)

    def used(self) -> mpf:
        return self.squares("all")

    def running(self) -> Range:
        trained = self._losses(self.charged(), self.study.published, self.squares("all"))
        evaluated, whole = self.gaussian(self.squares("all", "evaluated")), self.whole()
        high = max(trained.high, evaluated.high)
        return Range(min(max(trained.low, evaluated.low), whole.high), min(high, whole.high))

    def _losses(self, rounds: list[tuple[mpf, int]], published: int, squares: mpf) -> Range:
        steps = [(sigma, count * self.step.per_round) for sigma, count in rounds if count]
        of_histograms, excess = self.histograms(published)
        if self.step.rate == 1 or not steps:
            return self.gaussian(squares + mp.fsum(count / sigma**2 for sigma, count in steps), published)
        laws = [(self.step.rate, float(sigma), count) for sigma, count in steps]
        if squares + of_histograms:
            laws.append((1.0, float(1 / mp.sqrt(squares + of_histograms)), 1))
        low, high = sampled_bounds(laws, float(self.delta), share=0.1 if excess else 1e-6)
        return Range(mpf(low), mpf(high))


class SquaresOfRounds(CountedLimit):
    """The Gaussian filter of Smith & Thakurta (2022) over rounds of all records and questions."""

    enforcement = "gaussian-filter"

    def spent(self) -> Range:
        epsilon = mpf(self.limit["epsilon"]) if self.begun else mpf(0)
        return Range(epsilon, epsilon)

    def allowed(self) -> Range:
        return self.within(self.most_histograms())

    def used(self) -> mpf:
        rounds = mp.fsum(count * self.step.per_round / sigma**2 for sigma, count in self.charged())
        return max(rounds + self.squares("all"), self.squares("all", "evaluated"))

    def running(self) -> Range:
        return self.gaussian(self.used(), self.study.published)


COUNTED: dict[str, type[CountedLimit]] = {"fixed-plan": WholePlan, "gaussian-filter": SquaresOfRounds}


def counted_of(study: Study, limit: Json) -> CountedLimit | None:
    """The account that keeps this limit by counting. None: it is kept in ε."""
    kind = COUNTED.get(limit.get("enforcement") or "renyi-order")
    return None if kind is None else kind(study, limit)
