"""What each of a study's limits has cost, from what its ledger says happened. One class for each way of keeping one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.vectors.second_epsilon import (
    Refused,
    epsilon_of,
    excess_of,
    gaussian_epsilon,
    least,
    lowered,
    mp,
    mpf,
    sampled_bounds,
    spendable,
    step_moment,
    upper_mean,
)
from tests.vectors.second_study import SCHEMES, Json, Query, Study

Numbers = dict[str, tuple[mpf, mpf]]
# Grid steps to a standard deviation from which on the lattice's excess is known. Below, Rényi divergences are read.
LEAST_GRID_STD = 8.0
# Among those that a certificate lists in `orders`.
ORDERS = [tenths / 10 for tenths in range(1, 100)] + [float(order) for order in range(10, 65)]


@dataclass(frozen=True)
class Step:
    clip: float
    std: mpf
    rate: float
    per_round: int

    def moment(self, order: float) -> mpf:
        return step_moment(order, self.clip, float(self.std), self.rate)


def step_of(plan: Json, level: str) -> Step:
    """One noised step as a level sees it."""
    levels = SCHEMES[plan["scheme"]][0]
    clip, std = plan["clip_norm"], mpf(plan["noise_multiplier"]) * mpf(plan["clip_norm"])
    if plan["scheme"] in ("sequential", "joint"):
        # The noise of every honest survivor counts; shares of one noise add up to it.
        std *= mp.sqrt(plan["honest_survivors"])
    if plan["scheme"] == "joint" and level == "client":
        clip = plan["client_clip_norm"]
    rate = plan["sampling_rate"] if dict(levels)[level] else 1.0
    return Step(clip, std, rate, plan["steps_per_round"])


def query_moment(order: float, precision: mpf) -> mpf:
    return mpf(order) * (mpf(order) + 1) / 2 * precision


class Limit:
    """One limit of a study that trains, after `study`; `told`: reports withheld until the end may be read."""

    def __init__(self, study: Study, limit: Json, *, told: bool) -> None:
        self.study, self.limit, self.plan = study, limit, study.plan
        self.step, self.release = step_of(self.plan, limit["level"]), self.plan["release"]
        self.moved = mp.sqrt(SCHEMES[self.plan["scheme"]][1])
        queries = self.plan["queries"]
        releases = self.plan["max_steps"] * (1 if self.release is None else 2)
        releases += 0 if queries is None else queries["max_queries"]
        self.gamma = limit["estimator_failure_probability"] or 0.0
        self.beta = spendable(limit["delta"], limit["epsilon"], releases, self.gamma) - mpf(self.gamma)
        self.told = told or self.plan["disclosure"] != "at-end"

    def histogram(self, order: float) -> mpf:
        """What one published histogram costs."""
        return mpf(0) if self.release is None else query_moment(order, (self.moved / mpf(self.release["std"])) ** 2)

    def epsilon(self) -> mpf:
        """ε as the limit is kept."""
        raise NotImplementedError

    def certified(self) -> mpf:
        """ε as the certificate states it."""
        raise NotImplementedError

    def reports(self) -> Numbers:
        """The numbers beside it by name, each as the least and the most that is right before rounding."""
        raise NotImplementedError

    def worst(self, order: float) -> mpf:
        """All charged steps and histograms at the clip norm: no number is ever above it."""
        steps = len(self.study.rounds) * self.step.per_round
        return steps * self.step.moment(order) + self.study.published * self.histogram(order)


class Classical(Limit):
    """A Rényi filter at one order, and beside it the loss distributions."""

    def certified(self) -> mpf:
        return self.epsilon()

    def epsilon(self) -> mpf:
        order = self.plan["classical_order"]
        of_all, aside = self.study.precision("all"), self.study.precision("evaluated")
        trained = self.worst(order) + query_moment(order, of_all)
        return max(epsilon_of(order, total, self.beta) for total in (trained, query_moment(order, of_all + aside)))

    def privacy_loss(self) -> tuple[mpf, mpf]:
        """Between which two numbers ε of the composed losses lies: of who is trained on, or set aside, the larger."""
        of_all = self.study.precision("all")
        aside = self._unsampled(of_all + self.study.precision("evaluated"), self._excess(of_queries=True))
        trained = self._trained(of_all)
        return max(aside[0], trained[0]), max(aside[1], trained[1])

    def _trained(self, of_queries: mpf) -> tuple[mpf, mpf]:
        step, published = self.step, self.study.published if self.release is not None else 0
        count, multiplier = len(self.study.rounds) * step.per_round, step.std / mpf(step.clip)
        unsampled = of_queries + (count / multiplier**2 if step.rate == 1 else 0)
        if published:
            unsampled += published * (self.moved / mpf(self.release["std"])) ** 2
        if published and self.release["std"] < LEAST_GRID_STD:
            return self._best_order(count, published, of_queries)
        excess = self._excess(of_queries=bool(of_queries), published=bool(published))
        if not count or step.rate == 1:
            return self._unsampled(unsampled, excess)
        laws = [(step.rate, float(multiplier), count)]
        if unsampled:
            laws.append((1.0, float(1 / mp.sqrt(unsampled)), 1))
        # Of δ the lattice adds some percent at its coarsest, a tenth is more.
        low, high = sampled_bounds(laws, float(self.beta), share=0.1 if published else 1e-6)
        return mpf(low), mpf(high)

    def _unsampled(self, precision: mpf, excess: mpf) -> tuple[mpf, mpf]:
        return gaussian_epsilon(precision, self.beta), gaussian_epsilon(precision, self.beta, excess)

    def _excess(self, *, of_queries: bool, published: bool = False) -> mpf:
        """What the lattice of any of these steps adds at most."""
        found = [excess_of(self.step.std / mpf(self.step.clip))]
        if of_queries:
            found += [excess_of(q.noise_std / q.sensitivity, q.noise_std) for q in self.study.queries]
        if published:
            found.append(excess_of(self.release["std"] / self.moved, self.release["std"]))
        return max(found)

    def _best_order(self, count: int, published: int, of_queries: mpf) -> tuple[mpf, mpf]:
        """The least ε over all orders, and over `ORDERS`: it falls with the order and then rises."""

        def at(order: float) -> mpf:
            moment = count * self.step.moment(order) + published * self.histogram(order)
            return epsilon_of(order, moment + query_moment(order, of_queries), self.beta)

        low, high = 0, len(ORDERS) - 1
        while high - low > 2:
            third = max(1, (high - low) // 3)
            better = at(ORDERS[low + third]) < at(ORDERS[high - third])
            low, high = (low, high - third) if better else (low + third, high)
        listed = min(at(order) for order in ORDERS[low : high + 1])
        if self.step.rate < 1:
            return listed, listed
        # In closed form more orders are asked than these.
        left, right = ORDERS[max(0, low - 1)], ORDERS[min(high + 1, len(ORDERS) - 1)]
        for _ in range(30):
            third = (right - left) / 3
            better = at(left + third) < at(right - third)
            left, right = (left, right - third) if better else (left + third, right)
        return min(listed, at((left + right) / 2)), listed

    def reports(self) -> Numbers:
        return {"privacy-loss distribution": self.privacy_loss()}


class Bayesian(Limit):
    """`filter_order` λ* has the whole γ; the statement's orders share it."""

    def __init__(self, study: Study, limit: Json, *, told: bool) -> None:
        super().__init__(study, limit, told=told)
        self.bayesian: Json = self.plan["bayesian"]
        self.filter, self.orders = self.bayesian["filter_order"], self.bayesian["orders"]
        self.improved, self.adaptive = (
            self.bayesian["conversion"] == "improved",
            self.bayesian["adversary"] == "adaptive",
        )

    def ledger(self, order: float, of: Any) -> mpf:
        """A cost at an order; against an adaptive adversary at 2λ + 1, halved."""
        return of(2 * order + 1) / 2 if self.adaptive else of(order)

    def epsilon(self) -> mpf:
        return epsilon_of(
            self.filter, self.moments(reading=self.plan["disclosure"] != "at-end")[0], self.beta, self.improved
        )

    def certified(self) -> mpf:
        """The certificate's ε, which reads withheld reports once they are told."""
        return self._read(self.told)

    def _read(self, reading: bool) -> mpf:
        return epsilon_of(self.filter, self.moments(reading=reading)[0], self.beta, self.improved)

    def best(self, moments: Sequence[mpf]) -> tuple[mpf, mpf]:
        found = min(epsilon_of(o, c, self.beta, self.improved) for o, c in zip(self.orders, moments, strict=True))
        return found, found

    def reports(self) -> Numbers:
        if not self.study.rounds or not self.told:
            return {}
        return {"best order": self.best(self.moments(reading=True)[1:])}

    def moments(self, *, reading: bool) -> list[mpf]:
        """At λ* first, then at the statement's orders."""
        raise NotImplementedError


