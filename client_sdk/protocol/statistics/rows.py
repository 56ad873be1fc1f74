"""From several rows of a patient to one, by the rule that a question states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from client_sdk.protocol.statistics.cells import Array
from client_sdk.protocol.statistics.question import BaseQuestion
from client_sdk.protocol.statistics.variables import Patients, column_of


def one_row_each(question: BaseQuestion, columns: Mapping[str, Array], patients: Sequence[str]) -> Patients:
    """The columns that the question reads, one row a patient, in the order of the patients' first rows.

    patients  whose row each row is

    Raises:
        UnreadableColumn: a column lacks.
    """
    needed = {name: column_of(columns, name) for name in question.columns}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for row, patient in enumerate(patients):
        first.setdefault(patient, row)
        last[patient] = row
    if not needed:
        # A question without a column still counts everybody.
        return {"": np.zeros(len(first))}
    chosen = np.fromiter((first if question.rows == "first" else last).values(), np.int64)
    return {name: column[chosen] for name, column in needed.items()}
