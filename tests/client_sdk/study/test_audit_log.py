"""The reader's own check of an audit log: chain, signed head, the ledger, and the list of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import GENESIS, Entry
from client_sdk.api.client import Client
from client_sdk.study.audit_log import AuditLog, fetch_audit_log, fetch_coordinator_log
from study_protocol.study.audit_log import (
    AUDIT_HEAD,
    BEFORE_THE_LOG,
    Actor,
    AuditEntry,
    AuditEvent,
    AuditHead,
    AuditPage,
    SignedAuditHead,
    next_entry,
)
from study_protocol.study.people import ApiKeyList, ApiKeyView, GivenKey
from study_protocol.wire.signing import encode_public_key, sign_document

COORDINATOR = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = encode_public_key(COORDINATOR.public_key())
AT = datetime(2026, 11, 27, 12, tzinfo=UTC)
ADA = Actor(kind="key", id="4f1c9b", name="Ada", role="administrator")
GIVEN = GivenKey(id="11aa", role="viewer", study="sepsis", name="Grace", expires_in_days=30)
CREATED = AuditEvent(at=AT, actor=ADA, action="create_key", address="/v1/api-keys", key=GIVEN)
REVOKED = AuditEvent(at=AT, actor=ADA, action="revoke_key", address="/v1/api-keys/11aa")
UPGRADED = AuditEvent(at=AT, actor=Actor(kind="unknown", name=""), action=BEFORE_THE_LOG)
INVITED = AuditEvent(at=AT, actor=ADA, action="invite", address="/v1/studies/sepsis/invitations")
LISTED = ApiKeyView(
    id="11aa",
    role="viewer",
    study="sepsis",
    name="Grace",
    key=None,
    created_at=AT,
    expires_at=AT + timedelta(days=30),
    revoked_at=None,
)


def log(study: str | None, *events: AuditEvent, signer: Ed25519PrivateKey | None = COORDINATOR) -> AuditLog:
    entries: list[AuditEntry] = []
    last = (0, GENESIS)
    for event in events:
        entries.append(next_entry(study, last, event))
        last = (entries[-1].sequence, entries[-1].sha256)
    head = AuditHead(study=study, entries=last[0], sha256=last[1])
    signature = None if signer is None else sign_document(signer, AUDIT_HEAD, head.model_dump(mode="json"))
    return AuditLog(study, entries, SignedAuditHead(head=head, signature=signature), KEY, None)


def test_a_log_as_it_was_written_has_no_fault() -> None:
    assert log("sepsis", INVITED, INVITED).faults(KEY) == []
    assert log(None, CREATED).faults(KEY, keys=[LISTED]) == []
    assert log("sepsis", UPGRADED, signer=None).faults(KEY) == []
    assert log(None, signer=None).faults(KEY) == []


def test_the_end_cut_off_is_found_by_the_head() -> None:
    whole = log("sepsis", INVITED, INVITED)
    (fault,) = replace(whole, entries=whole.entries[:1]).faults(KEY)
    assert fault == "the log has 1 entries, and its head names 2 with another hash"


def test_a_head_of_another_key_or_log_or_none_is_found() -> None:
    stranger = Ed25519PrivateKey.generate()
    unsigned = "the head of the log is not signed with the coordinator's key"
    assert log("sepsis", INVITED, signer=stranger).faults(KEY) == [unsigned]
    assert log("sepsis", INVITED, signer=None).faults(KEY) == [unsigned]
    # Only the entry of an upgrade stands without a signature.
    assert log("sepsis", UPGRADED, INVITED, signer=None).faults(KEY) == [unsigned]
    other = replace(log("sepsis", INVITED), signed=log("icu", INVITED).signed)
    assert other.faults(KEY) != []


def _operated(sequence: int, entry: AuditEntry | None) -> Entry:
    body = {"audit_entries": 9 if entry is None else entry.sequence, "audit_sha256": "c" * 64}
    return Entry(sequence, "operated", None, body if entry is None else body | {"audit_sha256": entry.sha256}, "", "")


def test_a_log_set_back_with_its_head_is_found_by_the_ledger() -> None:
    """An earlier state of both tables is signed as well. The ledger's entries were not set back."""
    now, earlier = log("sepsis", INVITED, INVITED), log("sepsis", INVITED)
    ledger = [_operated(2, now.entries[0]), _operated(3, now.entries[1])]
    assert now.faults(KEY, ledger) == []
    (fault,) = earlier.faults(KEY, ledger)
    assert fault.startswith("ledger entry 3 names entry 2 of the log")


WRONG_KEYS: dict[str, dict[str, Any]] = {
    "role": {"role": "lead"},
    "study": {"study": None},
    "name": {"name": "Eve"},
    "no expiry": {"expires_at": None},
    "later expiry": {"expires_at": AT + timedelta(days=31)},
    "made later": {"created_at": AT + timedelta(days=1), "expires_at": AT + timedelta(days=31)},
    "not in the log": {"id": "22bb"},
}


@pytest.mark.parametrize("change", WRONG_KEYS)
@pytest.mark.parametrize("first", [CREATED, UPGRADED], ids=["new", "upgraded"])
def test_a_key_changed_in_the_database_is_found(first: AuditEvent, change: str) -> None:
    changed = LISTED.model_copy(update=WRONG_KEYS[change])
    (fault,) = log(None, first, CREATED).faults(KEY, keys=[changed])
    assert fault.endswith("is not as an entry of the log made it")


def test_a_key_from_before_an_upgrade_is_no_fault() -> None:
    old = LISTED.model_copy(update={"id": "22bb", "expires_at": None, "study": None, "name": ""})
    assert log(None, UPGRADED, signer=None).faults(KEY, keys=[old]) == []
    # A log that began by itself names all keys.
    assert len(log(None, CREATED).faults(KEY, keys=[old])) == 1
    later = old.model_copy(update={"created_at": AT + timedelta(seconds=2)})
    assert len(log(None, UPGRADED, signer=None).faults(KEY, keys=[later])) == 1


def test_a_revocation_taken_back_is_found() -> None:
    revoked = LISTED.model_copy(update={"revoked_at": AT})
    assert log(None, CREATED, REVOKED).faults(KEY, keys=[revoked]) == []
    (fault,) = log(None, CREATED, REVOKED).faults(KEY, keys=[LISTED])
    assert fault == "the key 11aa of Grace is valid, and the log says that it is revoked"


class Pages:
    """A coordinator that answers with pages of two entries, and makes a key after each list of keys."""

    def __init__(self, whole: AuditLog) -> None:
        self._whole, self._lists = whole, 0

    def audit_log(self, study: str | None, after: int = 0) -> AuditPage:
        entries: Sequence[AuditEntry] = self._whole.entries[after : after + 2]
        more = after + 2 < len(self._whole.entries)
        following = entries[-1].sequence if more and entries else None
        return AuditPage(entries=[*entries], signed=self._whole.signed, coordinator_key=KEY, next=following)

    def api_keys(self) -> ApiKeyList:
        self._lists += 1
        made = [LISTED.model_copy(update={"id": f"{number}"}) for number in range(self._lists)]
        return ApiKeyList(keys=made)


def test_all_pages_are_asked_for() -> None:
    whole = log("sepsis", INVITED, INVITED, INVITED, INVITED, INVITED)
    assert fetch_audit_log(cast(Client, Pages(whole)), "sepsis") == whole


def test_keys_made_meanwhile_wait_for_the_next_check() -> None:
    fetched, keys = fetch_coordinator_log(cast(Client, Pages(log(None, CREATED))))
    assert fetched.entries[0].event == CREATED
    assert [key.id for key in keys] == ["0"]
