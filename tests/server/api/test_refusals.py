"""A hospital's no: recorded once, and instead of an update."""

from __future__ import annotations

from tests.factories.hospital_double import update
from tests.factories.live_coordinator import Live, code_of


def test_a_refusal_is_recorded_once(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    path = f"/v1/studies/{study}/rounds/1/refusals/north"
    for status in (201, 200):
        answer = here.signed(north, "PUT", path, b'{"code":"site-policy","detail":"least noise"}')
        assert (answer.status_code, answer.json()["code"]) == (status, "site-policy")
    assert here.signed(north, "PUT", path, b'{"code":"other"}').json()["code"] == "site-policy", "the first one stands"
    assert code_of(here.put_update(north, 1, update())) == (409, "different-update")
    shown = here.operator("GET", f"/v1/studies/{study}/rounds/1").json()
    assert shown["clients"][0]["state"] == "refused"


def test_a_hospital_refuses_for_itself_alone(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    path = f"/v1/studies/{study}/rounds/1/refusals/south"
    assert code_of(here.signed(north, "PUT", path, b'{"code":"site-policy"}')) == (403, "forbidden")


def test_a_round_that_is_not_open_is_not_refused(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    path = f"/v1/studies/{study}/rounds/2/refusals/north"
    assert code_of(here.signed(north, "PUT", path, b'{"code":"site-policy"}')) == (404, "round-unknown")
