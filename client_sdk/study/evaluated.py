"""Patients who are set aside for evaluation: what a released model predicts for each, beside what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import Refused
from private_learning.records import Records, Table
from private_learning.tasks import Classification, Task, dataset_of
from private_learning.training import LocalTraining
from study_protocol.queries.first_record import FirstRecord
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION, Evaluation
from study_protocol.queries.rows import one_row_each, one_value_each
from study_protocol.queries.variables import Patients
from study_protocol.wire.tensors import Array

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class EvaluatedPatients:
    """The patients that training never sees.

    records  theirs alone. None: the split has set no patients aside here, which stays within the hospital
    """

    training: LocalTraining
    records: Records | None

    def in_window(self, window: FirstRecord, are_trained: Callable[[Sequence[str]], NDArray[np.bool_]]) -> Self:
        """Return those whose first record lies in the window, without any whom the study has trained on.

        Raises:
            UnreadableColumn: the records have no such column.
        """
        if not isinstance(self.records, Table):
            return self
        keep = window.holds(self.records.columns, self.records.patients) & ~are_trained(self.records.patients)
        return replace(self, records=self.records.take(np.flatnonzero(keep)) if keep.any() else None)

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Of the patients, each once, in the order of their first rows."""
        return () if self.records is None else tuple(dict.fromkeys(self.records.patients))

    def columns(
        self, question: Evaluation, weights: Mapping[str, Array], keep: NDArray[np.bool_] | None = None
    ) -> Patients:
        """Return one row each, in the order of `identifiers`, with PREDICTION and OUTCOME. keep: which of the patients.

        weights  of the released model

        Raises:
            UnreadableColumn: a column is not what the question asks for.
        """
        if self.records is None:
            return dict.fromkeys((*question.columns, PREDICTION, OUTCOME), np.zeros(0))
        rows: dict[str, NDArray[Any]] = {}
        # Images have none, and a question about them names none.
        if question.columns and isinstance(self.records, Table):
            rows |= one_row_each(question, self.records.columns, self.records.patients)
        form = question.prediction
        predicted, outcome = self._predictions(question, weights, self.records)
        for name, values in ((PREDICTION, predicted), (OUTCOME, outcome)):
            # Neither the mean of classes nor that of yes and no is one of them.
            numeric = form == "number" or (form == "binary" and (name == PREDICTION or question.rows == "any"))
            rows[name] = one_value_each(question.rows, values, self.records.patients, numeric=numeric)
        return rows if keep is None else {name: column[keep] for name, column in rows.items()}

    def _predictions(
        self, question: Evaluation, weights: Mapping[str, Array], records: Records
    ) -> tuple[Floats, Floats]:
        """(rows,) predictions and (rows,) outcomes."""
        dataset = dataset_of(self.training.task, records, checked=True)
        predicted = self.training.predictions(weights, dataset.inputs)
        outcome = self.training.task.outcomes(dataset.targets).double().numpy().reshape(len(predicted), -1)[:, 0]
        if question.prediction == "binary":
            return predicted[:, 1], outcome
        if question.prediction == "number":
            return predicted.reshape(len(predicted), -1)[:, 0], outcome
        # NaN would be the largest of all.
        unknown = np.isnan(predicted).any(axis=1)
        return np.where(unknown, np.nan, predicted.argmax(axis=1)), outcome


def require_form(task: Task, question: Evaluation) -> None:
    """Require that a model of this task predicts what the question evaluates, by public settings alone.

    Raises:
        Refused: it predicts something else.
    """
    classes = task.classes if isinstance(task, Classification) else None
    number = task.predicts == "number"
    fits = {"binary": classes == 2, "classes": classes == question.classes, "number": classes is None and number}
    if fits[question.prediction]:
        return
    makes = f"{classes} classes" if classes is not None else "numbers" if number else task.predicts
    advice = "ask with the form that fits" if classes is not None or number else "no question evaluates these yet"
    raise Refused(
        "wrong-prediction",
        f"the question evaluates predictions of the form {question.prediction}, and the study's model predicts "
        f"{makes}: {advice}",
    )
