"""A hospital's membership: from an invitation token, which pins the coordinator's key, to a new key of its own."""

from __future__ import annotations

import re
from collections.abc import Callable

from client_sdk.api.client import Client, Signature
from client_sdk.errors import AuthenticationError, ConfigurationError, NotTrusted
from client_sdk.identity import NEXT_KEY_FILE, Identity, Membership
from study_protocol.study.messages import EnrolmentRequest, KeyRotation
from study_protocol.wire.failpoints import failpoint, register
from study_protocol.wire.signing import ENROLMENT, SigningError, decode_public_key, fingerprint, sign_document

register("hospital.before-enrolment", "hospital.after-enrolment")
register("hospital.before-rotation", "hospital.after-rotation")
# wri_<id>_<secret>_<fingerprint>. A secret in base64url may hold underscores itself.
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
    # Whoever has the token alone cannot enrol somebody else's key.
    proof = sign_document(identity.key, ENROLMENT, {"invitation": invitation, "key": identity.public_key})
    failpoint("hospital.before-enrolment")
    answer = client.enrol(EnrolmentRequest(token=token.strip(), public_key=identity.public_key, proof=proof))
    failpoint("hospital.after-enrolment")
    try:
        key_fingerprint = fingerprint(decode_public_key(answer.coordinator_key))
    except SigningError as error:
        raise NotTrusted("the coordinator's key is not a key") from error
    # The token came from a person, the answer over the network: they must name one coordinator.
    if key_fingerprint != expected:
        raise NotTrusted("the coordinator that answered is not the one that made this invitation")
    return Membership(
        study=answer.study,
        client=answer.client,
        url=client.connection.url,
        origin=answer.origin,
        coordinator_key=answer.coordinator_key,
    )


def rotate(identity: Identity, dial: Callable[[str, Signature], Client]) -> list[str]:
    """Make a new key, have every coordinator take it, then replace the old one on the disk. Repeatable.

    Returns the studies that took it. Those that this hospital left are passed over.

    Raises:
        ApiError, ConnectionFailed: some studies may have the new key already. Run it again to finish.
    """
    # On the disk before anybody is told: a key that some have taken cannot be lost.
    successor = Identity.create(identity.directory, NEXT_KEY_FILE)
    studies = [m.study for m in identity.memberships() if _is_rotated(identity, successor, m, dial)]
    failpoint("hospital.before-rotation")
    identity.take_next_key()
    failpoint("hospital.after-rotation")
    return studies


def _is_rotated(
    identity: Identity, successor: Identity, membership: Membership, dial: Callable[[str, Signature], Client]
) -> bool:
    proven = {"client": membership.client, "study": membership.study, "key": successor.public_key}
    rotation = KeyRotation(public_key=successor.public_key, proof=sign_document(successor.key, ENROLMENT, proven))
    # Signed by the old key. By the new one where an interrupted attempt has brought it there already.
    for signer in (identity, successor):
        signature = Signature(signer.key, membership.client, membership.study, membership.origin)
        try:
            with dial(membership.url, signature) as client:
                client.rotate_key(membership.study, membership.client, rotation)
            return True
        except AuthenticationError as error:
            # A study that was left does not hold up the others' new key.
            if error.code == "revoked":
                return False
            if error.code != "bad-signature" or signer is successor:
                raise
    return False