class Histograms(Bayesian):
    """Client level: every round's sample by itself, composed by Hölder with equal weights."""

    def moments(self, *, reading: bool) -> list[mpf]:
        shares = [self.gamma] + [self.gamma / len(self.orders)] * len(self.orders)
        return [self._moment(o, share, reading) for o, share in zip([self.filter, *self.orders], shares, strict=True)]

    def _moment(self, order: float, share: float, reading: bool) -> mpf:
        ledger_order = 2 * order + 1 if self.adaptive else order
        total = mpf(0)
        for report, published in self.study.rounds:
            read = reading and (published or self.release is None)
            total += self._round(ledger_order, share, self._counts(report) if read else None)
            total += published * self.histogram(ledger_order)
        return min(total / 2 if self.adaptive else total, self.worst(order))

    def _counts(self, report: Any) -> Json | None:
        report = report["clients"] if report is not None and "clients" in report else report
        if report is None or "counts" not in report or (("sample_size" in report) != (self.release is not None)):
            return None
        return report if "sample_size" in report or sum(report["counts"]) > 0 else None

    def _round(self, order: float, share: float, report: Json | None) -> mpf:
        ceiling, per_round = self.step.moment(order), self.step.per_round
        if report is None:
            return per_round * ceiling
        most = self.plan["max_steps"] + (0 if self.release is None else self.plan["max_steps"] // per_round)
        weight, counts = mpf(1) / most, report["counts"]
        failure = share * float(weight)
        if self.release is not None:
            # Half of γ for the noise, half for the estimate.
            std, failure = max(report["count_noise"], self.release["std"]), failure / 2
            counts = lowered(counts, std, self.gamma * float(weight) / 2, report["sample_size"])
        bins = len(counts)
        edges = [self.step.clip * (i + 1) / bins for i in range(bins)]
        costs = [step_moment(order, d, float(self.step.std), self.step.rate) / weight for d in edges]
        try:
            cost = weight * upper_mean(self.bayesian["estimator"], costs, counts, failure, ceiling / weight)
        except Refused:
            cost = ceiling
        return min(cost, ceiling) + (per_round - 1) * ceiling


class Cumulative(Bayesian):
    """Instance level: the largest of the hospitals' own bounds, never above the round before and the worst case."""

    def moments(self, *, reading: bool) -> list[mpf]:
        """With what queries cost: of who is trained on, or set aside, whoever has lost more."""
        bounds = self._bounds() if reading else [self.worst(o) for o in [self.filter, *self.orders]]
        return self._with_queries(bounds)

    def _bounds(self) -> list[mpf]:
        orders, per_round, before = [self.filter, *self.orders], self.step.per_round, Study(self.plan)
        bound = [mpf(0)] * len(orders)
        for place, (report, published) in enumerate([*self.study.rounds, (None, False)]):
            for _ in range(self.study.lost.count(place)):
                before.published += 1
                bound = self._grown(bound, 0, 1, before)
            if place == len(self.study.rounds):
                break
            before.rounds.append((report, published))
            before.published += published
            reserved = self._grown(bound, per_round, int(published), before)
            report = report["records"] if report is not None and "clients" in report else report
            if report is not None and len(report.get("moments", [])) == len(self.orders):
                floor = [mpf(0)] * len(orders) if report["complete"] else bound
                told = [report["filter"], *report["moments"]]
                bound = [min(max(f, mpf(t)), r) for f, t, r in zip(floor, told, reserved, strict=True)]
            else:
                bound = reserved
        return bound

    def _grown(self, bound: Sequence[mpf], steps: int, histograms: int, now: Study) -> list[mpf]:
        cap = Limit(now, self.limit, told=False)
        grown: list[mpf] = []
        for order, value in zip([self.filter, *self.orders], bound, strict=True):
            step, one = self.ledger(order, self.step.moment), self.ledger(order, self.histogram)
            grown.append(min(value + steps * step + histograms * one, cap.worst(order)))
        return grown

    def _with_queries(self, bounds: Sequence[mpf]) -> list[mpf]:
        queries = self.plan["queries"]
        allowance = None if queries is None else queries["allowance"]
        of_all = self.study.precision("all") if allowance is None else mpf(allowance)
        aside = self.study.precision("evaluated") if allowance is None else self._scheduled(queries)
        if allowance is not None and not self.study.rounds and not self.study.queries and not self.study.published:
            return list(bounds)
        both = [
            (self.ledger(o, lambda x: query_moment(x, of_all)), self.ledger(o, lambda x: query_moment(x, aside)))
            for o in [self.filter, *self.orders]
        ]
        return [max(c + alike, alike + other) for c, (alike, other) in zip(bounds, both, strict=True)]

    def _scheduled(self, queries: Json) -> mpf:
        """Σ Δ²/s² of the evaluations that the schedule explains."""
        evaluation = queries["evaluation"]
        if evaluation is None or evaluation["cost"] is None:
            return mpf(0)
        cost = Query(*(evaluation["cost"][name] for name in ("noise_std", "sensitivity", "bears")))
        due = -(-len(self.study.rounds) // evaluation["every"])
        return min(due, self.study.queries[cost]) * cost.precision

    def reports(self) -> Numbers:
        found, told = super().reports(), [report for report, _ in self.study.rounds]
        if not found or self.plan["scheme"] != "sequential":
            return found
        if all(report is not None and "papers" in report for report in told):
            sums = [mp.fsum(report["papers"][i] for report in told) for i in range(len(self.orders))]
            papers = self._with_queries([self.moments(reading=True)[0], *sums])[1:]
            found["sequential, as in the papers"] = self.best(papers)
        return found


class Questions:
    """The Gaussian filter of a study of questions alone: Σ Δ²/s² ≤ μ², in continuous noise of a variance 1/12 less."""

    def __init__(self, study: Study, limit: Json, *, told: bool) -> None:
        self.study, self.limit, queries = study, limit, study.plan["queries"]
        lattice = queries["max_queries"] * queries["max_cells"] * mpf("1e-3") / mpf(2**20 - 1) ** 4
        slack = (1 + mp.exp(limit["epsilon"])) * (lattice + queries["max_queries"] * mpf("1e-40"))
        self.delta = mpf(limit["delta"]) - slack

    def epsilon(self) -> mpf:
        """The limit, from the first question on."""
        return max(mpf(self.limit["epsilon"]), self.running(self.used)) if self.study.queries else mpf(0)

    def certified(self) -> mpf:
        return self.epsilon()

    def running(self, precision: mpf, excess: mpf = mpf(0)) -> mpf:
        return gaussian_epsilon(precision, self.delta, excess)

    @property
    def used(self) -> mpf:
        pairs = self.study.queries.items()
        return mp.fsum(n * mpf(q.sensitivity) ** 2 / (mpf(q.noise_std) ** 2 - mpf(1) / 12) for q, n in pairs)

    def allowed(self) -> mpf:
        """μ²."""
        return least(lambda x: self.running(x) > self.limit["epsilon"], mpf(1), mpf("1e-11"))

    def reports(self) -> Numbers:
        precision = self.study.precision("all", "evaluated")
        return {"privacy-loss distribution": (self.running(precision), self.running(precision, excess_of(1)))}


def limit_of(study: Study, limit: Json, *, told: bool) -> Limit | Questions:
    """The account that keeps this limit."""
    if study.plan["scheme"] == "statistics":
        return Questions(study, limit, told=told)
    if limit["definition"] == "classical":
        return Classical(study, limit, told=told)
    return (Histograms if limit["level"] == "client" else Cumulative)(study, limit, told=told)
