"""The list of patients whom a hospital leaves out: how it is read, and whom of some records it means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from study_protocol.cells.identity import IdentifierError, objection_key, patient_identity, visible_text

_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# As `visible_text` has them: wide commas have become narrow ones.
_SEPARATORS = ",;|\N{ARABIC COMMA}\N{ARABIC SEMICOLON}\N{IDEOGRAPHIC COMMA}"
_QUOTATION_MARKS = '"“”„‟«»‹›'
# Within an identifier they may be letters, around it they are quotation marks.
_APOSTROPHES = "'`‘’‚‛"
# Of lines that a warning names.
_MAX_LINES_NAMED = 10


@dataclass(frozen=True)
class ExclusionEntry:
    """One patient of the list. number: of its line in the file `source`, or of its place in the setting `source`."""

    source: str
    number: int
    identity: str = field(repr=False)
    units: str = "lines"


@dataclass(frozen=True)
class Exclusion:
    """The result of matching a list with some records.

    rows       (n,) booleans: of a patient who is left out
    patients   how many patients these are
    entries    of the list
    unmatched  entries that match no patient of the records
    widened    entries that match a patient who is written with other capitals, or with more or fewer leading zeros
    """

    rows: NDArray[np.bool_] = field(repr=False)
    patients: int
    entries: int
    unmatched: tuple[ExclusionEntry, ...]
    widened: tuple[ExclusionEntry, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what a person should look at, by the numbers of lines and never by an identifier."""
        warnings: list[str] = []
        if self.unmatched:
            count = f"{len(self.unmatched)} of {self.entries} entries of the exclusion list match no patient"
            if len(self.unmatched) == self.entries:
                count = "no patient is left out: no entry of the exclusion list matches a patient"
            warnings.append(
                f"{count} of these records ({places_of(self.unmatched)}). Compare how the records write these patients"
            )
        if self.widened:
            warnings.append(
                f"{len(self.widened)} of {self.entries} entries of the exclusion list also leave out patients who are "
                f"written with other capitals or other leading zeros ({places_of(self.widened)})"
            )
        return tuple(warnings)


@dataclass(frozen=True)
class ExclusionList:
    """Patients who are left out of everything. Two identifiers match if their `objection_key` is one."""

    entries: tuple[ExclusionEntry, ...]

    def __len__(self) -> int:
        return len(self.entries)

    def match(self, patients: Sequence[str]) -> Exclusion:
        """Whom of the patients the list leaves out. patients: (n,) the patient of each row."""
        written: dict[str, set[str]] = defaultdict(set)
        for patient in set(patients):
            written[objection_key(patient_identity(patient))].add(patient)
        keys = {entry: objection_key(entry.identity) for entry in self.entries}
        excluded = set[str]().union(*(written.get(key, ()) for key in keys.values()))
        return Exclusion(
            rows=np.fromiter((patient in excluded for patient in patients), np.bool_, len(patients)),
            patients=len(excluded),
            entries=len(self.entries),
            unmatched=tuple(entry for entry, key in keys.items() if key not in written),
            widened=tuple(entry for entry, key in keys.items() if written.get(key, set()) - {entry.identity}),
        )


def places_of(entries: Iterable[ExclusionEntry]) -> str:
    """The first of the places, by their files: "lines 1, 4 of objections.txt, and 12 more"."""
    every = list(entries)
    numbers: dict[str, list[str]] = defaultdict(list)
    for entry in every[:_MAX_LINES_NAMED]:
        numbers[f"{entry.units} {{}} of {entry.source}"].append(str(entry.number))
    places = [words.format(", ".join(places_in_list)) for words, places_in_list in numbers.items()]
    return ", ".join(
        [*places, *([f"and {len(every) - _MAX_LINES_NAMED} more"] if len(every) > _MAX_LINES_NAMED else [])]
    )


