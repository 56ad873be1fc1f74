"""What a coordinator says it took, page by page, against the hospital's own ledger; its roster against the pin."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import Entry
from client_sdk.errors import LostLedger
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.identity import Membership
from client_sdk.study.verifier import (
    CoordinatorVerifier,
    active_fingerprint,
    require_known_past,
    rounds_received,
    strangers,
)
from study_protocol.study.messages import Roster, RosterEntry
from study_protocol.wire.signing import encode_public_key, roster_fingerprint
from tests.factories.settings import settings

PRICE = Charge("instance", 1.0, 0.5, 1)


def showing(*pages: dict[int, str]) -> Any:
    """A client to whom every page shows rounds of mercy and grace."""

    def rounds(study: str, after: str | None) -> Any:
        place = int(after or 0)
        shown = [
            SimpleNamespace(
                round=round,
                clients=[
                    SimpleNamespace(client="mercy", state=state),
                    SimpleNamespace(client="grace", state="received"),
                ],
            )
            for round, state in pages[place].items()
        ]
        return SimpleNamespace(rounds=shown, next=str(place + 1) if place + 1 < len(pages) else None)

    return SimpleNamespace(rounds=rounds)


def test_every_page_is_read_and_only_what_was_received_of_this_hospital_counts() -> None:
    client = showing({1: "received", 2: "refused"}, {3: "received"}, {4: "assigned"})
    assert rounds_received(client, "sepsis", "mercy") == {1, 3}


def test_rounds_of_which_nobody_may_be_seen_show_nothing() -> None:
    page = SimpleNamespace(rounds=[SimpleNamespace(round=1, clients=None)], next=None)
    client: Any = SimpleNamespace(rounds=lambda study, after: page)
    assert rounds_received(client, "sepsis", "mercy") == set()


def test_a_round_that_the_ledger_does_not_know_stops_the_hospital(tmp_path: Path) -> None:
    with HospitalLedger.open(tmp_path / "icu.db") as ledger:
        ledger.charge("sepsis", 1, PRICE, (), "0" * 64)
        with pytest.raises(LostLedger, match="from round 2 on"):
            require_known_past(showing({1: "received", 2: "received", 3: "received"}), ledger, "sepsis", "mercy", "icu")


def test_an_answer_that_a_crash_kept_out_of_the_log_is_added_once(tmp_path: Path) -> None:
    with HospitalLedger.open(tmp_path / "icu.db") as ledger:
        for round in (1, 2):
            ledger.charge("sepsis", round, PRICE, (), "0" * 64)
            ledger.finish_update("sepsis", round, sha256=str(round) * 64, size=5, sums=None)
        ledger.mark_answered("sepsis", 1, "1" * 64, "round-closed")
        require_known_past(showing({1: "received", 2: "received"}), ledger, "sepsis", "mercy", "icu")
        assert [(d.round, d.answer) for d in ledger.departures()] == [(1, "round-closed"), (2, "accepted")]


def settled(sequence: int, report: dict[str, Any] | None) -> Entry:
    body = {"report": report}
    return Entry(sequence, "settled", sequence, body, "0" * 64, "1" * 64)


def verifier(seen: list[Entry], shown: list[Entry]) -> CoordinatorVerifier:
    """Of a hospital that has checked the entries `seen`; its coordinator shows others to whoever asks again."""
    client: Any = SimpleNamespace(ledger=lambda study, after: SimpleNamespace(entries=[] if after else shown))
    ledger: Any = SimpleNamespace(seen_ledger=lambda study: SimpleNamespace(account=None, entries=lambda: seen))
    membership: Any = SimpleNamespace(study="sepsis", coordinator_key=public())
    return CoordinatorVerifier(client, membership, settings("sequential", masked=True, bayesian=True), ledger)


def test_the_number_of_all_records_is_read_from_checked_entries_alone(tmp_path: Path) -> None:
    """A larger N would make what every hospital is told it has spent smaller."""
    bounds = {"filter": 0.1, "moments": [0.1], "complete": False}
    true, lie = (bounds | {"papers": [0.1], "records": records} for records in (600.0, 1e9))
    assert verifier([], [settled(4, lie)]).total_records() is None
    assert verifier([settled(2, None), settled(4, bounds)], [settled(6, lie)]).total_records() is None
    assert verifier([settled(4, true), settled(6, lie)], [settled(4, lie)]).total_records() == 600.0


def public() -> str:
    return encode_public_key(Ed25519PrivateKey.generate().public_key())


def test_a_pin_lets_members_leave_and_nobody_join() -> None:
    mercy, grace, hope = (RosterEntry(client=name, public_key=public(), state="active") for name in ("m", "g", "h"))
    here = Membership(
        study="sepsis",
        client="mercy",
        url="https://x",
        origin="https://x",
        coordinator_key=public(),
        pinned=(mercy, grace),
    )

    def roster(*members: RosterEntry) -> Roster:
        return Roster(study="sepsis", members=list(members), fingerprint="0" * 64)

    assert strangers(here, roster(mercy, grace)) == []
    assert strangers(here, roster(mercy)) == []
    assert strangers(here, roster(mercy, grace, hope)) == ["h"]
    assert strangers(here, roster(mercy, grace.model_copy(update={"public_key": public()}))) == ["g"]
    assert strangers(here, roster(mercy, hope.model_copy(update={"state": "revoked"}))) == []
    assert strangers(here.model_copy(update={"pinned": None}), roster(hope)) == []


def test_the_roster_fingerprint_covers_active_members_only() -> None:
    mercy = RosterEntry(client="m", public_key=public(), state="active")
    gone = RosterEntry(client="g", public_key=public(), state="withdrawn")
    # What the coordinator claims is not believed: the fingerprint is computed from the members.
    shown = Roster(study="sepsis", members=[mercy, gone], fingerprint="f" * 64)
    assert active_fingerprint(shown) == roster_fingerprint("sepsis", [("m", mercy.public_key)])
