"""Signed heads: the newest of each witness stays, and none that is not on this ledger."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from server.db.ledger_store import entries
from server.db.rows import find_study
from server.db.session import Transaction
from server.db.witness_store import keep_header, keep_witness, witnesses
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from study_protocol.study.messages import LedgerHead, WitnessedHead
from study_protocol.study.witness import WITNESS_HEADER, sign_head, to_header
from study_protocol.wire.signing import SigningError
from tests.factories.hospital_double import Hospital
from tests.factories.studies import open_study, work

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def hospital(coordinator: Coordinator) -> Hospital:
    return open_study(coordinator, clients=2)[0]


def head(coordinator: Coordinator, entry: int = -1) -> LedgerHead:
    """A true one."""
    found = coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "sepsis").id, 0, 100))[entry]
    return LedgerHead(study="sepsis", entries=found.sequence, sha256=found.sha256)


def keep(coordinator: Coordinator, witness: WitnessedHead) -> bool:
    return coordinator.database.write("keep", lambda tx: keep_witness(tx, find_study(tx, "sepsis").id, witness))


def kept(coordinator: Coordinator) -> list[WitnessedHead]:
    return coordinator.database.read("kept", lambda tx: witnesses(tx, find_study(tx, "sepsis")))


def test_the_newest_stays_and_a_repetition_is_no_news(coordinator: Coordinator, hospital: Hospital) -> None:
    older = sign_head(hospital.key, "h0", head(coordinator))
    assert [keep(coordinator, older), keep(coordinator, older)] == [True, False]
    # A round is reserved, which is one more entry.
    work(coordinator)
    newer = sign_head(hospital.key, "h0", head(coordinator))
    assert newer.head.entries > older.head.entries
    assert [keep(coordinator, newer), keep(coordinator, older)] == [True, False]
    assert kept(coordinator) == [newer]


def test_under_another_key_the_same_head_is_news(coordinator: Coordinator, hospital: Hospital) -> None:
    assert keep(coordinator, sign_head(hospital.key, "h0", head(coordinator)))
    again = sign_head(Ed25519PrivateKey.generate(), "h0", head(coordinator))
    assert keep(coordinator, again)
    assert kept(coordinator) == [again]


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"entries": 2}, {"entries": 2**53 - 1}])
def test_a_head_that_is_not_on_this_ledger_is_never_passed_on(
    coordinator: Coordinator, hospital: Hospital, change: dict[str, object]
) -> None:
    strange = head(coordinator).model_copy(update=change)
    with pytest.raises(Rejected, match="unknown-head"):
        keep(coordinator, sign_head(hospital.key, "h0", strange))
    assert kept(coordinator) == []


def test_a_signature_is_that_of_the_key_beside_it(coordinator: Coordinator, hospital: Hospital) -> None:
    signed = sign_head(hospital.key, "h0", head(coordinator))
    with pytest.raises(SigningError):
        keep(coordinator, signed.model_copy(update={"client": "h1"}))


def test_a_header_is_held_to_the_key_of_who_sends_it(coordinator: Coordinator, hospital: Hospital) -> None:
    signed = sign_head(hospital.key, "h0", head(coordinator))
    header = to_header(signed)[WITNESS_HEADER]

    def sent_by(client: str, value: str | None) -> None:
        coordinator.database.write("header", lambda tx: _keep_header(tx, client, value))

    sent_by("h0", None)
    assert kept(coordinator) == []
    with pytest.raises(SigningError):
        sent_by("h1", header)
    sent_by("h0", header)
    assert kept(coordinator) == [signed]


def _keep_header(tx: Transaction, client: str, value: str | None) -> None:
    keep_header(tx, find_study(tx, "sepsis"), client, value)
