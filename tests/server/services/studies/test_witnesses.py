"""Signed heads in requests of their own: of hospitals, and of the witnesses that the settings name."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.studies import enrolment
from server.services.studies.witnesses import put, put_outside
from study_protocol.study.messages import SignedLedgerHead, WitnessedHead
from study_protocol.study.witness import sign_head
from study_protocol.wire.signing import SigningError, encode_public_key
from tests.factories.hospital_double import Hospital
from tests.factories.settings import settings
from tests.factories.studies import open_study

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
AUDITOR = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


@pytest.fixture
def hospitals(coordinator: Coordinator) -> list[Hospital]:
    outside = {"name": "auditor", "public_key": encode_public_key(AUDITOR.public_key())}
    chosen = settings(schedule={"min_clients": 2, "round_deadline_seconds": 600.0, "witnesses": [outside]})
    return open_study(coordinator, clients=2, settings=chosen)


def signed(coordinator: Coordinator, key: Ed25519PrivateKey, name: str, **changes: object) -> SignedLedgerHead:
    head = ledger_page(coordinator, "sepsis").head.head.model_copy(update=changes)
    return SignedLedgerHead(head=head, signature=sign_head(key, name, head).signature)


def shown(coordinator: Coordinator) -> list[WitnessedHead]:
    return ledger_page(coordinator, "sepsis").witnesses


def test_hospitals_and_the_named_witness_vouch_and_may_repeat_it(
    coordinator: Coordinator, hospitals: list[Hospital]
) -> None:
    of_hospital, of_auditor = (
        signed(coordinator, key, name) for key, name in ((hospitals[1].key, "h1"), (AUDITOR, "auditor"))
    )
    assert [put(coordinator, "sepsis", "h1", of_hospital).created for _ in range(2)] == [True, False]
    assert [put_outside(coordinator, "sepsis", "auditor", of_auditor).created for _ in range(2)] == [True, False]
    assert [(one.client, one.public_key) for one in shown(coordinator)] == [
        ("auditor", encode_public_key(AUDITOR.public_key())),
        ("h1", hospitals[1].public_key),
    ]


def test_who_has_left_may_still_vouch(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    enrolment.withdraw(coordinator, "sepsis", "h0")
    assert put(coordinator, "sepsis", "h0", signed(coordinator, hospitals[0].key, "h0")).created


def test_strangers_and_other_ledgers_are_refused(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    key = hospitals[0].key
    for code, ask in {
        "unknown-client": lambda: put(coordinator, "sepsis", "h9", signed(coordinator, key, "h9")),
        "unknown-study": lambda: put(coordinator, "none", "h0", signed(coordinator, key, "h0", study="none")),
        "invalid-request": lambda: put(coordinator, "sepsis", "h0", signed(coordinator, key, "h0", study="other")),
        "unknown-head": lambda: put(coordinator, "sepsis", "h0", signed(coordinator, key, "h0", sha256="0" * 64)),
        "unknown-witness": lambda: put_outside(coordinator, "sepsis", "h0", signed(coordinator, key, "h0")),
    }.items():
        with pytest.raises(Rejected) as refused:
            ask()
        assert refused.value.code == code
    with pytest.raises(Rejected, match="invalid-request"):
        put_outside(coordinator, "sepsis", "auditor", signed(coordinator, AUDITOR, "auditor", study="other"))
    # A hospital's key is not the auditor's, nor the other's.
    with pytest.raises(SigningError):
        put_outside(coordinator, "sepsis", "auditor", signed(coordinator, key, "auditor"))
    with pytest.raises(SigningError):
        put(coordinator, "sepsis", "h1", signed(coordinator, key, "h1"))
    assert shown(coordinator) == []
