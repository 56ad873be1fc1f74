"""Figure 5.8: accuracy against ε of Bayesian logistic regression (thesis, section 5.5.3), in a form that is private.

The thesis draws weights from a hidden variational posterior at every step and charges each draw with what one step
changed. The hidden parameters keep what earlier steps put into them, so that this is no bound: the third panel. Sound
is to draw from around a finished, strongly convex fit: N(w*, s²I), ten draws whose predictions are averaged, each
record's part being its gradient at the fit over nΛ (`accounting.mechanisms.inference.fit_distance`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from accounting import calibrate_noise, log_moment
from accounting.mechanisms.inference import accumulated_ratio, forgetful_ratio
from accounting.mechanisms.unsampled import Steps, unsampled_epsilon
from private_learning.training.posterior import PosteriorFit, PosteriorPlan, fit_posterior, posterior_probabilities
from research.accuracy.gradient_norms import FloatArray
from research.bayesian.survey_data import SurveySplit, abalone, adult, validation
from research.figures.figure import Axis, Figure
from research.figures.synthetic import FAILURE, ORDERS, betting
from research.figures.synthetic import epsilon as least_epsilon
from research.figures.table import Point, Points, at, curve, last

DRAWS, SEEDS, SAMPLE, EPSILONS = 10, 5, 1000, (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CURVATURES = (0.003, 0.01, 0.03, 0.1)
PLAIN, CLASSICAL = "no privacy", "draws from around the fit, at their classical ε (certified)"
BAYESIAN = "the same draws, at their Bayesian ε (distribution-free)"
THEIRS_BAYESIAN, THEIRS = "thesis, Bayesian (Table 5.2, as printed)", "thesis, classical (Table 5.2)"
CLAIMED, TRUE, VARIATIONAL = (
    "claimed, each step by itself",
    "true, what the steps accumulate",
    "variational inference as printed",
)
PULL, SHIFT, MOST_STEPS, DELTA = 0.05, 0.05, 400, 1e-5


@dataclass(frozen=True)
class PanelData:
    """One panel. bound: L2 norm that inputs are cut to; theirs: (ε classical, ε Bayesian, accuracy) of the thesis."""

    split: Callable[[int], SurveySplit]
    bound: float
    delta: float
    theirs: tuple[float, float, float]


DATA: Mapping[str, PanelData] = {
    "Abalone": PanelData(abalone, 2.0, 1e-3, (7.6, 0.5, 0.76)),
    "Adult": PanelData(adult, 4.0, 1e-5, (0.5, 0.16, 0.81)),
}


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Of one draw, for (ε, δ) of all of them."""
    return calibrate_noise(epsilon=epsilon, delta=delta, sampling_rate=1.0, steps=DRAWS, method="pld")


def planned(data: PanelData, records: int, curvature: float) -> PosteriorPlan:
    """A plan without noise: std is set later, in units of the distance."""
    return PosteriorPlan(float(records), curvature, data.bound, std=1.0, draws=DRAWS, residual=1e-7)


def accuracy(
    fit: PosteriorFit, plan: PosteriorPlan, split: SurveySplit, multiplier: float, generator: np.random.Generator
) -> float:
    """On the split's test records; multiplier 0: of the fit itself."""
    draws = fit.weights + generator.normal(0.0, multiplier * plan.distance, (DRAWS, fit.weights.size))
    likely = posterior_probabilities(draws, split.test.inputs, plan.bound)
    return float(((likely > 0.5) == (split.test.labels == 1)).mean())


def accuracies(data: PanelData, curvature: float, seed: int, splits: SurveySplit) -> tuple[list[float], FloatArray]:
    """(accuracy without noise, then at each of EPSILONS; (SAMPLE,) distances of training records)."""
    plan = planned(data, len(splits.train), curvature)
    fit = fit_posterior(splits.train.inputs, splits.train.labels, plan)
    generator = np.random.default_rng([seed, 58])
    noises = [0.0, *(noise_multiplier(value, data.delta) for value in EPSILONS)]
    accuracies = [accuracy(fit, plan, splits, noise, generator) for noise in noises]
    # The split has shuffled the records: the first ones are a random sample.
    return accuracies, np.minimum(plan.distances(fit.gradient_norms[:SAMPLE], fit.weights.size) / plan.distance, 1.0)


def chosen_columns(data: PanelData) -> list[int]:
    """For no noise and each ε the place in CURVATURES that is best on validation records, on seeds of their own."""
    rows = np.array(
        [
            np.mean(
                [accuracies(data, curvature, seed, validation(data.split(seed), seed))[0] for seed in range(100, 103)],
                axis=0,
            )
            for curvature in CURVATURES
        ]
    )
    return [int(place) for place in rows.argmax(axis=0)]


