"""The append-only ledger: events from which every ε can be computed again, chained by hashes.

An entry's hash covers its content and the hash before it, so the last hash fixes the whole past. With an old
(sequence, hash) anyone can check that a newer ledger extends it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, cast, get_args

from accounting.errors import AccountingError

GENESIS = "0" * 64
Kind = Literal[
    "opened",
    "roster",
    "operated",
    "reserved",
    "asked",
    "settled",
    "charged-in-full",
    "cancelled",
    "released",
    "finished",
]
_FIELDS = frozenset({"sequence", "kind", "round", "body", "previous", "sha256"})
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
# What a database can number.
_MAX_NUMBER = 2**31 - 1


class LedgerError(AccountingError):
    """The entries are not a ledger: `sequence` is the first one that does not fit."""

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"ledger entry {sequence}: {reason}")
        self.sequence = sequence
        self.reason = reason


@dataclass(frozen=True)
class Entry:
    """One event. `body` is JSON, `sequence` counts from 1, and `previous` is the hash of the entry before."""

    sequence: int
    kind: Kind
    round: int | None
    body: Mapping[str, Any]
    previous: str
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        """JSON, the hash included."""
        return {**_content(self), "sha256": self.sha256}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Entry:
        """Inverse of `to_dict`.

        Raises:
            LedgerError: fields are missing or of the wrong type.
        """
        if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LedgerError(0, f"an entry is a JSON object, not {type(value).__name__}")
        sequence = value.get("sequence")
        if not is_number(sequence):
            raise LedgerError(0, "sequence is missing or not a number from 1")
        different = set(value) ^ _FIELDS
        if different:
            listed = ", ".join(sorted(map(str, different)))
            raise LedgerError(sequence, f"has not exactly the fields of an entry: {listed}")
        kind, round_, body = value["kind"], value["round"], value["body"]
        previous, sha256 = value["previous"], value["sha256"]
        if kind not in get_args(Kind) or not isinstance(body, Mapping):
            raise LedgerError(sequence, "kind or body is not one of a ledger")
        if round_ is not None and not is_number(round_):
            raise LedgerError(sequence, "round is not a number from 1")
        if not (is_digest(previous) and is_digest(sha256)):
            raise LedgerError(sequence, "a hash is missing or not one")
        return cls(sequence, cast(Kind, kind), round_, cast("Mapping[str, Any]", body), previous, sha256)


def _content(entry: Entry) -> dict[str, Any]:
    return {
        "sequence": entry.sequence,
        "kind": entry.kind,
        "round": entry.round,
        "body": dict(entry.body),
        "previous": entry.previous,
    }


def digest(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of `value`: what entries are chained by, and what they name things by.

    Raises:
        ValueError: NaN or an infinity, text that is none, or JSON nested without end.
        TypeError: something that is no JSON.
    """
    try:
        # The same form as `canonical_json` of the protocol, which accounting may not import.
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    return hashlib.sha256(text.encode()).hexdigest()


def is_digest(value: object) -> bool:
    """Whether it is a SHA-256 in lower-case hexadecimal."""
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def is_number(value: object, largest: int = _MAX_NUMBER) -> TypeGuard[int]:
    """Whether it is a whole number from 1. JSON's true would pass for 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= largest


def is_positive(value: object) -> TypeGuard[float]:
    """Whether it is a number above 0 that is a finite float. JSON's whole numbers may be larger than any."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _digest(entry: Entry) -> str:
    try:
        return digest(_content(entry))
    except (TypeError, ValueError) as error:
        raise LedgerError(entry.sequence, f"its body is no JSON: {error}") from error


def append(previous: Entry | None, kind: Kind, round_number: int | None, body: Mapping[str, Any]) -> Entry:
    """The entry that follows `previous` (None: the first one).

    Raises:
        ValueError: NaN or an infinity in the body. Such numbers are never written down.
    """
    sequence, parent = (1, GENESIS) if previous is None else (previous.sequence + 1, previous.sha256)
    entry = Entry(sequence, kind, round_number, body, parent, "")
    return Entry(sequence, kind, round_number, body, parent, digest(_content(entry)))


def verify_chain(entries: Iterable[Entry], *, after: tuple[int, str] = (0, GENESIS)) -> tuple[int, str]:
    """Check that the entries continue a ledger whose head was `after`, one by one.

    Returns:
        The (sequence, hash) of the new head, or `after` itself if there are no entries.

    Raises:
        LedgerError: names the first entry that is missing, changed or out of order.
    """
    sequence, head = after
    for entry in entries:
        if entry.sequence != sequence + 1:
            raise LedgerError(entry.sequence, f"follows entry {sequence}: entries are missing or repeated")
        if entry.previous != head:
            raise LedgerError(entry.sequence, "does not hang on the entry before it: the past was rewritten")
        if entry.sha256 != _digest(entry):
            raise LedgerError(entry.sequence, "its content does not have its hash")
        sequence, head = entry.sequence, entry.sha256
    return sequence, head