def read_exclusion_file(path: Path, subject: str) -> tuple[ExclusionEntry, ...]:
    """The entries of a file with one identifier a line: UTF-8, or UTF-16 with a byte order mark.

    An identifier may stand in quotation marks. Empty lines and spaces around an identifier are ignored. Every
    other line is an entry, also a header or a comment, which then matches no patient.

    subject  the file, as messages name it

    Raises:
        ConfigurationError: no such file, another encoding, or a line that is not one identifier. The text names lines.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{subject} cannot be read: {error.strerror or 'an error of the disk'}") from error
    return exclusion_entries(data, path.name, subject)


def exclusion_entries(data: bytes, name: str, subject: str) -> tuple[ExclusionEntry, ...]:
    """Return the entries in the bytes of such a file. name: of the file. Raises as `read_exclusion_file`."""
    entries: list[ExclusionEntry] = []
    wrong: list[tuple[int, str]] = []
    for number, line in _lines(data, subject):
        try:
            identity = entry_identity(line)
        except ValueError as fault:
            wrong.append((number, str(fault)))
            continue
        if identity:
            entries.append(ExclusionEntry(name, number, identity))
    if wrong:
        number, fault = wrong[0]
        remark = f" ({len(wrong)} lines are wrong)" if len(wrong) > 1 else ""
        raise ConfigurationError(f"{subject}: line {number} {fault}{remark}")
    return tuple(entries)


def entry_identity(text: str) -> str:
    """Return the identity of the patient whom one entry names, or "" for an empty one.

    Raises:
        ValueError: more than one identifier, or none. The text goes on after "line 3".
    """
    try:
        visible = _unquoted(visible_text(text))
        if "\t" in text.strip() or any(mark in visible for mark in _SEPARATORS):
            raise ValueError(
                "holds a comma, a semicolon, a tab or a bar. Write one identifier a line, and nothing beside it"
            )
        if any(mark in visible for mark in _QUOTATION_MARKS) or visible.strip(_APOSTROPHES) != visible:
            raise ValueError("holds a quotation mark that belongs to no pair around the identifier")
        identity = patient_identity(visible)
    except IdentifierError as error:
        raise ValueError(_explained(error)) from None
    if visible and not identity:
        raise ValueError("holds a word for a missing value, which names no patient")
    return identity


def _unquoted(text: str) -> str:
    for marks in (_QUOTATION_MARKS, _APOSTROPHES):
        if len(text) > 1 and text[0] in marks and text[-1] in marks:
            return text[1:-1].strip()
    return text


def inline_identity(place: int, value: Any) -> str:
    """The identity of the patient whom one entry of a setting names. place: of the entry, from 1.

    Raises:
        ValueError: it names no patient, or several.
    """
    try:
        identity = entry_identity(value if isinstance(value, str) else patient_identity(value))
    except IdentifierError as error:
        raise ValueError(f"entry {place} {_explained(error)}") from None
    except ValueError as error:
        raise ValueError(f"entry {place} {error}") from None
    if not identity:
        raise ValueError(f"entry {place} is empty")
    return identity


def _explained(error: IdentifierError) -> str:
    return f"{error.fault.replace('hold', 'holds', 1)}. {error.advice}"


def _lines(data: bytes, subject: str) -> Iterator[tuple[int, str]]:
    encoding = encoding_of(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        # The lines before the place are whole: without it they could not be counted.
        before = data[: error.start].decode(encoding, errors="replace")
        raise ConfigurationError(
            f"{subject} cannot be read: line {_line(before)} is no {'UTF-16' if encoding == 'utf-16' else 'UTF-8'} text"
            ". Save the list as UTF-8"
        ) from error
    if "\0" in text:
        place = _line(text[: text.index("\0")])
        raise ConfigurationError(f"{subject} cannot be read: line {place} holds a zero byte. Save the list as UTF-8")
    yield from enumerate(text.splitlines(), start=1)


def encoding_of(data: bytes) -> str:
    """Return the encoding of a list by its byte order mark, as Python names it."""
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8-sig")


def _line(before: str) -> int:
    return len(f"{before}x".splitlines())
