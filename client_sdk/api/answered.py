"""An answer as a program has it: its signature checked, its tables as data frames."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from client_sdk.errors import AnswerNotSigned, ConfigurationError
from study_protocol.queries.answer import AnswerTable
from study_protocol.study.queries import PublishedAnswer, Query, QueryDocument, QueryNoise
from study_protocol.wire.signing import SigningError, decode_public_key, fingerprint

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]


@dataclass(frozen=True)
class Answered:
    """The answer to a query, signed by the coordinator.

    query    the query as the coordinator tells it
    key      the coordinator's key that the signature was verified with, base64url
    pinned   whether that key was known beforehand, from a person or from enrolment. False: the coordinator shows it,
             and no person has compared it
    """

    query: Query
    published: PublishedAnswer
    key: str
    pinned: bool

    @property
    def tables(self) -> tuple[AnswerTable, ...]:
        """The tables of the answer. The first is the answer itself, and others add to it."""
        return self.published.answer.tables

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that a reader should know."""
        return self.published.answer.notes

    @property
    def warning(self) -> str:
        """The risk against which no noise protects."""
        return self.published.warning

    @property
    def noise(self) -> QueryNoise:
        """The noise that is sure, and that is really there, on the scale of one patient's part."""
        return self.published.noise

    @property
    def hospitals(self) -> int:
        """How many are in the sum."""
        return self.published.hospitals

    def table(self, name: str | None = None) -> AnswerTable:
        """Return one of `tables`, or the first without a name.

        Raises:
            KeyError: there is no table of this name. The text lists the names.
        """
        if name is None:
            return self.tables[0]
        matches = [table for table in self.tables if table.name == name]
        if not matches:
            raise KeyError(f"no table {name!r}: the answer has {', '.join(table.name for table in self.tables)}")
        return matches[0]

    def frame(self, table: str | None = None) -> pandas.DataFrame:
        """Return one table as a pandas data frame, or the first without a name.

        Columns that hold estimates are `estimate`, `dp_error`, `sampling_error`, `low`, `high`, and `raw` where it
        differs. The columns before them say what a row is about. Notes and the warning are in `attrs`.

        Raises:
            KeyError: there is no table of this name.
            ConfigurationError: pandas is not installed.
        """
        try:
            import pandas  # pyright: ignore[reportMissingTypeStubs]
        except ModuleNotFoundError as error:
            raise ConfigurationError("data frames need pandas: pip install 'wardround[frames]'") from error
        released_table = self.table(table)
        frame = pandas.DataFrame([list(row) for row in released_table.rows], columns=list(released_table.columns))
        frame.attrs.update({"title": released_table.title, "notes": list(self.notes), "warning": self.warning})
        return frame

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self.tables)
        return f"Answered({self.query.study!r}, query {self.query.number}, {self.hospitals} hospitals, tables: {names})"

    def _repr_html_(self) -> str:
        """As a notebook shows it: the first table."""
        frame: Any = self.frame()
        return str(frame._repr_html_())


def verified(query: Query, document: QueryDocument, received_key: str, known_key: str | None) -> Answered:
    """Return the answer, if it is the coordinator's own and to this very question.

    received_key  the key that the coordinator shows
    known_key     its key, or its fingerprint, from enrolment or from a person. None: no person compared it

    Raises:
        AnswerNotSigned: another key, a signature that does not hold, or the answer to something else.
    """
    if query.answered is None:
        raise AnswerNotSigned(f"the coordinator calls query {query.number} answered and shows no answer")
    if query.sha256 != document.digest():
        raise AnswerNotSigned(f"what the coordinator shows for query {query.number} answers something else")
    try:
        key = decode_public_key(received_key)
        if known_key is not None and not names(known_key, received_key, fingerprint(key)):
            raise AnswerNotSigned("the coordinator shows another key than the one that you know")
        query.require_believable(key)
    except SigningError as error:
        raise AnswerNotSigned(f"answer {query.number} is not what the coordinator signed: {error}") from error
    return Answered(query, query.answered.published, received_key, pinned=known_key is not None)


def next_step(query: Query, before: QueryDocument) -> QueryDocument:
    """Return the document of the query that followed from the answer to `before`.

    Raises:
        AnswerNotSigned: it is not the next step of that question.
    """
    document = query.document
    if document.first_step() != before.first_step() or document.step != before.step + 1:
        raise AnswerNotSigned(f"what the coordinator shows for query {query.number} is no next step of the question")
    return document


def names(text: str, key: str, mark: str) -> bool:
    """Whether a person means this key: by itself, or by its fingerprint, which is read out in groups."""
    # A key tells small letters from capitals.
    return text.strip() == key or re.sub(r"[\s.,:-]", "", text).lower() == mark
