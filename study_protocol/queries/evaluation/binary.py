"""How good predicted probabilities are: ROC and precision-recall curves, calibration, Brier score, decision curve."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from study_protocol.queries.answer import ESTIMATE, HIGH, LOW, Answer, AnswerTable, Plot
from study_protocol.queries.counting import Estimates, Floats, join_estimates
from study_protocol.queries.evaluation.calibration import NOTES as CALIBRATION_NOTES
from study_protocol.queries.evaluation.calibration import Recalibration, recalibration_table
from study_protocol.queries.evaluation.scores import RatioWeights, ScoreHistogram
from study_protocol.queries.evaluation.tables import (
    GROUP,
    MEASURE,
    NOT_EVALUATED,
    counts_by,
    figures_table,
    repeated,
    stacked,
)
from study_protocol.queries.groups import EVERYBODY, GroupSum
from study_protocol.queries.tree import Tree
from study_protocol.queries.variables import plain

ACCURACY, SENSITIVITY, SPECIFICITY = "accuracy", "sensitivity", "specificity"
PPV, NPV = "positive predictive value", "negative predictive value"
MEASURES = (ACCURACY, SENSITIVITY, SPECIFICITY, PPV, NPV)
AREA, MIN_AREA, MAX_AREA = "area under the ROC curve", "that area, at least", "that area, at most"
AVERAGE_PRECISION = "average precision"
BRIER, MIN_BRIER, MAX_BRIER = "Brier score", "Brier score, at least", "Brier score, at most"
PREVALENCE = "share with the outcome"
AREAS, BRIERS = (AREA, MIN_AREA, MAX_AREA, AVERAGE_PRECISION), (BRIER, MIN_BRIER, MAX_BRIER)
OUTCOMES = ("without the outcome", "with the outcome")
THRESHOLD, SCORE, BIN, CURVE = "threshold", "score", "bin", "curve"
NOTES = (
    "Figures are of probabilities in bins: those of one bin count as equal, and as its middle in the Brier score. "
    "The area and the Brier score of the probabilities themselves lie between what is said at least and at most.",
    "Estimates are made to fit: no count is below zero, and curves rise. Intervals are from before that.",
)


@dataclass(frozen=True)
class ProbabilityBins:
    """Bins of a probability. ends: (bins + 1,), 0 and 1 included."""

    ends: Floats

    @property
    def count(self) -> int:
        return len(self.ends) - 1

    @property
    def thresholds(self) -> Floats:
        """(bins - 1,) a patient whose probability is at least this is called."""
        return self.ends[1:-1]

    @property
    def headline(self) -> int:
        """The threshold nearest to a half."""
        return int(np.argmin(np.abs(self.thresholds - 0.5)))

    @property
    def labels(self) -> list[str]:
        ends = [plain(float(end)) for end in self.ends]
        return [f"{low} to {high}" for low, high in itertools.pairwise(ends)]

    def called(self) -> Floats:
        """Return 1 in the bins at and above each threshold, shape (bins - 1, bins)."""
        return np.triu(np.ones((self.count, self.count)))[1:]

    def measures(self) -> dict[str, RatioWeights]:
        """Return the weights of each measure at every threshold."""
        called = self.called()
        none, ones = np.zeros_like(called), np.ones_like(called)
        right = _rows(1 - called, called)
        return {
            ACCURACY: RatioWeights(right, _rows(ones, ones)),
            SENSITIVITY: RatioWeights(_rows(none, called), _rows(none, ones)),
            SPECIFICITY: RatioWeights(_rows(1 - called, none), _rows(ones, none)),
            PPV: RatioWeights(_rows(none, called), _rows(called, called)),
            NPV: RatioWeights(_rows(1 - called, none), _rows(1 - called, 1 - called)),
        }

    def observed(self) -> RatioWeights:
        """Return the weights of the share with the outcome of each bin's patients, shape (bins)."""
        identity = np.eye(self.count)
        return RatioWeights(_rows(np.zeros_like(identity), identity), _rows(identity, identity))

    def prevalence(self) -> RatioWeights:
        ones = np.ones((1, self.count))
        return RatioWeights(_rows(np.zeros_like(ones), ones), _rows(ones, ones))

    def brier(self) -> RatioWeights:
        """Return the weights of the Brier score of the bins' middles, then of its minimum and its maximum."""
        low, high = self.ends[:-1], self.ends[1:]
        middle = (low + high) / 2
        without = np.stack([middle**2, low**2, high**2])
        having = np.stack([(1 - middle) ** 2, (1 - high) ** 2, (1 - low) ** 2])
        return RatioWeights(_rows(without, having), np.ones((3, 2, self.count)), share=False)

    def net_benefit(self) -> RatioWeights:
        """Return the weights of the net benefit of calling the patients that the model calls, then of calling all.

        Source: Vickers, Elkin 2006.
        """
        odds = (self.thresholds / (1 - self.thresholds))[:, None]
        called = np.concatenate([self.called(), np.ones_like(self.called())])
        above = _rows(-np.tile(odds, (2, 1)) * called, called)
        return RatioWeights(above, np.ones_like(above), share=False)


