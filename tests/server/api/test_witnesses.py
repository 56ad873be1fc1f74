"""Signed heads on their way in, and as everybody may read them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.study.messages import LedgerHead, LedgerPage, Refusal, WitnessedHead
from study_protocol.study.witness import require_witnessed, sign_head, to_header
from study_protocol.wire.signing import ENROLMENT, encode_public_key, sign_document
from tests.factories.hospital_double import Hospital, update
from tests.factories.live_coordinator import Live, code_of
from tests.factories.settings import settings


def page(here: Live, study: str) -> LedgerPage:
    return LedgerPage.model_validate_json(here.operator("GET", f"/v1/studies/{study}/ledger").content)


def shown(here: Live, study: str) -> dict[str, int]:
    found = page(here, study).witnesses
    for witness in found:
        require_witnessed(witness)
    return {witness.client: witness.head.entries for witness in found}


def head(here: Live, study: str, number: int | None = None) -> LedgerHead:
    """A true one."""
    entries = page(here, study).entries
    entry = entries[-1 if number is None else number - 1]
    return LedgerHead(study=study, entries=entry.sequence, sha256=entry.sha256)


def send(here: Live, who: Hospital, round: int, witness: WitnessedHead, **headers: str) -> httpx.Response:
    path, body = f"/v1/studies/{who.study}/rounds/{round}/updates/{who.name}", update()
    token = here.token(who, "PUT", path, body)
    typed = {"Content-Type": "application/octet-stream"}
    return here.send("PUT", path, token, content=body, headers=typed | to_header(witness) | headers)


def put(here: Live, who: Hospital, signed: Any) -> httpx.Response:
    return here.signed(who, "PUT", f"/v1/studies/{who.study}/witnesses/{who.name}", signed.model_dump_json().encode())


def as_signed(witness: WitnessedHead) -> Any:
    from study_protocol.study.messages import SignedLedgerHead

    return SignedLedgerHead(head=witness.head, signature=witness.signature)


def test_an_update_and_a_refusal_carry_it(here: Live, study: str) -> None:
    north, south = here.running(study, "north", "south")
    seen = head(here, study)
    assert send(here, north, 1, sign_head(north.key, "north", seen)).status_code == 201
    path = f"/v1/studies/{study}/rounds/1/refusals/south"
    body = Refusal(code="own-limit").model_dump_json().encode()
    witness = to_header(sign_head(south.key, "south", seen))
    typed = {"Content-Type": "application/json"}
    answer = here.send("PUT", path, here.token(south, "PUT", path, body), content=body, headers=typed | witness)
    assert answer.status_code == 201
    assert shown(here, study) == {"north": seen.entries, "south": seen.entries}


def test_the_newest_stays_whatever_comes_later(here: Live, study: str) -> None:
    (north,) = here.running(study, "north", settings=settings(schedule={"min_clients": 1}))
    newest = as_signed(sign_head(north.key, "north", head(here, study)))
    assert [put(here, north, newest).status_code for _ in range(2)] == [201, 200]
    assert put(here, north, as_signed(sign_head(north.key, "north", head(here, study, 1)))).status_code == 200
    assert shown(here, study) == {"north": newest.head.entries}


@pytest.mark.parametrize(
    ("change", "code"),
    [({"sha256": "0" * 64}, (409, "unknown-head")), ({"entries": 99}, (409, "unknown-head"))],
)
def test_a_head_of_another_ledger_is_refused_and_its_update_with_it(
    here: Live, study: str, change: dict[str, Any], code: tuple[int, str]
) -> None:
    north, _ = here.running(study, "north", "south")
    other = head(here, study).model_copy(update=change)
    assert code_of(send(here, north, 1, sign_head(north.key, "north", other))) == code
    assert code_of(put(here, north, as_signed(sign_head(north.key, "north", other)))) == code
    assert shown(here, study) == {}
    # Nothing was recorded: the same update is taken with a true one.
    assert send(here, north, 1, sign_head(north.key, "north", head(here, study))).status_code == 201


def test_nobody_vouches_for_somebody_else(here: Live, study: str) -> None:
    north, south = here.running(study, "north", "south")
    seen = head(here, study)
    assert code_of(send(here, north, 1, sign_head(south.key, "north", seen))) == (401, "bad-signature")
    assert code_of(send(here, north, 1, sign_head(south.key, "south", seen))) == (401, "bad-signature")
    path = f"/v1/studies/{study}/witnesses/south"
    body = as_signed(sign_head(south.key, "south", seen)).model_dump_json().encode()
    assert code_of(here.signed(north, "PUT", path, body)) == (403, "forbidden")
    assert shown(here, study) == {}


def test_a_head_of_another_study_or_a_header_of_another_form_is_refused(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    seen = head(here, study)
    other = sign_head(north.key, "north", seen.model_copy(update={"study": "stroke"}))
    assert code_of(put(here, north, as_signed(other))) == (422, "invalid-request")
    # The header names no study: the signature does.
    assert code_of(send(here, north, 1, other)) == (401, "bad-signature")
    bent = {"Wardround-Witness": "7.abc.def"}
    assert code_of(send(here, north, 1, sign_head(north.key, "north", seen), **bent)) == (422, "invalid-request")


def test_after_a_key_is_changed_the_same_head_is_signed_anew(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    seen = head(here, study)
    assert put(here, north, as_signed(sign_head(north.key, "north", seen))).status_code == 201
    successor = Ed25519PrivateKey.generate()
    public = encode_public_key(successor.public_key())
    proof = sign_document(successor, ENROLMENT, {"client": "north", "study": study, "key": public})
    body = f'{{"public_key": "{public}", "proof": "{proof}"}}'.encode()
    assert (
        here.signed(
            north, "PUT", f"/v1/studies/{study}/clients/north/key", body, token_id="the-rotation-of-north"
        ).status_code
        == 200
    )
    # Whoever looks sees which key it is under.
    assert page(here, study).witnesses[0].public_key == north.public_key != public
    old, north.key = north.key, successor
    assert code_of(put(here, north, as_signed(sign_head(old, "north", seen)))) == (401, "bad-signature")
    assert put(here, north, as_signed(sign_head(successor, "north", seen))).status_code == 201
    assert page(here, study).witnesses[0].public_key == public


def test_what_a_hospital_signed_before_it_was_put_out_stays(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    seen = head(here, study)
    assert put(here, north, as_signed(sign_head(north.key, "north", seen))).status_code == 201
    assert here.operator("PUT", f"/v1/studies/{study}/clients/north/revoked").status_code == 200
    assert code_of(put(here, north, as_signed(sign_head(north.key, "north", seen)))) == (403, "revoked")
    assert shown(here, study) == {"north": seen.entries}


def test_where_sampling_is_credited_no_signature_shows_who_was_drawn(here: Live, study: str) -> None:
    # The study ends before the first signature where all of its three rounds draw nobody: with probability 1e-6.
    secret = settings("client", client_sampling_rate=0.9, schedule={"min_clients": 0})
    here.open_study(study, secret)
    north, south = (here.enrol(study, name) for name in ("north", "south"))
    assert here.operator("POST", f"/v1/studies/{study}/start").status_code == 200
    here.work()
    for who in (north, south):
        assert put(here, who, as_signed(sign_head(who.key, who.name, head(here, study)))).status_code == 201
    assert shown(here, study) == {}
    assert here.operator("POST", f"/v1/studies/{study}/stop").status_code == 200
    # South does not sign the end: that it signed an earlier entry would tell its last round.
    last = head(here, study)
    assert put(here, north, as_signed(sign_head(north.key, "north", last))).status_code == 201
    assert shown(here, study) == {"north": last.entries}
