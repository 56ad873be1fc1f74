"""The classical limit of a study that trains: the worst case over all records, from the public plan alone."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Literal

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.accounts.losses import most_histograms, steps_of_histograms, steps_of_rounds, steps_of_squares
from accounting.budget.accounts.worst_case import Charged, WorstCaseLimit
from accounting.mechanisms.conversion import largest_moment
from accounting.mechanisms.events import DiscreteGaussianEvent
from accounting.mechanisms.guessing import guess_chance, rounding_error
from accounting.mechanisms.lattice import lattice_error
from accounting.mechanisms.unsampled import LEAST_GRID_STD, Steps
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import LEAST_STD, Bears
from accounting.units import PRIVACY_LOSS_DISTRIBUTION, Guarantee


class ClassicalLimit(WorstCaseLimit):
    """Rényi filter at one public order. PLD beside it for readers of a study whose stop was fixed in advance."""

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        self._filter = self._filter_at(self.charged)

    @property
    def enforced_by(self) -> str:
        return f"Rényi divergence at order {self.plan.classical_order:g}"

    def epsilon(self) -> float:
        return self._filter.epsilon()

    def epsilon_of(self, charged: Charged) -> float:
        return self._filter_at(charged).epsilon()

    def stand_at(self, charged: Charged) -> None:
        # One product, not a running sum: live and restored agree to the last bit.
        self._filter = self._filter_at(charged)
        super().stand_at(charged)

    @property
    def growth(self) -> float:
        # At one order ε is linear in the moment, apart from the constant that the first round brings.
        once = self.charged.with_round(self.plan.stage_of(self.rounds + 1), publishes=False)
        twice = once.with_round(self.plan.stage_of(self.rounds + 2), publishes=False)
        return self.epsilon_of(twice) - self.epsilon_of(once)

    def certificate(self, *, finished: bool) -> Guarantee:
        return self.worded(self._filter.certificate())

    def reports_of(self, charged: Charged) -> list[tuple[str, Guarantee]]:
        headline = self._larger(charged, method="pld", order=None)
        return [(PRIVACY_LOSS_DISTRIBUTION, self.worded(headline.certificate()))]

    def guess_chance(self) -> float | None:
        plan = self.plan
        to_come = most_histograms(plan, plan.rounds - self.rounds, asked=len(self.queries))
        if self.published + to_come > most_histograms(plan, plan.rounds):
            # Histograms of cancelled rounds came on top: the plan does not say how many more may.
            return None
        if plan.noise_schedule is not None:
            # Cancelled rounds may leave out the stages with more noise.
            return None
        steps = _all_releases(plan, self.limit)
        # What is drawn is rounded continuous noise but for so much.
        of_queries = 0.0 if plan.queries is None else plan.queries.cells * lattice_error(LEAST_STD)
        lattice = rounding_error(plan.max_steps) + of_queries
        return None if steps is None else guess_chance(steps, releases=self._releases, lattice=lattice)

    @property
    def max_squares(self) -> float:
        """Σ Δ²/s² at which Gaussian releases of all records spend the limit, rounded up."""
        order = self.order
        return max(0.0, 2 * largest_moment(order, self.limit.epsilon, self.beta) / order / (order + 1) * (1 + 1e-9))

    def max_rounds(self) -> int:
        """Return the rounds that the limit lets begin without any other charge."""
        fitting = range(self.plan.rounds + 1)
        return bisect_right(fitting, self.limit.epsilon, key=lambda rounds: self.epsilon_at_worst(rounds, 0)) - 1

    def _filter_at(self, charged: Charged) -> ClassicalAccountant:
        return self._larger(charged, method="rdp", order=self.plan.classical_order)

    def _larger(self, charged: Charged, *, method: Literal["pld", "rdp"], order: float | None) -> ClassicalAccountant:
        """Return the account of the patients who have lost more: those who are trained on, or those set aside for
        evaluation."""

        def opened(bearer: Bears) -> ClassicalAccountant:
            observer, level = self.plan.observer, self.limit.level
            account = ClassicalAccountant(delta=self.delta, method=method, order=order, level=level, observer=observer)
            for event, count in charged.queries.events("all", bearer):
                account.compose(event, count)
            return account

        trained = opened("all")
        self._train(trained, charged)
        evaluated = opened("evaluated")
        return evaluated if evaluated.epsilon() > trained.epsilon() else trained

    def _train(self, account: ClassicalAccountant, charged: Charged) -> None:
        for step, rounds in zip(self.mechanisms, charged.rounds, strict=True):
            if rounds:
                account.step(
                    noise_multiplier=step.noise_multiplier,
                    sampling_rate=step.sampling_rate,
                    count=rounds * step.steps_per_round,
                )
        if self.plan.release is not None and charged.published:
            # Few steps of the integers to a deviation: the loss of the discrete law is not the continuous one's.
            event = DiscreteGaussianEvent(self.plan.release.std, self.plan.rules.histogram_sensitivity)
            account.compose(event, charged.published)


@lru_cache(maxsize=64)
def _all_releases(plan: Plan, limit: LimitPlan) -> tuple[Steps, ...] | None:
    """Return steps that dominate everything the plan may release, for any adaptation of rounds and questions, or None
    where they are unknown.

    All rounds that the limit lets begin, all histograms, and as large a sum of squares of questions as it lets in, all
    at once. Each part is fixed before round 1, so that no order, size or stop that adapts does better than the
    composition of all (docs/guarantees.md). Evaluations are borne by patients who bear no round, and are within the
    same sum. If rounds take all records, rounds and questions are Gaussian releases under one limit on their
    Σ Δ²/s², and together are dominated by one (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023).
    """
    account = ClassicalLimit(plan, limit)
    step = account.mechanism
    rounds, squares = account.max_rounds(), 0.0 if plan.queries is None else account.max_squares
    releases: list[Steps] = []
    if squares and step.sampling_rate == 1:
        # Histograms stand apart below, which only adds.
        rounds = 0
    releases += steps_of_rounds(account.mechanisms, plan.first_rounds(rounds))
    if plan.release is not None:
        if plan.release.std < LEAST_GRID_STD:
            # Few steps of the integers to a deviation: the lattice is beyond what is proved.
            return None
        releases += steps_of_histograms(plan, most_histograms(plan, plan.rounds))
    return (*releases, *steps_of_squares(squares))
