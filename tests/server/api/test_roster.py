"""Members and their keys: what is compared out of band, and who may change it."""

from __future__ import annotations

import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.wire.signing import ENROLMENT, encode_public_key, roster_fingerprint, sign_document
from tests.factories.live_coordinator import Live, code_of
from tests.factories.settings import TASK_PARAMETERS, settings

MAY_LACK = TASK_PARAMETERS | {"column.rate": "0..10; missing=1; site-may-lack"}


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


def test_a_hospital_tells_of_itself_alone_and_every_reader_sees_it(
    here: Live,
) -> None:
    here.open_study("lacking", settings(training={"task_parameters": MAY_LACK}))
    north, south = (here.enrol("lacking", name) for name in ("north", "south"))
    path, body = "/v1/studies/lacking/clients/north/lacking-columns", json.dumps({"columns": ["rate"]}).encode()
    for _ in range(2):
        assert here.signed(north, "PUT", path, body).json() == {"columns": ["rate"]}
    assert code_of(here.signed(south, "PUT", path, body)) == (403, "forbidden")
    assert code_of(here.operator("PUT", path, content=body)) == (403, "forbidden")
    for wrong in (b"{}", b'{"columns": ["rate", "rate"]}', b'{"columns": ["nothing"]}', b'{"columns": [1]}', b"["):
        assert code_of(here.signed(north, "PUT", path, wrong))[1] == "invalid-request"
    shown = {
        "study": "lacking",
        "hospitals": [{"columns": ["rate"], "client": "north"}, {"columns": None, "client": "south"}],
    }
    listed = "/v1/studies/lacking/lacking-columns"
    assert here.signed(south, "GET", listed).json() == shown
    assert here.send("GET", listed, here.viewer_key).json() == shown
    # The roster that hospitals pin is as it was.
    roster = here.signed(south, "GET", "/v1/studies/lacking/roster").json()
    assert {name for member in roster["members"] for name in member} == {"client", "public_key", "state"}
