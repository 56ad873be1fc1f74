import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.wire.signing import (
    ClockSkew,
    SigningError,
    claimed_identity,
    decode_public_key,
    encode_public_key,
    fingerprint,
    request_token,
    roster_fingerprint,
    sign_document,
    verify_document,
    verify_request_token,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
NOW = 1_800_000_000.25
REQUEST = {"audience": "https://c.example", "method": "PUT", "url": "https://c.example/v1/studies/s?x=1"}


def token(key=KEY, now=NOW, **changes):
    fields = {**REQUEST, "client": "north", "study": "s", "body_sha256": "ab" * 32, **changes}
    return request_token(key, now=now, **fields)


def verify(text, now=NOW, **changes):
    return verify_request_token(text, KEY.public_key(), now=now, **{**REQUEST, **changes})


def test_a_good_token_tells_who_and_what():
    claims = verify(token(token_id="j" * 20))
    assert (claims.client, claims.study, claims.body_sha256, claims.token_id) == ("north", "s", "ab" * 32, "j" * 20)
    assert claimed_identity(token()) == ("north", "s")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (token(key=OTHER), "bad-signature"),
        (token(audience="https://d.example"), "wrong-target"),
        (token(method="POST"), "wrong-target"),
        (token(url="https://c.example/v1/studies/t"), "wrong-target"),
        (token(token_id="short"), "bad-token"),
        ("not.a.token", "bad-token"),
        ("", "bad-token"),
        (jwt.encode({"iss": "north"}, KEY, algorithm="EdDSA"), "bad-token"),
        (jwt.encode({"iss": "north", "sub": "s"}, "k" * 32, algorithm="HS256"), "bad-token"),
        (jwt.encode({"iss": "north", "sub": "s"}, None, algorithm="none"), "bad-token"),
    ],
    ids=[
        "another key",
        "another audience",
        "another method",
        "another address",
        "short id",
        "no token",
        "empty",
        "no claims",
        "HS256",
        "unsigned",
    ],
)
def test_every_other_token_is_refused_by_code(text, code):
    with pytest.raises(SigningError) as refused:
        verify(text)
    assert refused.value.code == code


@pytest.mark.parametrize("seconds", [-120, 62, 10**6])
def test_a_skewed_clock_is_answered_with_the_servers_time(seconds):
    with pytest.raises(ClockSkew) as refused:
        verify(token(), now=NOW + seconds)
    assert refused.value.server_time == NOW + seconds


def test_a_token_may_not_live_longer_than_a_minute():
    claims = jwt.decode(token(), options={"verify_signature": False})
    claims["exp"] = claims["iat"] + 61
    with pytest.raises(ClockSkew):
        verify(jwt.encode(claims, KEY, algorithm="EdDSA"))


DOCUMENTS = st.dictionaries(st.text(max_size=4), st.integers(-(2**53), 2**53) | st.text(max_size=4), max_size=4)


@given(DOCUMENTS, DOCUMENTS)
def test_a_signature_holds_for_its_document_and_label_only(document, other):
    signature = sign_document(KEY, "a", document)
    verify_document(KEY.public_key(), "a", dict(reversed(document.items())), signature)
    wrong = [("b", document, signature), ("a", document, signature[:-2]), ("a", document, "!"), ("a", document, "")]
    if other != document:
        wrong.append(("a", other, signature))
    for label, text, mark in wrong:
        with pytest.raises(SigningError):
            verify_document(KEY.public_key(), label, text, mark)
    with pytest.raises(SigningError):
        verify_document(OTHER.public_key(), "a", document, signature)


def test_keys_come_back_and_only_canonical_text_is_a_key():
    text = encode_public_key(KEY.public_key())
    assert fingerprint(decode_public_key(text)) == fingerprint(KEY.public_key())
    for wrong in (text + "=", text[:-1], text + "A", "", "*" * 43, text[:-1] + chr(ord(text[-1]) + 1)):
        with pytest.raises(SigningError):
            decode_public_key(wrong)


def test_the_roster_is_a_set_of_one_study():
    members = [("north", "k1"), ("south", "k2")]
    assert roster_fingerprint("s", members) == roster_fingerprint("s", reversed(members))
    assert (
        len({roster_fingerprint("s", members), roster_fingerprint("t", members), roster_fingerprint("s", members[:1])})
        == 3
    )
