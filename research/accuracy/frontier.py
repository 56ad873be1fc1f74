"""Which definition gives the least honest ε for an accuracy: python -m research.accuracy.frontier

One run of private logistic (softmax) regression gives every definition's ε. 36 settings of clip norm, noise, steps and
sampling rate are run on 20 seeds; settings are chosen on half of the seeds and reported on the others. The mechanism is
numpy with the closed form of the gradient, so that thousands of runs take hours; costs and estimates are the package's.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from accounting import (
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    calibrate_noise,
    epsilon_from_moments,
    log_moment,
    upper_mean,
)
from accounting.accountants.calibration import rdp_epsilon
from research.accuracy.frontier_data import DATA, Floats, Labels, Pair

Doubles = npt.NDArray[np.float64]

DELTA, FAILURE = 1e-5, 1e-6
SEEDS = 20
CLIP_NORMS = (0.1, 0.5, 2.0)
# (steps, sampling rate)
PLANS = ((20, 1.0), (100, 0.1))
_BINS = 512
_SAMPLE = 1000
OUT = Path("research/benchmarks/results/frontier.json")


@dataclass(frozen=True)
class FrontierSetting:
    """noise_multiplier: the least whose classical ε (loss distributions) is `epsilon` after all steps."""

    epsilon: float
    clip_norm: float
    steps: int
    sampling_rate: float
    noise_multiplier: float


@dataclass(frozen=True)
class FrontierRun:
    """One seed of one setting. spent: ε by definition. clipped: share of the gradients above the clip norm."""

    seed: int
    accuracy: float
    clipped: float
    spent: dict[str, float]


@cache
def settings(name: str) -> tuple[FrontierSetting, ...]:
    """The 36 of one data set, in a fixed order."""
    settings: list[FrontierSetting] = []
    for (steps, rate), doubled in product(PLANS, range(6)):
        epsilon = DATA[name].least_epsilon * 2**doubled
        noise = calibrate_noise(epsilon=epsilon, delta=DELTA, sampling_rate=rate, steps=steps, method="pld")
        settings += [FrontierSetting(epsilon, clip, steps, rate, noise) for clip in CLIP_NORMS]
    return tuple(settings)


@cache
def classical(setting: FrontierSetting) -> dict[str, float]:
    """What is known before any record is seen; loss distributions, and Rényi at its best order."""
    account = ClassicalAccountant(delta=DELTA, method="pld")
    plan = {"sampling_rate": setting.sampling_rate}
    account.step(noise_multiplier=setting.noise_multiplier, count=setting.steps, **plan)
    rdp = rdp_epsilon(setting.noise_multiplier, steps=setting.steps, delta=DELTA, **plan)
    return {"classical": account.epsilon(), "classical-rdp": rdp}


def gradients(inputs: Floats, labels: Labels, weights: Floats) -> tuple[Floats, Doubles]:
    """Residuals (records, outputs) and gradient norms (records,) of the cross-entropy of a linear model."""
    scores = inputs @ weights
    if scores.shape[1] == 1:
        residuals = 1 / (1 + np.exp(-np.clip(scores, -50, 50))) - labels[:, None]
    else:
        residuals = np.exp(scores - scores.max(axis=1, keepdims=True))
        residuals /= residuals.sum(axis=1, keepdims=True)
        residuals[np.arange(len(labels)), labels] -= 1
    residuals = residuals.astype(np.float32)
    norms = np.linalg.norm(residuals, axis=1) * np.linalg.norm(inputs, axis=1)
    return residuals, norms.astype(np.float64)


def accuracy(inputs: Floats, labels: Labels, weights: Floats) -> float:
    """Share of records whose class is named."""
    scores = inputs @ weights
    predicted = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return float(np.mean(predicted == labels))


def train(
    pair: Pair, setting: FrontierSetting, pace: float, random: np.random.Generator, watched: Pair | None = None
) -> tuple[Floats, Doubles, Doubles]:
    """The mean of the weights of the later half of the steps, and clipped norms (steps, records) of two samples.

    The samples are the first training records and the first of `watched`, which does not train.
    """
    inputs, labels = pair
    order = random.permutation(len(labels))
    inputs, labels = inputs[order], labels[order]
    outputs = 1 if labels.max() == 1 else int(labels.max()) + 1
    weights = np.zeros((inputs.shape[1], outputs), np.float32)
    mean, members, other_members = np.zeros_like(weights), [], []
    clip = setting.clip_norm
    # Shorter steps where there are more of them, or where gradients are longer.
    rate = pace / clip * (20 / setting.steps) ** 0.5 / setting.sampling_rate / len(labels)
    for step in range(setting.steps):
        drawn_rows = np.flatnonzero(random.random(len(labels)) < setting.sampling_rate)
        batch = inputs[drawn_rows] if setting.sampling_rate < 1 else inputs
        residuals, norms = gradients(batch, labels[drawn_rows], weights)
        members.append(np.minimum(gradients(inputs[:_SAMPLE], labels[:_SAMPLE], weights)[1], clip))
        if watched is not None:
            other_members.append(np.minimum(gradients(watched[0][:_SAMPLE], watched[1][:_SAMPLE], weights)[1], clip))
        total = batch.T @ (residuals * np.minimum(1, clip / np.maximum(norms, 1e-12))[:, None].astype(np.float32))
        noise = random.normal(0, setting.noise_multiplier * clip, weights.shape).astype(np.float32)
        weights = weights - rate * (total + noise)
        if 2 * step >= setting.steps:
            mean += weights / (setting.steps - setting.steps // 2)
    return mean, np.array(members, np.float64), np.array(other_members, np.float64)


@lru_cache(maxsize=8)
def _costs(setting: FrontierSetting) -> tuple[Doubles, dict[float, Doubles]]:
    """Edges of distance and, per λ, what a step at each edge costs; λ, 2λ+1 and the filter's."""
    edges = setting.clip_norm * (1 + 1e-6) * np.arange(_BINS + 1) / _BINS
    all_orders = sorted({order for each in orders(setting) for order in (each, 2 * each + 1)})
    noise = setting.noise_multiplier * setting.clip_norm
    table = log_moment(all_orders, edges, noise_std=noise, sampling_rate=setting.sampling_rate)
    return edges, dict(zip(all_orders, np.asarray(table, np.float64), strict=True))