def bayesian(ratios: FloatArray, multiplier: float, delta: float, classical: float) -> float:
    """ε of all draws, from the members' distances in units of the largest; never above the classical one."""
    costs, worst = (DRAWS * log_moment(ORDERS, d, noise_std=multiplier, sampling_rate=1.0) for d in (ratios, 1.0))
    return min(least_epsilon(betting(costs, worst), delta - FAILURE, "improved"), classical)


def panel(title: str, data: PanelData) -> list[Point]:
    """Means over the seeds."""
    places = chosen_columns(data)
    runs = {
        place: [accuracies(data, CURVATURES[place], seed, data.split(seed)) for seed in range(SEEDS)]
        for place in set(places)
    }
    means = [float(np.mean([run[0][i] for run in runs[place]])) for i, place in enumerate(places)]
    mixed = [
        float(
            np.mean(
                [bayesian(ratios, noise_multiplier(value, data.delta), data.delta, value) for _, ratios in runs[place]]
            )
        )
        for value, place in zip(EPSILONS, places[1:], strict=True)
    ]
    classical, theirs, reached = data.theirs
    points = curve(title, PLAIN, (EPSILONS[0], EPSILONS[-1]), (means[0], means[0]))
    points += curve(title, CLASSICAL, EPSILONS, means[1:]) + curve(title, BAYESIAN, mixed, means[1:])
    points += curve(title, THEIRS, (classical,), (reached,))
    return points + curve(title, THEIRS_BAYESIAN, (theirs,), (reached,))


def gaussian_epsilon(ratio: float) -> float:
    """ε at DELTA of one Gaussian mechanism with distance over noise `ratio`."""
    return unsampled_epsilon([Steps(1 / ratio, 1.0, 1)], DELTA, 1e6)


def printed() -> list[Point]:
    """The claim of the printed accounting over T steps, and the truth on a quadratic loss."""
    steps = range(10, MOST_STEPS + 1, 10)
    points: list[Point] = []
    for name, ratio in ((CLAIMED, forgetful_ratio), (TRUE, accumulated_ratio)):
        points += curve(
            VARIATIONAL, name, steps, [gaussian_epsilon(ratio(steps=t, pull=PULL, shift=SHIFT)) for t in steps]
        )
    return points


def compute() -> list[Point]:
    """Both data sets and the printed accounting."""
    return [point for title, data in DATA.items() for point in panel(title, data)] + printed()


def caption(points: Points) -> str:
    """Below the drawing."""
    claimed, true = (at(points, VARIATIONAL, name)[200.0] for name in (CLAIMED, TRUE))

    place = EPSILONS.index(1.0)
    at_one = [list(at(points, title, BAYESIAN))[place] for title in DATA]

    def caption_part(title: str) -> str:
        values, fair = at(points, title, CLASSICAL), last(points, title, PLAIN)
        delta = {"Abalone": "1e-3", "Adult": "1e-5"}[title]
        reached = f"{values[0.2]:.1%} at ε = 0.2 and {values[1.0]:.1%} at ε = 1 ({fair:.1%} without privacy)"
        return f"{title}, δ = {delta}: {reached}"

    return (
        f"Bayesian logistic regression with ten draws from around one strongly convex fit, means of {SEEDS} seeds. The "
        f"curvature of the prior is chosen on validation records. Classical ε is certified. {caption_part('Abalone')}. "
        f"{caption_part('Adult')}. The Bayesian ε of the same draws is distribution-free, from the gradients of "
        f"{SAMPLE:,} members at this fit. It is {at_one[0]:.2g} and {at_one[1]:.2g} where the classical one is 1. "
        "The third panel is the thesis' own accounting of variational inference. Each draw is charged with what one "
        f"step changed, while hidden parameters keep all steps. At 200 steps, step × curvature {PULL:g}, "
        f"g/h = {SHIFT:g} and δ = 1e-5 it claims {claimed:.3f} where the truth is {true:.3f}."
    )


FIGURE = Figure(
    number="5.8",
    title="Accuracy against ε for Bayesian logistic regression",
    compute=compute,
    axes={
        "": (Axis("ε", "log", 0.05, 10.0), Axis("test accuracy")),
        VARIATIONAL: (Axis("steps"), Axis("ε", low=0.0)),
    },
    caption=caption,
    data="Abalone and Adult",
)
