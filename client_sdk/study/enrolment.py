"""From an invitation token to a membership, with the coordinator's key pinned by the token itself."""

from __future__ import annotations

import re

from client_sdk.api.client import Client
from client_sdk.errors import ConfigurationError, NotTrusted
from client_sdk.identity import Identity, Membership
from client_sdk.protocol.study.messages import EnrolmentRequest
from client_sdk.protocol.wire.failpoints import failpoint, register
from client_sdk.protocol.wire.signing import ENROLMENT, SigningError, decode_public_key, fingerprint, sign_document

register("hospital.before-enrolment", "hospital.after-enrolment")

# wri_<id>_<secret>_<fingerprint>; a secret in base64url may hold underscores itself.
_TOKEN = re.compile(r"wri_([A-Za-z0-9-]+)_([A-Za-z0-9_-]+)_([0-9a-f]{64})")


def enrol(client: Client, identity: Identity, token: str) -> Membership:
    """Enrol and check that the answer comes from the coordinator that made the token.

    Raises:
        ConfigurationError: not an invitation token. The text does not repeat it.
        NotTrusted: another coordinator answered.
        ApiError: `invitation-unknown`, `invitation-used` (with another key), `invitation-expired`.
    """
    parts = _TOKEN.fullmatch(token.strip())
    if parts is None:
        raise ConfigurationError("an invitation token has the form wri_<id>_<secret>_<fingerprint>: copy all of it")
    invitation, _, expected = parts.groups()
    proof = sign_document(identity.key, ENROLMENT, {"invitation": invitation, "key": identity.public_key})
    failpoint("hospital.before-enrolment")
    answer = client.enrol(EnrolmentRequest(token=token.strip(), public_key=identity.public_key, proof=proof))
    failpoint("hospital.after-enrolment")
    try:
        found = fingerprint(decode_public_key(answer.coordinator_key))
    except SigningError as error:
        raise NotTrusted("the coordinator's key is not a key") from error
    if found != expected:
        raise NotTrusted("the coordinator that answered is not the one that made this invitation")
    return Membership(
        study=answer.study,
        client=answer.client,
        url=client.connection.url,
        origin=answer.origin,
        coordinator_key=answer.coordinator_key,
    )
