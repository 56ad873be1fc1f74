"""The checks of a coordinator by a hospital: it believes only signed entries that continue those it saw before.

It signs the entries that it saw, checked and stored, so that no two hospitals can be shown two ledgers unnoticed. The
updates that the coordinator says it took from this hospital must be in the hospital's own ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from accounting.plan.queries import QueryCost
from accounting.plan.report import moments_in, report_from_dict
from client_sdk.api.client import Client, Signature
from client_sdk.api.pages import all_rounds
from client_sdk.errors import BadAssignment, LedgerNotExtended, LostLedger, PolicyRefused, RosterNotPinned
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Membership
from client_sdk.study.entries import EntryChecks
from client_sdk.study.walk import HeadWalk, Signed
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import (
    Assignment,
    AssignmentBody,
    BudgetStatement,
    LedgerHead,
    LedgerPage,
    Roster,
    WitnessedHead,
)
from study_protocol.study.witness import require_witnessed, sign_head
from study_protocol.wire.failpoints import failpoint, register
from study_protocol.wire.signing import (
    ASSIGNMENT,
    LEDGER_HEAD,
    SigningError,
    decode_public_key,
    encode_public_key,
    roster_fingerprint,
    verify_document,
)

register("hospital.after-seen")


class CoordinatorVerifier:
    """One hospital's view of one study's coordinator.

    settings  frozen when the hospital joined. If they ask for masks, the keys for these are believed through the
              study's roster, which is then looked at in every round
    ledger    the hospital's own: it holds the coordinator's ledger as it was last seen, which only ever moves on, and
              what is known of this hospital's part
    """

    def __init__(self, client: Client, membership: Membership, settings: AnySettings, ledger: HospitalLedger) -> None:
        self._client, self._membership, self._settings_sha256 = client, membership, settings.digest()
        self._key, self._masked = decode_public_key(membership.coordinator_key), settings.privacy.masking is not None
        self._ledger, self._settings, self._seen_ledger = ledger, settings, ledger.seen_ledger(membership.study)
        account = self._seen_ledger.account
        self._exceeded = account is not None and account["exceeded"] is not None
        self._roster: tuple[str, Roster] | None = None
        self._records: float | None = None
        self._witnesses: list[WitnessedHead] | None = None

    def assignment(self, received: Assignment) -> AssignmentBody:
        """Return the assignment, if all of it is as it must be. The ledger that was seen has moved on then.

        Raises:
            BadAssignment: signature, study, client, settings, roster, or a model that the ledger does not name.
            LedgerNotExtended: the ledger is shorter than it was, rewritten, or does not hold this round's reservation.
            LedgerContradicted, LedgerForked: as `follow`.
            OwnBudgetExceeded: the study has passed one of its own limits, which refuses the round.
            RosterNotPinned: a hospital takes part that the pinned roster does not hold.
        """
        body = received.assignment
        signed = Signed(ASSIGNMENT, body.model_dump(mode="json"), received.signature)
        try:
            verify_document(self._key, signed.label, signed.document, signed.signature)
        except SigningError as error:
            raise BadAssignment("the assignment is not signed by the coordinator pinned at enrolment") from error
        if (body.study, body.client) != (self._membership.study, self._membership.client):
            raise BadAssignment("the assignment is for another study or another client")
        if body.settings_sha256 != self._settings_sha256:
            raise BadAssignment(
                "the study's settings are not those that this hospital joined under", self.shown_with(received)
            )
        # Before the ledger: it shows whose signatures are to be believed.
        roster = self.roster(body)
        checks = self.follow(body.ledger, signed, reserved_round=body.round)
        try:
            if body.query is not None:
                checks.require_asked(body.round, body.query.document)
            checks.require_models(body.model, None if body.query is None else body.query.model)
            checks.require_attempt(body.phase, body.attempt)
        except BadAssignment as error:
            error.proof = self.shown_with(received)
            raise
        if self._masked or self._membership.pinned is not None:
            self._require_pinned(roster)
        checks.require_within_limits()
        return body

    def shown_with(self, received: Assignment) -> dict[str, Any]:
        """Return the content of a proof about a round: the assignment and its session as signed, and the ledger that
        was seen."""
        entries = [entry.to_dict() for entry in self._seen_ledger.entries()]
        return {
            "round": received.model_dump(mode="json"),
            "seen": {"signed": self._seen_ledger.signed, "entries": entries},
        }

    def charge(self, round_number: int) -> tuple[int, str]:
        """Number and hash of the entry that charges a round. Raises BadAssignment: the ledger seen has none."""
        charge = self._seen_ledger.charge_of(round_number)
        if charge is None:
            raise BadAssignment(f"the ledger does not hold the charge of round {round_number}")
        return charge

    def roster(self, assignment: AssignmentBody) -> Roster:
        """The members of the round, as the coordinator shows them.

        Raises:
            BadAssignment: they are not those that the assignment names.
        """
        # One look serves while the digest stays: what it must hash to is signed in every assignment.
        if self._roster is None or self._roster[0] != assignment.roster_sha256:
            roster = self._client.roster(self._membership.study, assignment.round)
            if active_fingerprint(roster) != assignment.roster_sha256:
                raise BadAssignment("the roster shown is not the one that the assignment names")
            self._roster = assignment.roster_sha256, roster
        return self._roster[1]

    def statement(self, received: BudgetStatement) -> None:
        """Check a budget's signed ledger head, and that it extends what was seen.

        Raises:
            LedgerNotExtended: it does not, or is not signed.
            LedgerContradicted, LedgerForked: as `follow`.
        """
        sha256 = received.ledger.head.removeprefix("sha256:")
        head = LedgerHead(study=received.study, entries=received.ledger.entries, sha256=sha256)
        self._require_signed(head, received.ledger.signature)
        self.follow(head, Signed(LEDGER_HEAD, head.model_dump(mode="json"), received.ledger.signature))

    def vouch(self) -> WitnessedHead | None:
        """Return the head that was last seen, under this hospital's signature, or None without a head to vouch for.

        It is read from the disk, where only extensions come: killed before it is sent, the hospital signs the same
        bytes again, or a later head.
        """
        head, credentials = self._seen_ledger.head, self._client.credentials
        if head.sequence == 0 or self._exceeded or not isinstance(credentials, Signature):
            return None
        signed_head = LedgerHead(study=self._membership.study, entries=head.sequence, sha256=head.sha256)
        return sign_head(credentials.key, self._membership.client, signed_head)

    def total_records(self) -> float | None:
        """Return N of all clients, from the first checked entry that reports the sum, or None while none does.

        Not from a page asked for anew: a larger N makes every cost as in the papers smaller.
        """
        if self._records is None:
            settled = (entry.body["report"] for entry in self._seen_ledger.entries() if entry.kind == "settled")
            reports = (moments_in(report_from_dict(report)) for report in settled)
            self._records = next((report.records for report in reports if report and report.records is not None), None)
        return self._records

    def follow(self, head: LedgerHead, signed: Signed, *, reserved_round: int | None = None) -> EntryChecks:
        """Walk the ledger from the head last seen to this one, check every entry on the way, and keep them.

        signed  the coordinator's document that names `head`

        Returns:
            This hospital's calculation at the new head.

        Raises:
            LedgerNotExtended: as its text says.
            LedgerContradicted: an entry is not true, as far as this hospital knows.
            LedgerForked: another hospital has signed a head that is not on this ledger.
        """
        walk = HeadWalk(self._seen_ledger, head, signed)
        if head.study != self._membership.study:
            raise LedgerNotExtended("the ledger head is of another study")
        walk.require_not_shorter()
        local_round = partial(self._ledger.own_round, self._membership.study)
        checks = EntryChecks(self._membership.study, self._settings, local_round, walk.past).load(
            self._seen_ledger.account
        )
        while walk.position < head.entries:
            next_step = walk.take(self._page(walk.position))
            with walk.proving():
                for entry in next_step:
                    checks.check(entry)
        walk.require_reached()
        # The newest one, so that an assignment of an earlier round cannot come again.
        if reserved_round is not None and walk.reserved != reserved_round:
            raise LedgerNotExtended(f"the ledger does not hold the reservation of round {reserved_round}")
        trusted_heads = self._trusted_heads(walk.witnesses)
        step = walk.step(checks.to_json(), walk.compare(trusted_heads))
        if step is not None:
            # Durable before anything else: a head counts as seen also where the round is refused.
            self._seen_ledger.extend(step)
            failpoint("hospital.after-seen")
        self._exceeded = checks.exceeded
        # Of a head that was seen before a restart no page was shown.
        self._witnesses = trusted_heads if walk.paged else None
        return checks

    def require_witnesses(self, policy: SitePolicy) -> None:
        """That enough others have signed this ledger lately: a hospital alone cannot tell it from a fork.

        Raises:
            PolicyRefused: names who has not signed, and since when.
        """
        head, trusted = self._seen_ledger.head, trusted_witnesses(self._membership, self._settings)
        if policy.min_witnesses == 0 or len(recent := self._seen_ledger.reservations(policy.witness_window + 1)) <= (
            policy.witness_window
        ):
            return
        if self._witnesses is None:
            self._witnesses = self._trusted_heads(self._page(head.sequence - 1).witnesses)
        # A head beyond this one is not known to be on this ledger.
        signed = {
            (witness.client, witness.public_key): witness.head.entries
            for witness in self._witnesses
            if self._seen_ledger.hash_of(witness.head.entries) == witness.head.sha256
        }
        since, round = recent[-1]
        late = {key: signed.get(key, 0) for key in trusted if signed.get(key, 0) < since}
        if len(trusted) - len(late) >= policy.min_witnesses:
            return
        raise PolicyRefused(
            "policy-witnesses",
            f"min_witnesses = {policy.min_witnesses}, and in the last {policy.witness_window} rounds (since round "
            f"{round}, entry {since}) {len(trusted) - len(late)} others have signed this ledger. Not since then: "
            f"{_in_words(late)}. Ask them by telephone for their newest head (wardround witness export), and compare "
            "it (witness compare). An auditor signs with wardround witness sign",
        )

    def _page(self, after: int) -> LedgerPage:
        page = self._client.ledger(self._membership.study, after)
        self._require_signed(page.head.head, page.head.signature)
        return page

    def _trusted_heads(self, witnesses: Iterable[WitnessedHead]) -> list[WitnessedHead]:
        """Those whose signature and key are good. Without a pin the keys are those that the coordinator shows.

        Raises:
            LedgerNotExtended: a signature is not that of the key that stands beside it.
        """
        heads: list[WitnessedHead] = []
        for witness in witnesses:
            # Also of members that have left. Of a key that was changed since, only its owner can sign anew.
            if witness.head.study != self._membership.study or self._keys().get(witness.client) != witness.public_key:
                continue
            try:
                require_witnessed(witness)
            except SigningError as error:
                text = f"the coordinator passes on a signature as {witness.client}'s that is not"
                raise LedgerNotExtended(text) from error
            heads.append(witness)
        return heads

    def _keys(self) -> dict[str, str]:
        """Whom this hospital believes, by name."""
        outside = {witness.name: witness.public_key for witness in self._settings.schedule.witnesses}
        if self._membership.pinned is not None:
            return {member.client: member.public_key for member in self._membership.pinned} | outside
        roster = self._client.roster(self._membership.study) if self._roster is None else self._roster[1]
        return {member.client: member.public_key for member in roster.members} | outside

    def _require_signed(self, head: LedgerHead, signature: str) -> None:
        try:
            verify_document(self._key, LEDGER_HEAD, head.model_dump(mode="json"), signature)
        except SigningError as error:
            raise LedgerNotExtended("the ledger head is not signed by the coordinator that was pinned") from error

    def _require_pinned(self, roster: Roster) -> None:
        credentials = self._client.credentials
        local_key = encode_public_key(credentials.key.public_key()) if isinstance(credentials, Signature) else None
        unknown = strangers(self._membership, roster, local_key)
        if unknown:
            raise RosterNotPinned(
                f"{', '.join(unknown)}: not in the pinned roster, or with another key. Compare and pin again "
                "(wardround roster show, then roster pin), and join again"
            )


def require_known_past(client: Client, ledger: HospitalLedger, study: str, name: str, dataset: str) -> None:
    """Require every round that the coordinator took in the ledger. Answers that a crash kept out of its log are added.

    Raises:
        LostLedger: the ledger misses one.
    """
    reported = rounds_received(client, study, name)
    missing = reported - ledger.rounds_known(study)
    if missing:
        raise LostLedger(
            "lost-ledger",
            f"the coordinator holds updates of this hospital from round {min(missing)} on that the ledger of data "
            f"set {dataset!r} does not know. If a second installation sent them, stop one of the two. Otherwise "
            "restore the ledger, or accept the loss with --accept-lost-ledger",
        )
    for departure in ledger.departures(study):
        # Killed between the answer and its line in the log.
        if departure.what == "update" and departure.answer is None and departure.round in reported:
            ledger.mark_answered(study, departure.round, departure.sha256, "accepted")


def _in_words(late: Mapping[tuple[str, str], int]) -> str:
    return ", ".join(f"{name} ({f'entry {last}' if last else 'never'})" for (name, _), last in sorted(late.items()))


def rounds_received(client: Client, study: str, name: str) -> set[int]:
    """Rounds in which the coordinator took an update of `name`, as far as it shows them to the caller."""
    return {
        view.round
        for view in all_rounds(client, study)
        for entry in view.clients or []
        if entry.client == name and entry.state == "received"
    }


def active_fingerprint(roster: Roster) -> str:
    """The fingerprint of the roster's active members, computed here."""
    active = ((member.client, member.public_key) for member in roster.members if member.state == "active")
    return roster_fingerprint(roster.study, active)


