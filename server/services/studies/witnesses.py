"""A hospital vouches for the ledger in a request of its own: after the study's end, when no update follows."""

from __future__ import annotations

from client_sdk.protocol.study.messages import SignedLedgerHead, WitnessedHead
from server.db import rows
from server.db.session import Transaction
from server.db.witness_store import keep_witness
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator, Written


def put(coordinator: Coordinator, study: str, client: str, signed: SignedLedgerHead) -> Written[WitnessedHead]:
    """Repeatable; created False where this head of the client, or a later one, is kept already.

    Raises:
        Rejected: `unknown-study`, `not-enrolled`, `unknown-client`, `unknown-head`, `invalid-request` (a head of
            another study).
        SigningError: the signature is not the client's.
    """
    if signed.head.study != study:
        raise Rejected("invalid-request", "the signed head is another study's")

    def work(tx: Transaction) -> Written[WitnessedHead]:
        row = rows.lock_study(tx, study)
        key = rows.known_client(tx, row.id, client).public_key
        witness = WitnessedHead(client=client, public_key=key, head=signed.head, signature=signed.signature)
        return Written(witness, created=keep_witness(tx, row.id, witness))

    return coordinator.database.write("put-witness", work)
