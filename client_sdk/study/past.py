"""What the coordinator says it took from this hospital before, against the hospital's own ledger."""

from __future__ import annotations

from client_sdk.api.client import Client
from client_sdk.errors import LostLedger
from client_sdk.guard.ledger import HospitalLedger


def require_known_past(client: Client, ledger: HospitalLedger, study: str, name: str, dataset: str) -> None:
    """Every round that the coordinator took must be in the ledger; answers that a crash kept out of its log are added.

    Raises:
        LostLedger: the ledger misses one.
    """
    reported = rounds_received(client, study, name)
    missing = reported - ledger.rounds_known(study)
    if missing:
        raise LostLedger(
            "lost-ledger",
            f"the coordinator holds updates of this hospital from round {min(missing)} on that the ledger of data "
            f"set {dataset!r} does not know: restore it, or accept the loss with --accept-lost-ledger",
        )
    for departure in ledger.departures(study):
        # Killed between the answer and its line in the log.
        if departure.what == "update" and departure.answer is None and departure.round in reported:
            ledger.mark_answered(study, departure.round, departure.sha256, "accepted")


def rounds_received(client: Client, study: str, name: str) -> set[int]:
    """Rounds in which the coordinator took an update of `name`, as far as it shows them to the caller."""
    found: set[int] = set()
    after: str | None = None
    while True:
        page = client.rounds(study, after)
        found |= {
            view.round
            for view in page.rounds
            for entry in view.clients or []
            if entry.client == name and entry.state == "received"
        }
        if page.next is None:
            return found
        after = page.next
