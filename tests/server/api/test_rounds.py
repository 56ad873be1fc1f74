"""The history of rounds, and who sees whose part in it."""

from __future__ import annotations

import pytest

from server.api.auth import Caller, ClientCaller
from server.api.rounds import own_client_of, sees_clients
from server.services.people.person import Person
from study_protocol.study.roles import Grant
from tests.factories.live_coordinator import Live, code_of


def test_no_such_round(here: Live, study: str) -> None:
    here.open_study(study)
    assert code_of(here.operator("GET", f"/v1/studies/{study}/rounds/7")) == (404, "round-unknown")


def test_only_operators_see_who_took_part(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    path = f"/v1/studies/{study}/rounds/1"
    assert here.operator("GET", path).json()["clients"] is not None
    assert here.send("GET", path, here.viewer_key).json()["clients"] is None
    # A hospital sees its own part, so that it can tell whether its ledger lacks a round.
    assert [entry["client"] for entry in here.signed(north, "GET", path).json()["clients"]] == ["north"]
    listed = here.signed(north, "GET", f"/v1/studies/{study}/rounds").json()["rounds"][0]["clients"]
    assert [entry["client"] for entry in listed] == ["north"]


@pytest.mark.parametrize(
    ("caller", "sees", "own"),
    [
        (Person("0" * 16, "Ada", (Grant("lead", "ward"),)), True, None),
        (Person("0" * 16, "Ada", (Grant("auditor"),)), True, None),
        (Person("0" * 16, "Ada", (Grant("lead", "other"), Grant("viewer", "ward"))), False, None),
        (ClientCaller("ward", "north", "0" * 64, "key", 1), False, "north"),
    ],
    ids=["lead", "auditor", "viewer-here", "hospital"],
)
def test_who_is_shown_whose_part(caller: Caller, sees: bool, own: str | None) -> None:
    assert (sees_clients(caller, "ward"), own_client_of(caller)) == (sees, own)
