"""How good a classifier of several classes is: the confusion matrix, accuracy, recall, precision and F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from study_protocol.queries.answer import ESTIMATE, HIGH, LOW, SIMULATIONS, Answer, AnswerTable, Plot
from study_protocol.queries.counting import (
    Estimates,
    Floats,
    clip_estimates,
    counts,
    join_estimates,
    on_simplex,
    unknown_estimates,
)
from study_protocol.queries.evaluation.tables import (
    GROUP,
    MEASURE,
    NOT_EVALUATED,
    counts_by,
    figures_table,
    repeated,
    stacked,
)
from study_protocol.queries.groups import GroupSum
from study_protocol.queries.ratios import Quadratic, of_share, of_weights, ratios
from study_protocol.queries.second_moments import resample_counts, simulate_estimates

MEANS = ("macro F1", "balanced accuracy")
NOTES = (
    "Counts shown are made to fit: none is below zero, and those of a group add up. Intervals and the numbers "
    "before adjustment (raw) do not have this. To add cells up, add raw numbers.",
    "Macro F1 is the mean of the classes' F1, balanced accuracy the mean of their recalls. A class without patients is "
    "in neither.",
)


@dataclass(frozen=True)
class Confusion:
    """One group's matrix.

    raw       (classes, classes) outcomes by predictions, unbiased, perhaps below zero
    variance  of the noise in each cell
    """

    raw: Floats
    variance: float

    @property
    def classes(self) -> int:
        return len(self.raw)

    @property
    def fitted(self) -> Floats:
        return on_simplex(self.raw.ravel(), max(float(self.raw.sum()), 0.0)).reshape(self.raw.shape)

    @property
    def patients(self) -> Floats:
        """(1 + 3 · classes,) how many accuracy, recalls, precisions and F1 rest on."""
        having, called = self.fitted.sum(axis=1), self.fitted.sum(axis=0)
        return np.concatenate([[self.fitted.sum()], having, called, np.minimum(having, called)])

    def shares(self) -> Estimates:
        """Return accuracy, then the recall and the precision of each class, shape (1 + 2 · classes,)."""
        diagonal, size = np.diagonal(self.raw), self.classes
        above = np.concatenate([[diagonal.sum()], diagonal, diagonal])
        below = np.concatenate([[self.raw.sum()], self.raw.sum(axis=1), self.raw.sum(axis=0)])
        inner = self.variance * np.concatenate([[size], np.ones(2 * size)])
        outer = self.variance * np.concatenate([[size**2], np.full(2 * size, size)])
        return ratios(above, below, Quadratic(inner, -2 * inner, outer), of_share(below))

    def f1(self) -> Estimates:
        """Return 2·TP / (2·TP + FP + FN), shape (classes,)."""
        diagonal, size = np.diagonal(self.raw), self.classes
        right, below = 2 * diagonal, self.raw.sum(axis=0) + self.raw.sum(axis=1)
        noise = self.variance * np.ones(size)
        hits = np.maximum(diagonal, 0.0)
        wrong = np.maximum(below - right, 0.0)
        return ratios(
            right,
            below,
            # The diagonal counts twice in both, 2(classes - 1) others once below.
            Quadratic(4 * noise, -8 * noise, (4 + 2 * (size - 1)) * noise),
            of_weights(right, below, Quadratic(4 * hits, -8 * hits, 4 * hits + wrong)),
        )

    def means(self, generator: np.random.Generator) -> Estimates:
        """Return macro F1 and balanced accuracy, shape (2,), over the classes whose patients stand out of the noise."""
        threshold = 3.0 * np.sqrt(self.variance * self.classes)
        classes = np.flatnonzero(self.raw.sum(axis=1) > max(threshold, 1e-6))
        if len(classes) == 0:
            return replace(unknown_estimates(2), low=np.zeros(2), high=np.ones(2))
        noise = np.sqrt(self.variance) * generator.standard_normal((SIMULATIONS, *self.raw.shape))
        sampling = resample_counts(self.fitted, generator)

        def read(matrices: Floats) -> Floats:
            diagonal = np.diagonal(matrices, axis1=1, axis2=2)[:, classes]
            having, called = matrices.sum(axis=2)[:, classes], matrices.sum(axis=1)[:, classes]
            f1 = 2 * diagonal / _away_from_zero(having + called)
            return np.stack([f1.mean(axis=1), (diagonal / _away_from_zero(having)).mean(axis=1)], axis=1)

        return clip_estimates(simulate_estimates(self.raw, noise, sampling, read), np.zeros(2), np.ones(2))


def read_classes(sums: Sequence[GroupSum], left_out: Estimates, generator: np.random.Generator) -> Answer:
    """Return the answer of an evaluation of classes.

    Args:
        sums: of each group, all patients first, (classes, classes).
        left_out: patients who could not be evaluated.
    """
    groups = [group_sum.group for group_sum in sums]
    matrices = [Confusion(group_sum.values, group_sum.variance) for group_sum in sums]
    classes = list(map(str, range(matrices[0].classes)))
    confusion = counts_by(
        "confusion",
        "patients by outcome and predicted class",
        [
            (GROUP, repeated(groups, len(classes) ** 2)),
            ("outcome", repeated(classes, len(classes), len(groups))),
            ("predicted", repeated(classes, 1, len(classes) * len(groups))),
        ],
        join_estimates(list(map(_cells, matrices))),
    )
    patients = counts_by(
        "patients",
        "patients evaluated",
        [(GROUP, [*groups, NOT_EVALUATED])],
        join_estimates([*map(_in_all, matrices), left_out]),
    )
    return Answer(tables=(_performance(groups, classes, matrices, generator), confusion, patients), notes=NOTES)


def _performance(
    groups: Sequence[str], classes: Sequence[str], matrices: Sequence[Confusion], generator: np.random.Generator
) -> AnswerTable:
    each = [f"{measure} of class {name}" for measure in ("recall", "precision", "F1") for name in classes]
    measures = ["accuracy", *each, *MEANS]
    return figures_table(
        "performance",
        "how good the model is",
        [(GROUP, repeated(groups, len(measures))), (MEASURE, repeated(measures, 1, len(groups)))],
        join_estimates(
            [part for matrix in matrices for part in (matrix.shares(), matrix.f1(), matrix.means(generator))]
        ),
        stacked([part for matrix in matrices for part in (matrix.patients, np.full(2, matrix.fitted.sum()))]),
        Plot(kind="points", x=MEASURE, y=ESTIMATE, low=LOW, high=HIGH, by=GROUP),
    )


def _cells(confusion: Confusion) -> Estimates:
    return counts(confusion.raw.ravel(), np.full(confusion.raw.size, confusion.variance), confusion.fitted.ravel())


def _in_all(confusion: Confusion) -> Estimates:
    return counts(np.array([confusion.raw.sum()]), np.array([confusion.variance * confusion.raw.size]))


def _away_from_zero(values: Floats) -> Floats:
    return np.maximum(values, 1e-9)