def read_scores(
    sums: Sequence[GroupSum],
    tree: Tree,
    ends: Sequence[float],
    left_out: Estimates,
    generator: np.random.Generator,
    recalibration: tuple[Recalibration, Floats] | None = None,
) -> Answer:
    """Return the answer of an evaluation of a binary outcome.

    Args:
        sums: of each group, all patients first, (2, bins) fitted from the tree.
        left_out: patients who could not be evaluated.
        recalibration: the two noised sums of a question with calibration, and what reads them.
    """
    bins, covariance = ProbabilityBins(np.array(ends)), tree.covariance()
    groups = [group_sum.group for group_sum in sums]
    scores = [ScoreHistogram.of(group_sum.values, group_sum.variance, tree, covariance) for group_sum in sums]
    slopes = [] if recalibration is None else [_recalibration(scores[0], *recalibration)]
    return Answer(
        tables=(
            _performance(groups, scores, bins, generator),
            *slopes,
            _thresholds(groups, scores, bins),
            _roc(groups, scores, bins),
            _precision_recall(groups, scores, bins),
            _calibration(groups, scores, bins),
            _net_benefit(groups, scores, bins),
            counts_by(
                "cells",
                "patients by outcome and bin of the probability",
                [
                    (GROUP, repeated(groups, 2 * bins.count)),
                    ("outcome", repeated(OUTCOMES, bins.count, len(groups))),
                    (BIN, repeated(bins.labels, 1, 2 * len(groups))),
                ],
                join_estimates([group_sum.cell_counts() for group_sum in scores]),
            ),
            counts_by(
                "patients",
                "patients evaluated",
                [(GROUP, [*groups, NOT_EVALUATED])],
                join_estimates([*(group_sum.in_all() for group_sum in scores), left_out]),
            ),
        ),
        notes=NOTES if recalibration is None else (*NOTES, *CALIBRATION_NOTES),
    )


def _recalibration(scores: ScoreHistogram, recalibration: Recalibration, sums: Floats) -> AnswerTable:
    estimates = recalibration.read(sums, scores.variance, scores.raw, scores.variance * scores.covariance)
    return recalibration_table(EVERYBODY, estimates, float(scores.fitted.sum()))


def _performance(
    groups: Sequence[str], scores: Sequence[ScoreHistogram], bins: ProbabilityBins, generator: np.random.Generator
) -> AnswerTable:
    place = slice(bins.headline, bins.headline + 1)
    at = {name: RatioWeights(measure.above[place], measure.below[place]) for name, measure in bins.measures().items()}
    threshold = plain(float(bins.thresholds[bins.headline]))
    names = [*(f"{name} at {threshold}" for name in at), *AREAS, *BRIERS, PREVALENCE]
    estimates: list[Estimates] = []
    patients: list[Floats] = []
    for measure in scores:
        estimates += [measure.ratio(weights) for weights in at.values()]
        estimates += [measure.areas(generator), measure.ratio(bins.brier()), measure.ratio(bins.prevalence())]
        patients += [measure.patients(weights) for weights in at.values()]
        patients.append(np.full(len(AREAS) + len(BRIERS) + 1, measure.fitted.sum()))
    return figures_table(
        "performance",
        "how good the model is",
        [(GROUP, repeated(groups, len(names))), (MEASURE, repeated(names, 1, len(groups)))],
        join_estimates(estimates),
        stacked(patients),
        Plot(kind="points", x=MEASURE, y=ESTIMATE, low=LOW, high=HIGH, by=GROUP),
    )


def _thresholds(groups: Sequence[str], scores: Sequence[ScoreHistogram], bins: ProbabilityBins) -> AnswerTable:
    measures = bins.measures()
    parts = [(group_scores, weights) for group_scores in scores for weights in measures.values()]
    count = len(bins.thresholds)
    curves = [name if len(groups) == 1 else f"{group}: {name}" for group in groups for name in measures]
    return figures_table(
        "thresholds",
        "at each threshold of the probability",
        [
            (GROUP, repeated(groups, count * len(measures))),
            (MEASURE, repeated(tuple(measures), count, len(groups))),
            (CURVE, repeated(curves, count)),
            (THRESHOLD, np.tile(bins.thresholds, len(curves))),
        ],
        join_estimates([group_scores.ratio(weights) for group_scores, weights in parts]),
        stacked([group_scores.patients(weights) for group_scores, weights in parts]),
        Plot(kind="line", x=THRESHOLD, y=ESTIMATE, low=LOW, high=HIGH, by=CURVE),
    )


