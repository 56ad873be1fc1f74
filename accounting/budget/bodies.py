"""The body of an entry of a study's ledger: its event, and how the study stood afterwards. No other field is let in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Self, cast, get_args

from accounting.budget.ledger import Entry, Kind, LedgerError, digest, is_digest, is_number, is_positive

RosterChange = Literal["enrolled", "key-rotated", "revoked", "withdrawn"]
OperatorAction = Literal[
    "create", "start", "start-asking", "train", "pause", "resume", "stop", "delete", "invite", "revoke", "ask"
]

EVENTS: Mapping[Kind, frozenset[str]] = MappingProxyType(
    {
        "opened": frozenset({"study", "settings", "plan"}),
        "roster": frozenset({"change"}),
        # What a person at the coordinator did, with the person's name, and the head of the audit log that says more.
        "operated": frozenset({"action", "actor", "role", "audit_entries", "audit_sha256"}),
        "reserved": frozenset(),
        # A query's reservation: the digest of its document, and what it costs.
        "asked": frozenset({"query", "cost"}),
        "settled": frozenset({"report"}),
        "charged-in-full": frozenset({"reason"}),
        "cancelled": frozenset({"reason"}),
        # The file of the model that a round made. Of no round: of the initial model.
        "released": frozenset({"sha256", "bytes"}),
        # Disclosure `at-end`: the reports of all charged rounds, withheld until now. Else null.
        "finished": frozenset({"reason", "report"}),
    }
)
# Of a study whose clip norm is adaptive: the norm of the rounds that start from the model. Of an invitation or a
# revocation: the hospital. Of a question: the digest of its document.
OPTIONAL: Mapping[Kind, frozenset[str]] = MappingProxyType(
    {"released": frozenset({"clip_norm"}), "operated": frozenset({"client", "query"})}
)
OF_NO_ROUND: frozenset[Kind] = frozenset({"opened", "roster", "operated", "finished"})
_MOST_MEMBERS = 1_000_000
_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "query": is_digest,
    "sha256": is_digest,
    "bytes": partial(is_number, largest=2**53),
    "clip_norm": is_positive,
    "change": get_args(RosterChange).__contains__,
    "action": get_args(OperatorAction).__contains__,
    "audit_entries": partial(is_number, largest=2**53),
    "audit_sha256": is_digest,
}


@dataclass(frozen=True)
class Standing:
    """The state of the study after an entry. The data that its coordinator keeps beside the ledger must agree with the
    newest.

    settings_sha256   digest of the settings in the first entry
    roster_sha256     fingerprint of the active members' names and keys
    members           how many they are
    state_sha256      digest of the accounts' running state, whose floats may differ in their last bits elsewhere
    statement_sha256  digest of the limits and percentiles that are shown, likewise, without the numbers that take long
    can_continue      whether another round may begin, or the one under way may go on
    """

    settings_sha256: str
    roster_sha256: str
    members: int
    state_sha256: str
    statement_sha256: str
    can_continue: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that stand in every entry's body beside the event."""
        return {name: getattr(self, name) for name in STANDING}

    @classmethod
    def within(cls, entry: Entry) -> Self:
        """How the study stood after this entry.

        Raises:
            LedgerError: the entry does not say so, or not in these words.
        """
        body = entry.body
        missing = STANDING - set(body)
        if missing:
            raise LedgerError(entry.sequence, f"its body lacks {', '.join(sorted(missing))}")
        for name in STANDING:
            if name.endswith("_sha256") and not is_digest(body[name]):
                raise LedgerError(entry.sequence, f"its {name} is no digest")
        members = body["members"]
        if isinstance(members, bool) or not isinstance(members, int) or not 0 <= members <= _MOST_MEMBERS:
            raise LedgerError(entry.sequence, "its members is no number of members")
        if not isinstance(body["can_continue"], bool):
            raise LedgerError(entry.sequence, "its can_continue is not true or false")
        return cls(**{name: body[name] for name in STANDING})


STANDING = frozenset(field.name for field in fields(Standing))


def event_in(entry: Entry) -> Mapping[str, Any]:
    """Return the event, without how the study stood afterwards. Every field is of its type, and no field is missing.

    A field of `OPTIONAL` is there only if the entry has it.

    Reports are mappings here. `report_from_dict` checks whether they are reports.

    Raises:
        LedgerError: a field is unknown, missing or of another type, or the kind has no such round.
    """
    event_type = EVENTS[entry.kind]
    if entry.kind != "released" and (entry.round is None) != (entry.kind in OF_NO_ROUND):
        raise LedgerError(entry.sequence, f"an entry of kind {entry.kind} belongs to {_expected_round(entry.kind)}")
    event_type = event_type | (OPTIONAL.get(entry.kind, frozenset()) & set(entry.body))
    different = set(entry.body) ^ (event_type | STANDING)
    if different:
        listed = ", ".join(sorted(map(str, different)))
        raise LedgerError(entry.sequence, f"its body has not exactly the fields of its kind: {listed}")
    event = {name: entry.body[name] for name in event_type}
    for name, value in event.items():
        if not _fits(entry.kind, name, value):
            raise LedgerError(entry.sequence, f"its {name} is none")
    return event


def settings_in(entry: Entry) -> Mapping[str, Any]:
    """Return the study's settings, as the first entry holds them. They have the digest that it names.

    Raises:
        LedgerError: it is no first entry, or the digest is of other settings.
    """
    if entry.kind != "opened" or entry.sequence != 1:
        raise LedgerError(entry.sequence, "the first entry must open the study with its settings and its plan")
    settings = event_in(entry)["settings"]
    if digest(settings) != Standing.within(entry).settings_sha256:
        raise LedgerError(entry.sequence, "its settings do not have the digest that it names")
    return settings


def _expected_round(kind: Kind) -> str:
    return "no round" if kind in OF_NO_ROUND else "a round"


def _fits(kind: Kind, name: str, value: object) -> bool:
    if name in _CHECKS:
        return _CHECKS[name](value)
    if name != "report":
        return isinstance(value, Mapping if name in ("settings", "plan", "cost") else str)
    if kind != "finished" or value is None:
        return value is None or isinstance(value, Mapping)
    reports = cast("list[object]", value)
    return isinstance(value, list) and all(item is None or isinstance(item, Mapping) for item in reports)


class ChargedRounds:
    """Follows a ledger, and lists its charged rounds of training, each with the members that it was reserved for."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, int]] = []
        self._members, self._query_rounds = 0, set[int]()

    def take(self, entry: Entry) -> None:
        """Take in the next entry."""
        if entry.kind == "reserved":
            self._members = Standing.within(entry).members
        elif entry.kind == "asked":
            self._query_rounds.add(entry.round or 0)
        elif entry.kind in ("settled", "charged-in-full") and not self.is_query(entry):
            self.rounds.append((entry.round or 0, self._members))

    def is_query(self, entry: Entry) -> bool:
        """Return whether the entry is of a round that answers a query."""
        return entry.round in self._query_rounds