def trusted_witnesses(membership: Membership, settings: AnySettings) -> frozenset[tuple[str, str]]:
    """Return (name, key) of all others whose signature on a head is believed without the coordinator."""
    pinned = () if membership.pinned is None else membership.pinned
    members = {(member.client, member.public_key) for member in pinned if member.client != membership.client}
    return frozenset(members | {(witness.name, witness.public_key) for witness in settings.schedule.witnesses})


def strangers(membership: Membership, roster: Roster, own_key: str | None = None) -> list[str]:
    """Return the active members that the pin does not hold with this key. Members that left need no new pin.

    own_key  this hospital's key as it is now, which it knows by itself
    """
    if membership.pinned is None:
        return []
    known_members = {(member.client, member.public_key) for member in membership.pinned} | {
        (membership.client, own_key)
    }
    return [m.client for m in roster.members if m.state == "active" and (m.client, m.public_key) not in known_members]


def queries_asked(client: Client, study: str) -> list[Charge]:
    """Return the cost of every query of the study, as the coordinator's ledger says."""
    charges: list[Charge] = []
    after: int | None = 0
    while after is not None:
        page = client.ledger(study, after)
        charges += [
            Charge.of_query(QueryCost.from_dict(entry.body["cost"])) for entry in page.entries if entry.kind == "asked"
        ]
        after = page.next
    return charges
