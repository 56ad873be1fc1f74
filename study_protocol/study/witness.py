"""Hospitals as witnesses of the coordinator's ledger: the signed head, and the header that carries it.

A head fixes every entry before it. Two heads that do not lie on one chain, each signed by a hospital, prove that the
coordinator showed two ledgers.
"""

from __future__ import annotations

import re

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.study.messages import LedgerHead, WitnessedHead
from study_protocol.wire.signing import (
    LEDGER_WITNESS,
    SigningError,
    decode_public_key,
    encode_public_key,
    sign_document,
    verify_document,
)

# In a request that is sent anyway: `<entries>.<hash>.<signature>`, by the client that the request names.
WITNESS_HEADER = "Wardround-Witness"
WITNESS_PATTERN = r"^[1-9][0-9]{0,15}\.[0-9a-f]{64}\.[A-Za-z0-9_-]{86}$"


def sign_head(key: Ed25519PrivateKey, client: str, head: LedgerHead) -> WitnessedHead:
    """Vouch for a head as `client`. The caller has stored the head durably, and it extends what was signed before."""
    # Ed25519 is deterministic: a program that was killed before sending signs the same bytes again.
    signature = sign_document(key, LEDGER_WITNESS, _document(client, head))
    return WitnessedHead(client=client, public_key=encode_public_key(key.public_key()), head=head, signature=signature)


def require_witnessed(witness: WitnessedHead) -> None:
    """Check that the signature is that of the key beside it. The roster says whose key this is.

    Raises:
        SigningError: it is not.
    """
    document = _document(witness.client, witness.head)
    verify_document(decode_public_key(witness.public_key), LEDGER_WITNESS, document, witness.signature)


def to_header(witness: WitnessedHead) -> dict[str, str]:
    """Return the header's name and value."""
    return {WITNESS_HEADER: f"{witness.head.entries}.{witness.head.sha256}.{witness.signature}"}


def from_header(value: str, *, study: str, client: str, public_key: str) -> WitnessedHead:
    """Return the inverse of `to_header`, for the client whose request this is.

    Raises:
        SigningError: not of this form.
    """
    if re.fullmatch(WITNESS_PATTERN, value) is None:
        raise SigningError("bad-signature", f"{WITNESS_HEADER} is <entries>.<hash>.<signature>")
    entries, sha256, signature = value.split(".")
    head = LedgerHead(study=study, entries=int(entries), sha256=sha256)
    return WitnessedHead(client=client, public_key=public_key, head=head, signature=signature)


def _document(client: str, head: LedgerHead) -> dict[str, str | int]:
    return {"client": client, **head.model_dump(mode="json")}
