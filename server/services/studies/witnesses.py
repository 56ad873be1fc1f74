"""Witnesses of the ledger in requests of their own: hospitals after the study's end, auditors at any time."""

from __future__ import annotations

from server.db import rows
from server.db.session import Transaction
from server.db.witness_store import keep_witness
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator, Written
from study_protocol.study.messages import SignedLedgerHead, WitnessedHead


def put(coordinator: Coordinator, study: str, client: str, signed: SignedLedgerHead) -> Written[WitnessedHead]:
    """Keep the signed head of a client. Repeatable. created is False if this head, or a later one, is kept already.

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


def put_outside(coordinator: Coordinator, study: str, name: str, signed: SignedLedgerHead) -> Written[WitnessedHead]:
    """Keep, as `put`, the head of a witness that the study's settings name. The signature identifies it, not the
    sender.

    Raises:
        Rejected: `unknown-study`, `unknown-witness`, `unknown-head`, `invalid-request` (a head of another study).
        SigningError: the signature is not that of the witness.
    """
    if signed.head.study != study:
        raise Rejected("invalid-request", "the signed head is another study's")

    def work(tx: Transaction) -> Written[WitnessedHead]:
        row = rows.lock_study(tx, study)
        keys = {outside.name: outside.public_key for outside in rows.settings_of(row).schedule.witnesses}
        if name not in keys:
            raise Rejected("unknown-witness", "the study's settings name no outside witness of this name")
        witness = WitnessedHead(client=name, public_key=keys[name], head=signed.head, signature=signed.signature)
        return Written(witness, created=keep_witness(tx, row.id, witness))

    return coordinator.database.write("put-outside-witness", work)
