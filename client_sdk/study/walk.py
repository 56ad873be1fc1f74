"""One walk over the coordinator's ledger, from the head that was last seen to a later one, and what it proves."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from accounting.budget.ledger import Entry, LedgerError, verify_chain
from client_sdk.errors import LedgerForked, LedgerNotExtended, NotTrusted
from client_sdk.guard.seen_ledger import LedgerStep, SeenHead, SeenLedger
from study_protocol.study.messages import LedgerHead, LedgerPage, WitnessedHead

_REWRITTEN = (
    "the coordinator's ledger was rewritten, or an older copy of it was restored and written on: it does not continue "
    "the one that this hospital saw, so that what was charged before may be charged no more"
)


@dataclass(frozen=True)
class Signed:
    """A document of the coordinator, as it was signed."""

    label: str
    document: Mapping[str, Any]
    signature: str


class HeadWalk:
    """Entries in order, each hanging on the one before. Its errors carry the proof, where there is one.

    head    where the walk must end
    signed  the document that names it
    """

    def __init__(self, seen_ledger: SeenLedger, head: LedgerHead, signed: Signed) -> None:
        self._seen_ledger, self._head, self._signed = seen_ledger, head, signed
        self._before = seen_ledger.head
        self._at, self._reserved = (self._before.sequence, self._before.sha256), self._before.reserved
        self._entries: list[Entry] = []
        self._pages: list[LedgerPage] = []

    @property
    def position(self) -> int:
        """Of the newest entry that was reached."""
        return self._at[0]

    @property
    def reserved(self) -> int:
        """The last round that was reserved."""
        return self._reserved

    @property
    def paged(self) -> bool:
        """Whether anything had to be fetched."""
        return bool(self._pages)

    @property
    def witnesses(self) -> list[WitnessedHead]:
        """Return the heads that other hospitals have signed, as they came with the newest page."""
        return self._pages[-1].witnesses if self._pages else []

    def past(self) -> Iterable[Entry]:
        """Every entry that was reached, in this walk or before."""
        return [*self._seen_ledger.entries(), *self._entries]

    def require_not_shorter(self) -> None:
        """Raises LedgerNotExtended: the head lies before the one that was seen."""
        if self._head.entries >= self._before.sequence:
            return
        if self._head.entries and self._seen_ledger.hash_of(self._head.entries) != self._head.sha256:
            raise LedgerNotExtended(_REWRITTEN, self._proof())
        # No proof of a lie: a backup that is put back is an honest operator's accident.
        raise LedgerNotExtended(
            f"the coordinator's ledger has {self._head.entries} entries, this hospital has seen "
            f"{self._before.sequence}. It was restored from an older copy: what was spent since then is missing"
        )

    def take(self, page: LedgerPage) -> list[Entry]:
        """Return the page's entries up to the head, at least one, so that a walk comes to an end.

        Raises:
            LedgerNotExtended: they do not hang on what was reached, or are no entries.
        """
        self._pages.append(page)
        try:
            received_entries = [Entry.from_dict(entry.model_dump(mode="json")) for entry in page.entries]
        except LedgerError as error:
            raise LedgerNotExtended(f"the coordinator's ledger is not one: {error}") from error
        new_entries = [entry for entry in received_entries if entry.sequence <= self._head.entries]
        if not new_entries:
            raise LedgerNotExtended(f"the coordinator does not show entry {self.position + 1} of its ledger")
        try:
            self._at = verify_chain(new_entries, after=self._at)
        except LedgerError as error:
            raise LedgerNotExtended(f"{_REWRITTEN} ({error})", self._proof()) from error
        self._entries += new_entries
        self._reserved = max(
            [self._reserved, *(entry.round or 0 for entry in new_entries if entry.kind in ("reserved", "asked"))]
        )
        return new_entries

    def require_reached(self) -> None:
        """Raises LedgerNotExtended: what was reached is not the head. A ledger as long may have another past."""
        if self._at != (self._head.entries, self._head.sha256):
            raise LedgerNotExtended(f"{_REWRITTEN}: its head is not the one it names", self._proof())

    def compare(self, witnesses: Sequence[WitnessedHead]) -> list[WitnessedHead]:
        """Look every hospital's signed head up in this ledger, also those that an earlier walk did not come to.

        witnesses  whose signatures are good, and whose keys are believed

        Returns:
            Those that lie ahead of this walk, too.

        Raises:
            LedgerForked: one is not here.
        """
        walked = {entry.sequence: entry.sha256 for entry in self._entries}
        heads = {(w.client, w.head.entries, w.head.sha256): w for w in (*self._seen_ledger.heads_ahead(), *witnesses)}
        for witness in heads.values():
            number = witness.head.entries
            if (
                number <= self.position
                and (walked.get(number) or self._seen_ledger.hash_of(number)) != witness.head.sha256
            ):
                raise LedgerForked(
                    f"the coordinator shows two ledgers: {witness.client} has signed one whose entry {number} is "
                    "another than the one shown to this hospital",
                    self._proof() | {"witness": witness.model_dump(mode="json")},
                )
        return [witness for witness in heads.values() if witness.head.entries > self.position]

    def step(self, account: Mapping[str, Any], heads_ahead: Sequence[WitnessedHead]) -> LedgerStep | None:
        """Return what has to be kept of this walk, or None where there is no new entry or head."""
        if not self._entries and heads_ahead == self._seen_ledger.heads_ahead():
            return None
        signed = asdict(self._signed) if self._entries else self._seen_ledger.signed or asdict(self._signed)
        return LedgerStep(self._entries, SeenHead(*self._at, self._reserved), signed, account, heads_ahead)

    @contextmanager
    def proving(self) -> Generator[None]:
        """Within, every error for want of trust carries what was signed and shown."""
        try:
            yield
        except NotTrusted as error:
            error.proof = self._proof()
            raise

    def _proof(self) -> dict[str, Any]:
        """The head that was seen and the one that is shown, each as signed, with the entries behind them."""
        pages = [page.model_dump(mode="json") for page in self._pages]
        seen_state = {
            "signed": self._seen_ledger.signed,
            "entries": [entry.to_dict() for entry in self._seen_ledger.entries()],
        }
        return {"seen": seen_state, "shown": {"signed": asdict(self._signed), "pages": pages}}
