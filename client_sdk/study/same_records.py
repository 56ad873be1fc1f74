"""Whether a data set holds the records that its studies began with.

Limits of single patients and the split for evaluation count on the same patients. A file that was replaced would go on
in silence, so the hospital's own ledger keeps a keyed digest of the records, and a change is said before anything is
computed. The digest never leaves the hospital. Studies on one data set may use several files: a study's records are
held against those that it used last, and a new study's against those of all others.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from client_sdk.errors import RecordsChanged
from client_sdk.guard.ledger import HospitalLedger, RecordsMark
from client_sdk.guard.ledger_views import RecordsOrigin
from private_learning.records import DataError, Examples, LazyExamples, Records, Table
from private_learning.records.lazy import Recognisable

_LOG = logging.getLogger(__name__)
_LABEL = b"wardround/1/records"

OnChangedRecords: TypeAlias = Callable[[str], bool]
"""Called with one sentence of counts, without values. It returns whether a person here accepts the change."""


def mark_of(records: Records, key: bytes, origin: RecordsOrigin | None = None) -> RecordsMark:
    """Return the keyed digests and counts of records, independent of the order of rows.

    A table is read whole, in its canonical form (`study_protocol.cells.digest`): another spelling or storage of the
    same values is no change. Of inputs that are read on demand their stored bytes count (`Recognisable`), and of large
    files some blocks. Of a program's data set that is read on demand only labels and patients count.

    key     32 secret bytes of this data set
    origin  how they were made, if it is known

    Raises:
        DataError: a column cannot be read.
    """
    content, inputs = (records.digest(), "") if isinstance(records, Table) else _of_examples(records, key)
    patient_names = sorted(set(records.patients)) if records.named else [str(len(records))]
    whole = hashlib.sha256("\n".join(patient_names).encode("utf-8", "surrogatepass")).hexdigest()
    counts = (len(set(records.patients)), len(records))
    return RecordsMark(_keyed(key, content), _keyed(key, whole), *counts, inputs, origin=origin)


def change(
    ledger: HospitalLedger, study: str | None, records: Records, origin: RecordsOrigin | None = None
) -> tuple[RecordsMark, str]:
    """Return the mark of the records, and one sentence on how they differ from those of the ledger. Empty: they do not.

    Also empty where the ledger knows none, as one of an earlier version.

    study   whose records they are to be. None: of any study on the data set
    origin  how they were made, if it is known. Another query or mapping is a change, also where the records are equal
    """
    mark, known_marks = mark_of(records, ledger.records_key(), origin), ledger.records_marks(study)
    return mark, "" if not known_marks or any(map(mark.matches, known_marks)) else _in_words(known_marks[-1], mark)


def checked(
    ledger: HospitalLedger,
    study: str,
    records: Records,
    accepts: OnChangedRecords | None,
    origin: RecordsOrigin | None = None,
) -> RecordsMark:
    """Return the mark of the records. The ledger is unchanged.

    accepts  asked about a change. None: no change is accepted

    Raises:
        RecordsChanged: they are other records than studies on this data set have used.
    """
    mark, difference = change(ledger, study, records, origin)
    if not difference:
        return mark
    if accepts is None or not accepts(difference):
        raise RecordsChanged(
            f"{difference}. Name the right file. If the data set itself has changed, join with "
            "--accept-changed-records. Other patients are another data set (--dataset)"
        )
    _LOG.warning("%s. This is accepted, and written into this hospital's own ledger", difference)
    return replace(mark, accepted=True)


def _in_words(earlier: RecordsMark, mark: RecordsMark) -> str:
    if earlier.patients != mark.patients:
        difference = f"{earlier.patients} → {mark.patients} patients"
    elif earlier.people != mark.people:
        difference = f"{mark.patients} patients as before, and not the same ones"
    elif earlier.rows != mark.rows:
        difference = f"the same {mark.patients} patients, {earlier.rows} → {mark.rows} rows"
    elif not mark.has_records_of(earlier):
        difference = f"the same {mark.patients} patients and {mark.rows} rows, with other values, columns or files"
    else:
        difference = f"the same {mark.patients} patients, rows and values"
    ways = "".join(f"; {words}" for words in _of_origins(earlier.origin, mark.origin))
    return f"these are not the records of {earlier.at[:10]}: {difference}{ways}"


def _of_origins(earlier: RecordsOrigin | None, new: RecordsOrigin | None) -> Iterator[str]:
    """Yield what became of the query and of the mapping, where both are known."""
    if earlier is None or new is None:
        return
    if earlier.query_sha256 and new.query_sha256:
        yield "the same query" if earlier.query_sha256 == new.query_sha256 else "another query"
    if not new.mapping_sha256:
        yield from ["no mapping, where there was one"] if earlier.mapping_sha256 else []
    elif not earlier.mapping_sha256:
        yield "a mapping, where there was none"
    else:
        yield "the same mapping" if earlier.mapping_sha256 == new.mapping_sha256 else "another mapping"


def _keyed(key: bytes, digest: str) -> str:
    return hmac.digest(key, _LABEL + digest.encode(), "sha256").hex()


def _of_examples(records: Examples | LazyExamples, key: bytes) -> tuple[str, str]:
    """Return the digest of the labels and patients, and what `RecordsMark.inputs` says."""
    # Without identifiers the place in the file is no patient.
    patients = records.patients if records.named else [""] * len(records)
    encoded = (repr(patient).encode("utf-8", "surrogatepass") for patient in patients)
    rows = [hashlib.sha256(b":".join(row)).digest() for row in zip(encoded, map(_plain, records.labels), strict=True)]
    if isinstance(records, Examples):
        kind, inputs = "values", map(_plain, records.inputs)
    elif isinstance(records.reader, Recognisable):
        kind, inputs = "stored", map(records.reader.stored, records.rows.tolist())
    else:
        return _of_rows(rows), ""
    try:
        return _of_rows(rows), f"{kind}:{_keyed(key, _of_rows(map(b''.join, zip(rows, inputs, strict=True))))}"
    except OSError as error:
        # Its text may name a file, and files are often named after people.
        raise DataError(f"some of {len(rows)} records cannot be read ({type(error).__name__})") from None


def _plain(cell: Any) -> bytes:
    """Return one form of a label or an input, whichever kind of number stores it."""
    array = np.asarray(cell)
    if array.dtype.kind not in "biuf":
        return repr(array.tolist()).encode("utf-8", "surrogatepass")
    return repr(array.shape).encode() + array.astype("<f8").tobytes()


def _of_rows(rows: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(row).digest() for row in rows))).hexdigest()
