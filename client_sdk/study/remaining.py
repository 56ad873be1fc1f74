"""Records without the patients whom the site policy leaves out, before any of theirs is read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from client_sdk.guard.columns import readable
from client_sdk.guard.exclusion import ExclusionEntry
from client_sdk.guard.policy import SitePolicy
from private_learning.records import DataError, Histories, Records, Table

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Remaining:
    """The records that a study may read. Made by `remaining`.

    records    of the patients who are not left out
    excluded   patients who are left out
    unmatched  entries of the exclusion list that match no patient
    """

    records: Records
    excluded: int = 0
    unmatched: tuple[ExclusionEntry, ...] = ()


def remaining(records: Records, rules: SitePolicy) -> Remaining:
    """Drop the columns that may not be read, and the rows of patients on the exclusion list.

    The log says how many patients, and which entries match no patient. The excluded rows are not read, so that their
    contents have no effect.

    Raises:
        ConfigurationError: there is a list, and the records name no patients. Also if a denied column is not there.
        DataError: every patient is on the list.
    """
    records, exclusions = readable(records, rules.statistics), rules.exclusions
    if not exclusions:
        return Remaining(records)
    if not records.named:
        raise ConfigurationError(
            "the site policy leaves patients out, but these records name none: say which column does "
            "(--patient-column, from Python patient_column)"
        )
    events: Mapping[str, Table] = records.events if isinstance(records, Histories) else {}
    # Events may be of patients who are not in the table of patients.
    everywhere = (*records.patients, *(patient for table in events.values() for patient in table.patients))
    matched = exclusions.match(everywhere)
    excluded_rows, *gone_events = np.split(matched.rows, np.cumsum([len(records), *map(len, events.values())])[:-1])
    for warning in matched.warnings:
        _LOG.warning("%s", warning)
    excluded = len({records.patients[row] for row in np.flatnonzero(excluded_rows)})
    # Counts alone: no patient is named in a log.
    _LOG.info("%d patients are left out, the exclusion list has %d entries", excluded, len(exclusions))
    if excluded_rows.all():
        raise DataError("every patient of these records is on the exclusion list")
    return Remaining(_without(records, excluded_rows, events, gone_events), excluded, matched.unmatched)


def _without(
    records: Records, rows: NDArray[np.bool_], events: Mapping[str, Table], event_rows: Iterable[NDArray[np.bool_]]
) -> Records:
    remaining_records = records.take(np.flatnonzero(~rows)) if rows.any() else records
    if not isinstance(remaining_records, Histories):
        return remaining_records
    tables = zip(events.items(), event_rows, strict=True)
    remaining_events = {name: table.take(np.flatnonzero(~excluded)) for (name, table), excluded in tables}
    return replace(remaining_records, events=remaining_events)
