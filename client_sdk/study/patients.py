"""A hospital's patients as questions see them: one row each, of those that the site policy does not leave out."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from client_sdk.guard.policy import SitePolicy
from client_sdk.study.remaining import remaining
from private_learning.records import DataError, Records, Table
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.rows import one_row_each
from study_protocol.queries.variables import Patients

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class AskedPatients:
    """The records of all patients who may be asked about. Made by `of`."""

    records: Table

    @classmethod
    def of(cls, records: Records, rules: SitePolicy) -> AskedPatients:
        """Those who are not on the policy's list.

        Raises:
            ConfigurationError: the policy leaves patients out, and the records name none.
            DataError: no table, or no patient is left.
        """
        return cls.of_remaining(remaining(records, rules).records)

    @classmethod
    def of_remaining(cls, records: Records) -> AskedPatients:
        """Everybody. Raises DataError: no table."""
        if not isinstance(records, Table):
            raise DataError("questions are about the columns of a table, images and arrays have none")
        if not records.named:
            _LOG.warning(
                "the records name no patients: every row counts as a patient of its own. If a patient can have several "
                "rows, say which column names the patient (--patient-column), or ε is too small for that patient"
            )
        return cls(records)

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Of the patients, each once, in the order of their first rows."""
        return tuple(dict.fromkeys(self.records.patients))

    def columns(self, question: BaseQuestion, keep: NDArray[np.bool_] | None = None) -> Patients:
        """Return one row each, in the order of `identifiers`. keep: which of the patients.

        Raises:
            UnreadableColumn: a column is not what the question asks for.
        """
        rows = one_row_each(question, self.records.columns, self.records.patients)
        return rows if keep is None else {name: column[keep] for name, column in rows.items()}
