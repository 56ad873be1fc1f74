"""A new identity key in place of the old one, in every study of this hospital; repeatable after any interruption."""

from __future__ import annotations

from collections.abc import Callable

from client_sdk.api.attempts import Signature
from client_sdk.api.client import Client
from client_sdk.errors import AuthenticationError
from client_sdk.identity import NEXT_KEY_FILE, Identity, Membership
from client_sdk.protocol.study.messages import KeyRotation
from client_sdk.protocol.wire.failpoints import failpoint, register
from client_sdk.protocol.wire.signing import ENROLMENT, sign_document

register("hospital.before-rotation", "hospital.after-rotation")


def rotate(identity: Identity, dial: Callable[[str, Signature], Client]) -> list[str]:
    """Make a new key, have every coordinator take it, then replace the old one on the disk.

    Returns the studies that took it; those that this hospital left are passed over.

    Raises:
        ApiError, ConnectionFailed: some studies may have the new key already; run it again to finish.
    """
    successor = Identity.create(identity.directory, NEXT_KEY_FILE)
    taken = [m.study for m in identity.memberships() if _taken(identity, successor, m, dial)]
    failpoint("hospital.before-rotation")
    identity.take_next_key()
    failpoint("hospital.after-rotation")
    return taken


def _taken(
    identity: Identity, successor: Identity, membership: Membership, dial: Callable[[str, Signature], Client]
) -> bool:
    proven = {"client": membership.client, "study": membership.study, "key": successor.public_key}
    rotation = KeyRotation(public_key=successor.public_key, proof=sign_document(successor.key, ENROLMENT, proven))
    # Signed by the old key; by the new one where an interrupted attempt has brought it there already.
    for signer in (identity, successor):
        signature = Signature(signer.key, membership.client, membership.study, membership.origin)
        try:
            with dial(membership.url, signature) as client:
                client.rotate_key(membership.study, membership.client, rotation)
            return True
        except AuthenticationError as error:
            if error.code == "revoked":
                return False
            if error.code != "bad-signature" or signer is successor:
                raise
    return False
