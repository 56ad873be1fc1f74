"""The way to a coordinator that has another address than at enrolment. Its key stays the one that was pinned."""

from __future__ import annotations

from collections.abc import Callable

from client_sdk.api.client import Client, Signature
from client_sdk.errors import AuthenticationError, ConnectionFailed, NotTrusted
from client_sdk.identity import Identity, Membership
from study_protocol.study.messages import LedgerPage
from study_protocol.wire.signing import LEDGER_HEAD, SigningError, decode_public_key, verify_document


def moved(
    identity: Identity, membership: Membership, url: str, dial: Callable[[str, Signature], Client]
) -> list[Membership]:
    """Keep another address for a study, and for every study of the same coordinator. Return the studies.

    Kept once a head of the study's ledger has come from there, under the key that was pinned at enrolment.

    Raises:
        NotTrusted: another coordinator answers there. Nothing is kept.
        ApiError, ConnectionFailed, UnexpectedAnswer: the old address stays.
    """
    url = url.rstrip("/")
    if url == membership.url == membership.origin:
        return []
    try:
        page, origin = _asked(identity, membership, url, dial)
    except ConnectionFailed:
        # Joining waits for it.
        if url == membership.url:
            return []
        raise
    head = page.head.head
    try:
        key = decode_public_key(membership.coordinator_key)
        verify_document(key, LEDGER_HEAD, head.model_dump(mode="json"), page.head.signature)
    except SigningError as error:
        raise _another(membership, url) from error
    if head.study != membership.study:
        raise _another(membership, url)
    old = (membership.coordinator_key, membership.url, membership.origin)
    changed = [
        membership.model_copy(update={"url": url, "origin": origin})
        for membership in identity.memberships()
        if (membership.coordinator_key, membership.url, membership.origin) == old
    ]
    # The named one last: where this is cut short, the same call goes on.
    for changed_membership in sorted(changed, key=lambda known: known.study == membership.study):
        identity.remember(changed_membership)
    return changed


def _asked(
    identity: Identity, membership: Membership, url: str, dial: Callable[[str, Signature], Client]
) -> tuple[LedgerPage, str]:
    """Return the newest head, and the origin that signatures name: that of before, or the new address itself."""
    for origin in (membership.origin, url):
        signature = Signature(identity.key, membership.client, membership.study, origin)
        try:
            with dial(url, signature) as client:
                return client.ledger(membership.study, 0, 1), origin
        except AuthenticationError as error:
            if error.code == "bad-signature":
                raise _another(membership, url) from error
            if error.code != "wrong-target":
                raise
    raise NotTrusted(
        f"the coordinator at {url} has another public address than {url} and {membership.origin}. {membership.url} "
        "stays the address. Ask the study's lead for the public one, and give it letter by letter"
    )


def _another(membership: Membership, url: str) -> NotTrusted:
    return NotTrusted(
        f"{url} is not the coordinator that this hospital enrolled with in {membership.study}: its key is another, or "
        f"it does not know this hospital. {membership.url} stays the address. Ask the study's lead for the other"
    )