@cache
def filter_order(setting: FrontierSetting) -> float:
    """The integer λ at which the worst case is least: from public numbers, before round 1."""
    candidates = np.arange(1.0, 2000.0)
    each = log_moment(candidates, 1.0, noise_std=setting.noise_multiplier, sampling_rate=setting.sampling_rate)
    return float(epsilon_from_moments(candidates, setting.steps * np.asarray(each), DELTA)[1])


@cache
def orders(setting: FrontierSetting) -> tuple[float, ...]:
    """λ of the estimates, around the filter's. Few, because each takes its share of γ."""
    best = filter_order(setting)
    return tuple(sorted({max(1.0, round(best * factor)) for factor in (0.25, 0.5, 1, 2)}))


def sums(norms: Doubles, setting: FrontierSetting, order: float) -> Doubles:
    """Each record's own Σ φ(λ, d), every distance rounded up to its edge; norms (steps, records)."""
    edges, costs = _costs(setting)
    return costs[order][np.searchsorted(edges, norms)].sum(axis=0)


def spent(members: Doubles, other_members: Doubles, setting: FrontierSetting) -> dict[str, float]:
    """ε by definition."""
    costs = _costs(setting)[1]
    candidates = orders(setting)
    failure = FAILURE / len(candidates)

    def bound(norms: Doubles, order: float) -> float:
        # The sums' own rounding must not pass the ceiling.
        top = setting.steps * float(costs[order][-1]) * (1 + 1e-12)
        return upper_mean(sums(norms, setting, order), failure, method="betting", log_max=top)

    path = [bound(members, order) for order in candidates]
    adaptive = [bound(other_members, 2 * order + 1) / 2 for order in candidates]
    classical_curve = classical(setting)
    holder_order = filter_order(setting)
    leaves = np.quantile(sums(members, setting, holder_order), 0.99)
    curves = {
        **classical_curve,
        "bayesian": epsilon_from_moments(candidates, path, DELTA - FAILURE)[0],
        "papers": papers(members, setting),
        "certified": epsilon_from_moments(candidates, adaptive, DELTA - FAILURE)[0],
        "individual-99": epsilon_from_moments([holder_order], [leaves], DELTA)[0],
    }
    # What holds for everybody holds on average: a study's statement is capped so, too.
    capped = ("bayesian", "certified")
    return curves | {name: min(curves[name], classical_curve["classical"]) for name in capped}


def papers(members: Doubles, setting: FrontierSetting) -> float:
    """The seeds' accountant on the same path: Student t, Hölder over the steps, Chernoff."""
    spec = BayesianSpec(
        orders=orders(setting),
        delta=DELTA,
        estimator_failure_probability=FAILURE,
        max_steps=setting.steps,
        estimator="student-t",
        conversion="chernoff",
    )
    account, noise, edges = BayesianAccountant(spec), setting.noise_multiplier * setting.clip_norm, _costs(setting)[0]
    for distances in members:
        # Each distance rounded up to its edge, as above: what many share is computed once.
        values, counts = np.unique(edges[np.searchsorted(edges, distances)], return_counts=True)
        account.step(
            values, counts=counts, noise_std=noise, sampling_rate=setting.sampling_rate, max_distance=float(edges[-1])
        )
    return account.epsilon()


def run_once(name: str, setting: FrontierSetting, seed: int) -> FrontierRun:
    """One run and its numbers."""
    pair, test = DATA[name].load(seed)
    random = np.random.default_rng([seed, 1])
    weights, members, other_members = train(pair, setting, DATA[name].pace, random, test)
    clipped = float((members >= setting.clip_norm).mean())
    return FrontierRun(seed, accuracy(*test, weights), clipped, spent(members, other_members, setting))


def _job(arguments: tuple[str, int, int]) -> list[dict[str, object]]:
    name, number, seeds = arguments
    setting = settings(name)[number]
    return [asdict(run_once(name, setting, seed)) for seed in range(seeds)]


def measure(name: str, seeds: int, workers: int) -> Iterator[dict[str, object]]:
    """Every setting of one data set, as soon as it is known."""
    jobs = [(name, number, seeds) for number in range(len(settings(name)))]
    with ProcessPoolExecutor(workers) as pool:
        for (_, number, _), runs in zip(jobs, pool.map(_job, jobs), strict=True):
            yield {"setting": asdict(settings(name)[number]), "runs": runs}


def main() -> None:
    """Measure, and keep every run; `research.accuracy.frontier_table` prints what follows from them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=tuple(DATA), nargs="*", default=list(DATA))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    recorded = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.data:
        start = time.monotonic()
        recorded[name] = {"about": DATA[name].about, "settings": list(measure(name, options.seeds, options.workers))}
        options.out.write_text(json.dumps(recorded, indent=1) + "\n")
        print(
            f"{name}: {len(recorded[name]['settings'])} settings × {options.seeds} seeds, "
            f"{time.monotonic() - start:.0f} s"
        )


if __name__ == "__main__":
    main()
