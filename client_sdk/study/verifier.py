"""What a hospital believes of its coordinator: only what is signed, and only what continues what it saw before.

What the coordinator says it took from this hospital must be in the hospital's own ledger.
"""

from __future__ import annotations

from accounting.budget.ledger import Entry, LedgerError, verify_chain
from client_sdk.api.client import Client, Signature
from client_sdk.errors import BadAssignment, LedgerNotExtended, LostLedger, RosterNotPinned
from client_sdk.guard.ledger import HospitalLedger, SeenHead
from client_sdk.identity import Membership
from client_sdk.protocol.study.messages import Assignment, AssignmentBody, BudgetStatement, LedgerHead, Roster
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.signing import (
    ASSIGNMENT,
    LEDGER_HEAD,
    SigningError,
    decode_public_key,
    encode_public_key,
    roster_fingerprint,
    verify_document,
)


class CoordinatorVerifier:
    """One hospital's view of one study's coordinator.

    settings  frozen when the hospital joined; where they ask for masks, the keys for these are believed through the
              study's roster, which is then looked at in every round
    head      the coordinator's ledger as it was last seen; it only ever moves on
    """

    def __init__(self, client: Client, membership: Membership, settings: StudySettings, head: SeenHead) -> None:
        self._client, self._membership, self._settings_sha256 = client, membership, settings.digest()
        self._key, self._masked = decode_public_key(membership.coordinator_key), settings.privacy.masking is not None
        self.head = head
        self._roster: tuple[str, Roster] | None = None

    def assignment(self, given: Assignment) -> AssignmentBody:
        """The assignment, if everything about it is as it must be; `head` has moved on then.

        Raises:
            BadAssignment: signature, study, client, settings or roster.
            LedgerNotExtended: the ledger is shorter than it was, rewritten, or does not hold this round's reservation.
            RosterNotPinned: somebody takes part whom the pinned roster does not hold.
        """
        body = given.assignment
        try:
            verify_document(self._key, ASSIGNMENT, body.model_dump(mode="json"), given.signature)
        except SigningError as error:
            raise BadAssignment("the assignment is not signed by the coordinator pinned at enrolment") from error
        if (body.study, body.client) != (self._membership.study, self._membership.client):
            raise BadAssignment("the assignment is for another study or another client")
        if body.settings_sha256 != self._settings_sha256:
            raise BadAssignment("the study's settings are not those that this hospital joined under")
        self.follow(body.ledger, reserved_round=body.round)
        if self._masked or self._membership.pinned is not None:
            self._require_pinned(self.roster(body))
        return body

    def roster(self, assignment: AssignmentBody) -> Roster:
        """The members of the round, as the coordinator shows them.

        Raises:
            BadAssignment: they are not those that the assignment names.
        """
        # One look serves while the digest stays: what it must hash to is signed in every assignment.
        if self._roster is None or self._roster[0] != assignment.roster_sha256:
            shown = self._client.roster(self._membership.study, assignment.round)
            if active_fingerprint(shown) != assignment.roster_sha256:
                raise BadAssignment("the roster shown is not the one that the assignment names")
            self._roster = assignment.roster_sha256, shown
        return self._roster[1]

    def statement(self, given: BudgetStatement) -> None:
        """Check a budget's signed ledger head, and that it extends what was seen.

        Raises:
            LedgerNotExtended: it does not, or is not signed.
        """
        sha256 = given.ledger.head.removeprefix("sha256:")
        head = LedgerHead(study=given.study, entries=given.ledger.entries, sha256=sha256)
        self._require_signed(head, given.ledger.signature)
        self.follow(head)

    def follow(self, head: LedgerHead, *, reserved_round: int | None = None) -> None:
        """Walk the ledger from the head last seen to this one.

        Raises:
            LedgerNotExtended: as its text says.
        """
        seen = self.head
        if head.study != self._membership.study:
            raise LedgerNotExtended("the ledger head is of another study")
        if head.entries < seen.sequence:
            raise LedgerNotExtended(
                f"the coordinator's ledger has {head.entries} entries; this hospital has seen {seen.sequence}. It was "
                "restored from an older copy: what was spent since then is missing"
            )
        reached, reserved = (seen.sequence, seen.sha256), seen.reserved
        while reached[0] < head.entries:
            found = self._page(reached[0], head.entries)
            try:
                reached = verify_chain(found, after=reached)
            except LedgerError as error:
                text = f"the coordinator's ledger does not continue what this hospital saw: {error}"
                raise LedgerNotExtended(text) from error
            reserved = max([reserved, *(entry.round or 0 for entry in found if entry.kind == "reserved")])
        # Also where nothing was walked: a ledger of the same length may have another past.
        if reached != (head.entries, head.sha256):
            raise LedgerNotExtended("the coordinator's ledger was rewritten: its head is not the one it names")
        # The newest one, so that an assignment of an earlier round cannot come again.
        if reserved_round is not None and reserved != reserved_round:
            raise LedgerNotExtended(f"the ledger does not hold the reservation of round {reserved_round}")
        self.head = SeenHead(*reached, reserved)

    def _page(self, after: int, last: int) -> list[Entry]:
        """The next entries up to `last`; at least one, so that following a ledger comes to an end."""
        page = self._client.ledger(self._membership.study, after)
        self._require_signed(page.head.head, page.head.signature)
        try:
            entries = [Entry.from_dict(entry.model_dump(mode="json")) for entry in page.entries]
        except LedgerError as error:
            raise LedgerNotExtended(f"the coordinator's ledger is not one: {error}") from error
        found = [entry for entry in entries if entry.sequence <= last]
        if not found:
            raise LedgerNotExtended(f"the coordinator does not show entry {after + 1} of its ledger")
        return found

    def _require_signed(self, head: LedgerHead, signature: str) -> None:
        try:
            verify_document(self._key, LEDGER_HEAD, head.model_dump(mode="json"), signature)
        except SigningError as error:
            raise LedgerNotExtended("the ledger head is not signed by the coordinator that was pinned") from error

    def _require_pinned(self, roster: Roster) -> None:
        credentials = self._client.credentials
        own = encode_public_key(credentials.key.public_key()) if isinstance(credentials, Signature) else None
        unknown = strangers(self._membership, roster, own)
        if unknown:
            raise RosterNotPinned(
                f"{', '.join(unknown)}: not in the pinned roster, or with another key; compare and pin anew"
            )


