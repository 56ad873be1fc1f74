"""The records in a hospital's ledger of one round and of one body that left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

BodyKind = Literal["update", "refusal"]


@dataclass(frozen=True)
class ChargedRound:
    """A round this ledger has paid for. `sha256` is of the finished update, or None until there is one.

    sequence: of the entry that holds the charge. attempt: its place in the noise schedule, None without one.
    """

    sequence: int
    model_sha256: str
    sha256: str | None
    attempt: int | None = None


@dataclass(frozen=True, repr=False)
class OwnRound:
    """This hospital's knowledge of its own part in a round.

    accepted  the coordinator acknowledged an update, or shares that open it: it may have learnt something
    finished  an update was made ready, and may have left
    reported  the bound that it told, or the distance that it fell into, or None where it told none
    """

    accepted: bool
    finished: bool
    reported: Mapping[str, Any] | None


@dataclass(frozen=True)
class RecordsOrigin:
    """How the records of a data set were made, as far as the hospital's ledgers know it. It stays at the hospital.

    snapshot, sha256  name and digest of the snapshot. Empty: the records are none
    query_sha256      of the snapshot's queries, or of its cohort. Empty: it has none
    mapping_sha256    of the mapping of columns. Empty: none was applied
    """

    snapshot: str = ""
    sha256: str = ""
    query_sha256: str = ""
    mapping_sha256: str = ""

    def has_steps_of(self, origin: RecordsOrigin) -> bool:
        """Return whether both have the same mapping and, where both are known, the same queries."""
        queries = {self.query_sha256, origin.query_sha256} - {""}
        return self.mapping_sha256 == origin.mapping_sha256 and len(queries) < 2


@dataclass(frozen=True)
class RecordsMark:
    """The records of a data set, as the hospital's own ledger knows them again.

    content  keyed digest of all cells of a table, or of labels with their patients, whatever the order of the rows
    people   keyed digest of the patients alone
    inputs   what was compared of other inputs, a colon, and the keyed digest of rows with it. Empty: nothing
    accepted they are a change, which a person or the policy accepted
    at       time of the entry, UTC in ISO 8601. Empty: not written yet
    origin   how they were made. None: an earlier version wrote the entry, or a program has not told it
    """

    content: str
    people: str
    patients: int
    rows: int
    inputs: str = ""
    accepted: bool = False
    at: str = ""
    origin: RecordsOrigin | None = None

    def matches(self, mark: RecordsMark) -> bool:
        """Return whether both are of the same records, made in the same way, as far as both know them."""
        is_made_alike = self.origin is None or mark.origin is None or self.origin.has_steps_of(mark.origin)
        return is_made_alike and self.has_records_of(mark)

    def has_records_of(self, mark: RecordsMark) -> bool:
        """Return whether both are of the same records, as far as both know them."""
        read = [each.inputs.partition(":")[0] for each in (self, mark)]
        return self.content == mark.content and (read[0] != read[1] or self.inputs == mark.inputs)

    def to_dict(self) -> dict[str, Any]:
        """Return the body of an entry."""
        body = asdict(self)
        if self.origin is None:
            del body["origin"]
        return body

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> RecordsMark:
        """Return the mark of an entry. One of an earlier version has no origin."""
        origin = body.get("origin")
        entries = {each.name: body[each.name] for each in fields(cls) if each.name != "origin"}
        return cls(**entries, origin=None if origin is None else RecordsOrigin(**origin))


@dataclass(frozen=True)
class Departure:
    """One body. It may have left from `ready_at` on. `sent_at`, `answer`: when and how the coordinator answered.

    charge: sequence number of the ledger entry that paid for it. A refusal needs none.
    Times are UTC in ISO 8601.
    """

    study: str
    round: int
    what: BodyKind
    sha256: str
    bytes: int
    charge: int | None
    ready_at: str
    answer: str | None = None
    sent_at: str | None = None