def _roc(groups: Sequence[str], scores: Sequence[ScoreHistogram], bins: ProbabilityBins) -> AnswerTable:
    """Return the ROC curve from (0, 0) to (1, 1). Thresholds fall."""
    sensitivity = bins.measures()[SENSITIVITY]
    falling = slice(None, None, -1)
    weights = RatioWeights(sensitivity.above[falling], sensitivity.below[falling])
    estimates: list[Estimates] = []
    false: list[Floats] = []
    for group_scores in scores:
        estimates += [_sure(0.0), group_scores.ratio(weights), _sure(1.0)]
        wrong = 1 - group_scores.ratio(bins.measures()[SPECIFICITY]).estimate[falling]
        false.append(np.concatenate([[0.0], wrong, [1.0]]))
    count = bins.count + 1
    return figures_table(
        "roc",
        "ROC curve: sensitivity",
        [
            (GROUP, repeated(groups, count)),
            (THRESHOLD, np.tile(bins.ends[falling], len(groups))),
            ("false positive rate", stacked(false)),
        ],
        join_estimates(estimates),
        stacked([np.full(count, group_scores.fitted.sum()) for group_scores in scores]),
        Plot(kind="line", x="false positive rate", y=ESTIMATE, low=LOW, high=HIGH, by=GROUP),
    )


def _precision_recall(groups: Sequence[str], scores: Sequence[ScoreHistogram], bins: ProbabilityBins) -> AnswerTable:
    """Return the precision-recall curve. Thresholds fall, and the last calls all patients."""
    called = np.concatenate([np.ones((1, bins.count)), bins.called()])[::-1]
    none = np.zeros_like(called)
    precision = RatioWeights(_rows(none, called), _rows(called, called))
    recall = RatioWeights(_rows(none, called), _rows(none, np.ones_like(called)))
    return figures_table(
        "precision-recall",
        "precision-recall curve: precision",
        [
            (GROUP, repeated(groups, bins.count)),
            (THRESHOLD, np.tile(bins.ends[:-1][::-1], len(groups))),
            ("recall", stacked([group_scores.ratio(recall).estimate for group_scores in scores])),
        ],
        join_estimates([group_scores.ratio(precision) for group_scores in scores]),
        stacked([group_scores.patients(precision) for group_scores in scores]),
        Plot(kind="line", x="recall", y=ESTIMATE, low=LOW, high=HIGH, by=GROUP),
    )


def _calibration(groups: Sequence[str], scores: Sequence[ScoreHistogram], bins: ProbabilityBins) -> AnswerTable:
    observed = bins.observed()
    middles = (bins.ends[:-1] + bins.ends[1:]) / 2
    return figures_table(
        "calibration",
        "calibration: of a bin's patients, the share with the outcome",
        [
            (GROUP, repeated(groups, bins.count)),
            (BIN, repeated(bins.labels, 1, len(groups))),
            (SCORE, np.tile(middles, len(groups))),
        ],
        join_estimates([group_scores.ratio(observed) for group_scores in scores]),
        stacked([group_scores.patients(observed) for group_scores in scores]),
        Plot(kind="points", x=SCORE, y=ESTIMATE, low=LOW, high=HIGH, by=GROUP),
    )


def _net_benefit(groups: Sequence[str], scores: Sequence[ScoreHistogram], bins: ProbabilityBins) -> AnswerTable:
    count, benefit = len(bins.thresholds), bins.net_benefit()
    policies = ("whom the model calls", "everybody")
    curves = [name if len(groups) == 1 else f"{group}: {name}" for group in groups for name in policies]
    lowest = -np.tile(bins.thresholds / (1 - bins.thresholds), 2)
    return figures_table(
        "net-benefit",
        "decision curve: net benefit of treating",
        [
            (GROUP, repeated(groups, 2 * count)),
            (CURVE, repeated(curves, count)),
            (THRESHOLD, np.tile(bins.thresholds, len(curves))),
        ],
        join_estimates([group_scores.ratio(benefit, lowest, 1.0) for group_scores in scores]),
        stacked([group_scores.patients(benefit) for group_scores in scores]),
        Plot(kind="line", x=THRESHOLD, y=ESTIMATE, low=LOW, high=HIGH, by=CURVE),
    )


def _rows(without: Floats, having: Floats) -> Floats:
    """Stack two arrays of (n, bins) to (n, 2, bins)."""
    return np.stack([without, having], axis=1)


def _sure(value: float) -> Estimates:
    """Return a point that every curve has, shape (1,)."""
    point, none = np.array([value]), np.zeros(1)
    return Estimates(point, point, none, none, point, point)