def require_known_past(client: Client, ledger: HospitalLedger, study: str, name: str, dataset: str) -> None:
    """Every round that the coordinator took must be in the ledger; answers that a crash kept out of its log are added.

    Raises:
        LostLedger: the ledger misses one.
    """
    reported = rounds_received(client, study, name)
    missing = reported - ledger.rounds_known(study)
    if missing:
        raise LostLedger(
            "lost-ledger",
            f"the coordinator holds updates of this hospital from round {min(missing)} on that the ledger of data "
            f"set {dataset!r} does not know: restore it, or accept the loss with --accept-lost-ledger",
        )
    for departure in ledger.departures(study):
        # Killed between the answer and its line in the log.
        if departure.what == "update" and departure.answer is None and departure.round in reported:
            ledger.mark_answered(study, departure.round, departure.sha256, "accepted")


def rounds_received(client: Client, study: str, name: str) -> set[int]:
    """Rounds in which the coordinator took an update of `name`, as far as it shows them to the caller."""
    found: set[int] = set()
    after: str | None = None
    while True:
        page = client.rounds(study, after)
        found |= {
            view.round
            for view in page.rounds
            for entry in view.clients or []
            if entry.client == name and entry.state == "received"
        }
        if page.next is None:
            return found
        after = page.next


def active_fingerprint(roster: Roster) -> str:
    """The fingerprint of the roster's active members, computed here."""
    active = ((member.client, member.public_key) for member in roster.members if member.state == "active")
    return roster_fingerprint(roster.study, active)


def strangers(membership: Membership, roster: Roster, own: str | None = None) -> list[str]:
    """Active members that the pin does not hold with this key; members that left need no new pin.

    own  this hospital's key as it is now: nobody has to tell it that one
    """
    if membership.pinned is None:
        return []
    known = {(member.client, member.public_key) for member in membership.pinned} | {(membership.client, own)}
    return [m.client for m in roster.members if m.state == "active" and (m.client, m.public_key) not in known]
