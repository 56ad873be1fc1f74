"""Digest of a table in the format `wardround table 1`, which does not depend on how the table is stored.

The digest is the SHA-256 of a first line that names the columns, and of the sorted SHA-256 of all rows. Two tables have
one digest under two conditions. Their columns have the same names, in any order. Their rows are the same, each as
often, in any order. Cells are the same if they have one form:

    empty    a cell without text, a null, NaN, no date
    Boolean  a stored one, or the words true and false in any capitals
    number   a stored one, or a text that writes a plain decimal number by the data set's declared mark, or one with an
             exponent as Python does (1e-05). Whole numbers are exact, however long. Others are the nearest float64. A
             stored number of 16 or 32 bits is the shortest decimal number that is its own
    date     a stored one, or a text that writes one by the data set's declared order, to the microsecond
    text     any other, in composed letters (NFC) and without spaces around it. 0744 is no 744, and NA is a text
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells.column import Column
from study_protocol.cells.precision import widened
from study_protocol.cells.spelling import EXACT, Spelling, is_doubtful, moment_in, numbers_in, truth_in
from study_protocol.cells.stored import Array

FORMAT = "wardround table 1"
# Between two cells of a row: a byte that is in no UTF-8.
_BETWEEN = b"\xff"
_EMPTY = b"-"
_TRUTHS = {"false": b"b0", "true": b"b1"}
_DECIMAL = re.compile(r"(-?)(0|[1-9][0-9]*)(?:[.,]([0-9]+))?")
# Texts that `numbers_in` reads and that are no plain decimals.
_NOT_PLAIN = re.compile(r"[+eE]|^-?0[0-9]|^-?[.,]|[.,]$", re.MULTILINE)


class TableDigest:
    """The digest of a table that is read part by part. It keeps 32 bytes of each row.

    Args:
        names: names of the columns.
        with_patients: whether each row includes the name of its patient.
    """

    def __init__(self, names: Iterable[str], *, with_patients: bool) -> None:
        self._names, self._with_patients = sorted(names), with_patients
        self._rows = bytearray()

    def add(self, columns: Mapping[str, Column], patients: Sequence[str]) -> None:
        """Add some rows.

        Args:
            columns: all of the names, at least.
            patients: the patient of each row, read if rows include them.
        """
        cells: list[Iterable[bytes]] = [cell_forms(columns[name]) for name in self._names]
        patient_cells = (f"p{patient}".encode("utf-8", "surrogatepass") for patient in patients)
        cells.append(patient_cells if self._with_patients else repeat(b"", len(patients)))
        for row in zip(*cells, strict=True):
            self._rows += hashlib.sha256(_BETWEEN.join(row)).digest()

    def hexdigest(self) -> str:
        """Return the digest of all rows that were added, 64 digits."""
        head = {"format": FORMAT, "columns": self._names, "patients": self._with_patients}
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode() + b"\n")
        # In place.
        np.frombuffer(self._rows, "S32").sort()
        digest.update(self._rows)
        return digest.hexdigest()


def cell_forms(column: Column) -> list[bytes]:
    """Return the form of each cell, shape (n,). Two cells are the same if their forms are."""
    if column.words is not None:
        forms, places = _of_words(cast("list[str | None]", column.words.tolist()), column.spelling), column.values
    elif column.values.dtype.kind == "b":
        forms, places = [_TRUTHS["false"], _TRUTHS["true"]], column.values.astype(np.int64)
    else:
        # Few numbers and days stand in many cells.
        each, places = np.unique(column.values, return_inverse=True)
        forms = _of_values(each)
    cells = list(map(forms.__getitem__, places.tolist()))
    for place in np.flatnonzero(column.empty).tolist():
        cells[place] = _EMPTY
    return cells


def _of_values(values: Array) -> list[bytes]:
    if values.dtype.kind == "M":
        return [b"d%d" % moment for moment in values.astype("datetime64[us]").astype(np.int64).tolist()]
    if values.dtype.kind in "iu":
        return [b"n%d" % number for number in values.tolist()]
    return _of_floats(widened(values))


def _of_floats(values: NDArray[np.float64]) -> list[bytes]:
    whole = np.isfinite(values) & (values == np.rint(values))
    return [
        b"n%d" % int(number) if is_whole else f"n{number!r}".encode()
        for number, is_whole in zip(values.tolist(), whole.tolist(), strict=True)
    ]


def _of_words(words: Sequence[str | None], spelling: Spelling) -> list[bytes]:
    texts = [word or "" for word in words]
    numbers = None
    if texts.count("") <= 1:
        numbers = numbers_in(list(filter(None, texts)), spelling)
    if numbers is None or _NOT_PLAIN.search("\n".join(texts)) or (np.abs(numbers) >= EXACT).any():
        return [_of_word(text, spelling) for text in texts]
    forms = iter(_of_floats(numbers))
    return [next(forms) if text else _EMPTY for text in texts]


def _of_word(text: str, spelling: Spelling) -> bytes:
    if not text:
        return _EMPTY
    if (number := _number_form(text, spelling)) is not None:
        return number
    if (truth := truth_in(text)) is not None:
        return _TRUTHS[truth]
    if (moment := moment_in(text, spelling)) is not None:
        return b"d%d" % moment
    return f"t{text}".encode("utf-8", "surrogatepass")


def _number_form(text: str, spelling: Spelling) -> bytes | None:
    comma = spelling.decimal == "comma"
    if (("." if comma else ",") in text) or is_doubtful(text, spelling):
        return None
    plain = text.replace(",", ".")
    if (parts := _DECIMAL.fullmatch(text)) is not None:
        sign, whole, fraction = parts.groups()
        if not (fraction or "").strip("0"):
            return f"n{'' if whole == '0' else sign}{whole}".encode()
        return _of_floats(np.array([float(plain)]))[0]
    if "e" in text and _is_python_s(plain):
        return _of_floats(np.array([float(plain)]))[0]
    return None


def _is_python_s(text: str) -> bool:
    """Return whether Python writes a float so."""
    try:
        return repr(float(text)) == text
    except ValueError:
        return False


def digest_of(parts: Iterable[Any], names: Iterable[str], *, with_patients: bool) -> str:
    """Return the digest of a table in parts, each with `columns` and `patients`."""
    digest = TableDigest(names, with_patients=with_patients)
    for part in parts:
        digest.add(part.columns, part.patients)
    return digest.hexdigest()
