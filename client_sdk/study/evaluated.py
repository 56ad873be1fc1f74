"""Patients who are set aside for evaluation: what a released model predicts for each, beside what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from client_sdk.data import Records, Table
from client_sdk.errors import Refused
from client_sdk.protocol.statistics.kinds.evaluation import OUTCOME, PREDICTION, Evaluation
from client_sdk.protocol.statistics.question import BaseQuestion
from client_sdk.protocol.statistics.rows import one_row_each, one_value_each
from client_sdk.protocol.statistics.variables import Patients
from client_sdk.protocol.wire.tensors import Array
from client_sdk.tasks import Classification, Task
from client_sdk.training import LocalTraining

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class EvaluatedPatients:
    """Those whom training never sees.

    records  theirs alone; None: the split has set nobody aside here, which nobody else learns
    """

    training: LocalTraining
    records: Records | None

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Of the patients, each once, in the order of their first rows."""
        return () if self.records is None else tuple(dict.fromkeys(self.records.patients))

    def columns(
        self, question: BaseQuestion, weights: Mapping[str, Array], keep: NDArray[np.bool_] | None = None
    ) -> Patients:
        """One row each, in the order of `identifiers`, with PREDICTION and OUTCOME; keep: who of them.

        weights  of the released model

        Raises:
            UnreadableColumn: a column is not what the question asks for.
        """
        if self.records is None:
            nobody = np.zeros(0)
            return {name: nobody for name in (*question.columns, PREDICTION, OUTCOME)}
        table = self.records.columns if isinstance(self.records, Table) else {}
        rows = dict(one_row_each(question, table, self.records.patients)) if question.columns else {}
        predicted, outcome = self._rows(self.records, weights)
        numeric = not isinstance(self.training.task, Classification) or predicted.ndim == 1
        rows[PREDICTION] = one_value_each(question.rows, predicted, self.records.patients, numeric=numeric)
        rows[OUTCOME] = one_value_each(question.rows, outcome, self.records.patients, numeric=numeric)
        return rows if keep is None else {name: column[keep] for name, column in rows.items()}


def require_form(task: Task, question: Evaluation) -> None:
    """Whether a model of this task predicts what the question evaluates; by public settings alone.

    Raises:
        Refused: it predicts something else.
    """
