"""Random studies that train, ask and publish: ε of the whole plan against the exact number.

    python -m research.enforcement.mixed_studies [--studies 1000] [--out research/benchmarks/results/mixed_studies.json]

What `FixedPlanLimit` states is compared with the inversion of `research.enforcement.exact`, with continuous noise: at
the limit's whole δ, below whose ε it must never be, and at the δ that is left after the rounding of all noise. The
excess above the latter is what discretised losses and transforms cost.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from accounting.budget.accounts.fixed_plan import FixedPlanLimit
from accounting.budget.accounts.losses import most_histograms
from accounting.budget.enforcement import tightest_rule
from accounting.plan.limits import HistogramRelease
from accounting.plan.plan import Plan
from research.enforcement.exact import GaussianSteps, exact_epsilon
from research.enforcement.plans import study_plan

SEED = 32
# ε of the plans that are compared.
LEAST, MOST = 0.05, 20.0
_LARGEST_EXCESS = 1e-3


@dataclass(frozen=True)
class MixedStudy:
    """The drawn case: sampled steps, limit, share of questions, and histograms of this noise (0: none)."""

    noise: float
    rate: float
    count: int
    epsilon: float
    delta: float
    share: float
    histogram_noise: float
    every: int

    @property
    def plan(self) -> Plan:
        release = HistogramRelease(self.histogram_noise, self.every) if self.histogram_noise else None
        return study_plan(
            noise=self.noise,
            rate=self.rate,
            count=self.count,
            epsilon=self.epsilon,
            delta=self.delta,
            enforcement="fixed-plan",
            share=self.share or None,
            release=release,
        )


@dataclass(frozen=True)
class MixedComparison:
    """ε of the whole plan as stated, and the exact ones at the whole δ and at what is left of it."""

    study: MixedStudy
    squares: float
    stated: float
    exact: float
    exact_after_slack: float

    @property
    def excess(self) -> float:
        return self.stated - self.exact_after_slack


def random_study(random: np.random.Generator) -> MixedStudy:
    """A study whose ε is about its limit: noise by the strong composition of its steps, up to a factor of two."""
    delta = 10.0 ** -random.uniform(4, 9)
    epsilon = float(np.exp(random.uniform(math.log(0.2), math.log(16))))
    count = int(np.exp(random.uniform(0, math.log(5000))))
    rate = float(np.exp(random.uniform(math.log(0.002), math.log(0.8))))
    needed = rate * math.sqrt(2 * count * math.log(1 / delta)) / epsilon
    # Without a question, steps that most often leave a record out have too narrow a law for the exact sums.
    asks = count * rate < 5 or random.random() < 0.5
    share = random.uniform(0.02, 0.5) if asks else 0.0
    histogram_noise = random.choice([0.0, float(np.exp(random.uniform(math.log(20), math.log(200))))])
    return MixedStudy(
        noise=float(max(0.45, needed * random.uniform(0.7, 1.5))),
        rate=rate,
        count=count,
        epsilon=epsilon,
        delta=delta,
        share=share,
        histogram_noise=float(histogram_noise),
        every=max(1, count // 3),
    )


def compared(study: MixedStudy) -> MixedComparison | None:
    """None: another rule is chosen for such a study, or its ε is not between `LEAST` and `MOST`."""
    plan = study.plan
    account = FixedPlanLimit(plan, plan.limits[0])
    stated = account.trained
    if tightest_rule(plan, plan.limits[0])[0] != "fixed-plan" or not LEAST <= stated <= MOST:
        return None
    parts = [GaussianSteps(study.noise, study.rate, study.count)]
    if account.question_squares:
        parts.append(GaussianSteps(1 / math.sqrt(account.question_squares), 1.0, 1))
    if published := most_histograms(plan, study.count):
        parts.append(GaussianSteps(study.histogram_noise / plan.rules.histogram_sensitivity, 1.0, published))
    after_slack = exact_epsilon(parts, account.delta, stated)
    whole = exact_epsilon(parts, study.delta, after_slack)
    return MixedComparison(study, account.question_squares, stated, whole, after_slack)


def comparisons(count: int) -> Iterator[MixedComparison]:
    """The first so many random studies whose ε is in range."""
    random, done = np.random.default_rng(SEED), 0
    while done < count:
        if (row := compared(random_study(random))) is not None:
            done += 1
            yield row


def summary(rows: list[MixedComparison]) -> dict[str, float]:
    """Counts and differences, in all and by size of ε."""
    parts = {"": (0, MOST), ", ε ≤ 2": (0, 2), ", 2 < ε ≤ 8": (2, 8), ", 8 < ε ≤ 13": (8, 13), ", ε > 13": (13, MOST)}
    out: dict[str, float] = {}
    for name, (low, high) in parts.items():
        part = [row for row in rows if low < row.exact <= high]
        excess = [row.excess for row in part]
        out |= {
            f"studies{name}": len(part),
            f"below the exact number{name}": sum(row.stated < row.exact for row in part),
            f"more than {_LARGEST_EXCESS:g} above{name}": sum(value > _LARGEST_EXCESS for value in excess),
            f"largest excess{name}": max(excess, default=0.0),
            f"median excess{name}": float(np.median(excess)) if excess else 0.0,
            f"largest cost of slack{name}": max((row.exact_after_slack - row.exact for row in part), default=0.0),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = list(comparisons(options.studies))
    for name, value in summary(rows).items():
        print(f"{name:45} {value:.6g}")
    worst = sorted(rows, key=lambda row: -row.excess)[:10]
    for row in worst:
        print(f"{row.excess:.2e} above {row.exact:.4f}: {row.study}")
    if options.out is not None:
        result = {"seed": SEED, "summary": summary(rows), "worst": [asdict(row) for row in worst]}
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
