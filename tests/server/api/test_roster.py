"""Members and their keys: what is compared out of band, and who may change it."""

from __future__ import annotations

import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.wire.signing import ENROLMENT, encode_public_key, roster_fingerprint, sign_document
from tests.factories.live_coordinator import Live, code_of


def test_the_roster_has_the_fingerprint_that_hospitals_compute(here: Live, study: str) -> None:
    here.open_study(study)
    hospitals = [here.enrol(study, name) for name in ("north", "south")]
    pairs = [(who.name, encode_public_key(who.key.public_key())) for who in hospitals]
    shown = here.signed(hospitals[0], "GET", f"/v1/studies/{study}/roster").json()
    assert shown["fingerprint"] == roster_fingerprint(study, pairs)
    here.operator("PUT", f"/v1/studies/{study}/clients/south/revoked")
    shown = here.signed(hospitals[0], "GET", f"/v1/studies/{study}/roster").json()
    assert shown["fingerprint"] == roster_fingerprint(study, pairs[:1])


def test_a_key_is_rotated_by_its_owner(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    new = Ed25519PrivateKey.generate()
    public = encode_public_key(new.public_key())
    proof = sign_document(new, ENROLMENT, {"client": "north", "study": study, "key": public})
    body = json.dumps({"public_key": public, "proof": proof}).encode()
    path = f"/v1/studies/{study}/clients/north/key"
    assert here.signed(who, "PUT", path, body, token_id="from-one-key-to-the-next").json()["public_key"] == public
    assert code_of(here.signed(who, "GET", f"/v1/studies/{study}/budget")) == (401, "bad-signature")
    who.key = new
    assert here.signed(who, "GET", f"/v1/studies/{study}/budget").status_code == 200


def test_a_revoked_client_is_out(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "west")
    for _ in range(2):
        assert here.operator("PUT", f"/v1/studies/{study}/clients/west/revoked").json()["state"] == "revoked"
    assert code_of(here.signed(who, "GET", f"/v1/studies/{study}/budget")) == (403, "revoked")
