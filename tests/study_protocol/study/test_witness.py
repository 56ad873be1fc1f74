"""A signed head: whose it is, and how it travels."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.study.messages import LedgerHead
from study_protocol.study.witness import WITNESS_HEADER, from_header, require_witnessed, sign_head, to_header
from study_protocol.wire.signing import LEDGER_HEAD, SigningError, sign_document

KEY = Ed25519PrivateKey.generate()
HEAD = LedgerHead(study="sepsis", entries=7, sha256="a" * 64)


def test_a_signed_head_survives_its_header() -> None:
    witness = sign_head(KEY, "mercy", HEAD)
    require_witnessed(witness)
    value = to_header(witness)[WITNESS_HEADER]
    assert from_header(value, study="sepsis", client="mercy", public_key=witness.public_key) == witness
    assert sign_head(KEY, "mercy", HEAD) == witness, "signed again after a crash, it is the same"


@pytest.mark.parametrize(
    "change",
    [
        {"client": "grace"},
        {"head": HEAD.model_copy(update={"entries": 8})},
        {"head": HEAD.model_copy(update={"sha256": "b" * 64})},
        {"head": HEAD.model_copy(update={"study": "stroke"})},
        # What the coordinator signs is no witness of a hospital, even under the same key.
        {"signature": sign_document(KEY, LEDGER_HEAD, HEAD.model_dump(mode="json"))},
    ],
)
def test_nothing_else_is_covered_by_the_signature(change: dict[str, object]) -> None:
    with pytest.raises(SigningError):
        require_witnessed(sign_head(KEY, "mercy", HEAD).model_copy(update=change))


@pytest.mark.parametrize("value", ["", "7", "0." + "a" * 64 + "." + "s" * 86, "7." + "A" * 64 + "." + "s" * 86])
def test_a_header_of_another_form_is_refused(value: str) -> None:
    with pytest.raises(SigningError):
        from_header(value, study="sepsis", client="mercy", public_key="k" * 43)
