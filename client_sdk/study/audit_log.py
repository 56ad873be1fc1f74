"""The audit log of a coordinator as a reader checks it: chain, signed head, and what ledger and list of keys say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from accounting.budget.ledger import GENESIS, Entry
from client_sdk.api.client import Client
from study_protocol.study.audit_log import (
    AUDIT_HEAD,
    BEFORE_THE_LOG,
    AuditEntry,
    AuditLogFault,
    SignedAuditHead,
    verify_entries,
)
from study_protocol.study.people import ApiKeyView
from study_protocol.wire.signing import SigningError, decode_public_key, verify_document

# Times of the database are floating-point seconds, and an upgrade writes whole ones.
_NEAR = timedelta(seconds=1)


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

    def faults(self, trusted_key: str, ledger: Iterable[Entry] = (), keys: Iterable[ApiKeyView] = ()) -> list[str]:
        """Return in words what is not as the coordinator wrote it. Empty: all is as it was written.

        trusted_key  the coordinator's public key
        ledger       of the study. Entries of kind `operated` name the log as it was then
        keys         of the coordinator, as its list shows them. Only its own log says who made them
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
        return list(dict.fromkeys([*faults, *self._faults_of_ledger(ledger), *self._faults_of_keys(keys)]))

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

    def _faults_of_keys(self, keys: Iterable[ApiKeyView]) -> list[str]:
        entry_of_key = {entry.event.key.id: entry for entry in self.entries if entry.event.key is not None}
        revoked = {entry.event.address for entry in self.entries if entry.event.action == "revoke_key"}
        faults: list[str] = []
        for key in keys:
            words = f"the key {key.id} of {key.name or 'no name'}"
            if not self._is_as_made(key, entry_of_key.get(key.id)):
                faults.append(f"{words} is not as an entry of the log made it")
            if key.revoked_at is None and f"/v1/api-keys/{key.id}" in revoked:
                faults.append(f"{words} is valid, and the log says that it is revoked")
        return faults

    def _is_as_made(self, key: ApiKeyView, entry: AuditEntry | None) -> bool:
        if entry is None or entry.event.key is None:
            return self._is_from_before(key)
        named_key = entry.event.key
        expires_at = key.created_at + timedelta(days=named_key.expires_in_days)
        compared_fields = ("role", "study", "name", "secret_sha256")
        return (
            all(getattr(key, name) == getattr(named_key, name) for name in compared_fields)
            and abs(key.created_at - entry.event.at) < _NEAR
            and key.expires_at is not None
            and abs(key.expires_at - expires_at) < _NEAR
        )

    def _is_from_before(self, key: ApiKeyView) -> bool:
        """Return whether the key may be from before the upgrade that began this log."""
        first = self.entries[0].event if self.entries else None
        if first is None or first.action != BEFORE_THE_LOG or key.created_at >= first.at + _NEAR:
            return False
        return key.expires_at is None and key.study is None and key.role in ("administrator", "viewer")


def fetch_coordinator_log(client: Client) -> tuple[AuditLog, list[ApiKeyView]]:
    """Return the coordinator's own log, and the keys to compare it with.

    Raises:
        As `fetch_audit_log`.
    """
    # First: it names the role that this log needs.
    client.audit_log(None)
    # Twice: keys that were made or revoked meanwhile are compared the next time.
    earlier = {key.id for key in client.api_keys().keys}
    log = fetch_audit_log(client, None)
    return log, [key for key in client.api_keys().keys if key.id in earlier]


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
