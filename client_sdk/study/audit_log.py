"""The audit log of a coordinator as a reader checks it: chain, signed head, and the entries that the ledger names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accounting.budget.ledger import GENESIS, Entry
from client_sdk.api.client import Client
from study_protocol.study.audit_log import AUDIT_HEAD, AuditEntry, AuditLogFault, SignedAuditHead, verify_entries
from study_protocol.wire.signing import SigningError, decode_public_key, verify_document


@dataclass(frozen=True)
class AuditLog:
    """A whole log, its signed head, and the key that the coordinator says is its own.

    fault  what the coordinator found wrong itself
    """

    study: str | None
    entries: Sequence[AuditEntry]
    signed: SignedAuditHead
    coordinator_key: str
    fault: str | None

    def faults(self, trusted_key: str, ledger: Iterable[Entry] = ()) -> list[str]:
        """Return in words what is not as the coordinator wrote it. Empty: nothing was changed or removed.

        trusted_key  the coordinator's public key
        ledger       of the study. Entries of kind `operated` name the log as it was then
        """
        faults = [] if self.fault is None else [self.fault]
        head, reached = self.signed.head, (0, GENESIS)
        try:
            reached = verify_entries(self.entries, self.study)
        except AuditLogFault as fault:
            faults.append(str(fault))
        else:
            if reached != (head.entries, head.sha256) or head.study != self.study:
                faults.append(f"the log has {reached[0]} entries, and its head names {head.entries} with another hash")
        if (fault := self._fault_of_signature(trusted_key)) is not None:
            faults.append(fault)
        return list(dict.fromkeys([*faults, *self._faults_of_ledger(ledger)]))

    def _fault_of_signature(self, trusted_key: str) -> str | None:
        begun_by_upgrade = len(self.entries) == 1 and self.entries[0].event.actor.kind == "unknown"
        if self.signed.signature is None and (begun_by_upgrade or not self.entries):
            return None
        document = self.signed.head.model_dump(mode="json")
        try:
            verify_document(decode_public_key(trusted_key), AUDIT_HEAD, document, self.signed.signature or "")
        except SigningError:
            return "the head of the log is not signed with the coordinator's key"
        return None

    def _faults_of_ledger(self, ledger: Iterable[Entry]) -> list[str]:
        hashes = {entry.sequence: entry.sha256 for entry in self.entries}
        return [
            f"ledger entry {entry.sequence} names entry {entry.body['audit_entries']} of the log, which is another one "
            "or missing"
            for entry in ledger
            if entry.kind == "operated" and hashes.get(entry.body["audit_entries"]) != entry.body["audit_sha256"]
        ]


def fetch_audit_log(client: Client, study: str | None) -> AuditLog:
    """Return the log of a study, or of what belongs to no study.

    Raises:
        UnexpectedAnswer: the pages do not follow each other.
        WardroundError: as every request.
    """
    entries: list[AuditEntry] = []
    fault: str | None = None
    while True:
        page = client.audit_log(study, entries[-1].sequence if entries else 0)
        fault = fault or page.fault
        entries += page.entries
        # Without entries a page would be asked for again and again.
        if page.next is None or not page.entries:
            return AuditLog(study, entries, page.signed, page.coordinator_key, fault)
