"""Whether a data set holds the records that its studies began with.

Limits of single patients and the split for evaluation count on the same patients. A file that was replaced would go on
in silence, so the hospital's own ledger keeps a keyed digest of the records, and a change is said before anything is
computed. The digest never leaves the hospital.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from client_sdk.errors import RecordsChanged
from client_sdk.guard.ledger import HospitalLedger, RecordsMark
from private_learning.records import Examples, LazyExamples, Records, Table

_LOG = logging.getLogger(__name__)
_LABEL = b"wardround/1/records"

OnChangedRecords: TypeAlias = Callable[[str], bool]
"""Called with one sentence of counts, without values. It returns whether a person here accepts the change."""


def mark_of(records: Records, key: bytes) -> RecordsMark:
    """Return the keyed digests and counts of records, independent of the order of rows.

    A table is read whole, in its canonical form (`study_protocol.cells.digest`): another spelling or storage of the
    same values is no change. Of inputs that are read on demand labels and patients count, and no input is read.

    key  32 secret bytes of this data set

    Raises:
        DataError: a column cannot be read.
    """
    content = records.digest() if isinstance(records, Table) else _digest_of_rows(records)
    named = sorted(set(records.patients)) if records.named else [str(len(records))]
    whole = hashlib.sha256("\n".join(named).encode("utf-8", "surrogatepass")).hexdigest()
    return RecordsMark(_keyed(key, content), _keyed(key, whole), len(set(records.patients)), len(records))


def change(ledger: HospitalLedger, records: Records) -> tuple[RecordsMark, str]:
    """Return the mark of the records, and one sentence on how they differ from those of the ledger. Empty: they do not.

    Also empty where the ledger knows none, as one of an earlier version.
    """
    mark, known = mark_of(records, ledger.records_key()), ledger.records_mark
    return mark, "" if known is None or known.content == mark.content else _in_words(known, mark)


def checked(ledger: HospitalLedger, records: Records, accepts: OnChangedRecords | None) -> tuple[RecordsMark, bool]:
    """Return the mark of the records, and whether it is a change that was accepted. The ledger is unchanged.

    accepts  asked about a change. None: no change is accepted

    Raises:
        RecordsChanged: they are other records than studies on this data set have used.
    """
    mark, difference = change(ledger, records)
    if not difference:
        return mark, False
    if accepts is None or not accepts(difference):
        raise RecordsChanged(
            f"{difference}. Name the right file. If the data set itself has changed, join with "
            "--accept-changed-records. Other patients are another data set (--dataset)"
        )
    _LOG.warning("%s. This is accepted, and written into this hospital's own ledger", difference)
    return mark, True


def _in_words(known: RecordsMark, mark: RecordsMark) -> str:
    if known.patients != mark.patients:
        what = f"{known.patients} → {mark.patients} patients"
    elif known.people != mark.people:
        what = f"{mark.patients} patients as before, and not the same ones"
    elif known.rows != mark.rows:
        what = f"the same {mark.patients} patients, {known.rows} → {mark.rows} rows"
    else:
        what = f"the same {mark.patients} patients and {mark.rows} rows, with other values or columns"
    return f"these are not the records of {known.at[:10]}: {what}"


def _keyed(key: bytes, digest: str) -> str:
    return hmac.digest(key, _LABEL + digest.encode(), "sha256").hex()


def _digest_of_rows(records: Examples | LazyExamples) -> str:
    head = repr((type(records).__name__, records.labels.dtype.kind, records.labels.shape[1:], records.named))
    rows = sorted(hashlib.sha256(row).digest() for row in _rows(records))
    return hashlib.sha256(head.encode() + b"".join(rows)).hexdigest()


def _rows(records: Examples | LazyExamples) -> Iterator[bytes]:
    labels: list[Any] = records.labels.tolist()
    # Without identifiers the place in the file is no patient.
    patients = records.patients if records.named else [""] * len(labels)
    for row, (label, patient) in enumerate(zip(labels, patients, strict=True)):
        content = np.ascontiguousarray(records.inputs[row]).tobytes() if isinstance(records, Examples) else b""
        yield repr((label, patient)).encode("utf-8", "surrogatepass") + content
