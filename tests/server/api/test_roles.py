"""Every operation of the API with every role and without one, against a table that is written down here once more."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import get_args

import httpx
import pytest
from fastapi.routing import APIRoute

from server.app import ROUTERS
from server.services.people.keys import create_key
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.roles import OPERATIONS, Role
from tests.factories.hospital_double import Hospital
from tests.factories.live_coordinator import Live
from tests.factories.settings import settings_json

# a: administrator, l: lead, k: asker, u: auditor, v: viewer, m: any hospital of the study, i: the hospital that the
# address names, o: without a key.
LETTERS = {"administrator": "a", "lead": "l", "asker": "k", "auditor": "u", "viewer": "v"}
TABLE = """
al     create_study start_study train_study pause_study resume_study stop_study delete_study invite revoke
al     put_initial_model put_metrics create_key list_keys revoke_key
alk    ask_query
alu    read_audit_log
a      read_coordinator_audit_log list_sessions end_session
alkuv  list_studies all_studies_json show_person log_out
alkuvm show_study show_roster list_versions list_lacking_columns list_rounds show_round
alkuvm read_budget read_certificate read_ledger
alkuvm stream_events forecast_query list_queries show_query put_outside_witness study_page_json study_terms_json
alkuvm ledger_text queries_json query_json synthesis_json synthesis_shares_json
aluvm  get_model
m      next_assignment session get_keys get_survivors get_consistency get_result
i      put_update put_refusal put_keys put_shares get_shares put_masked put_consistency put_unmask put_left
i      rotate_key withdraw put_lacking_columns put_consent put_witness
o      enrol begin_login poll_login log_in finish_login
o      show_version livez readyz docs all_studies study_page reasons charts
"""
EXPECTED = {name: set(line.split()[0]) for line in TABLE.strip().splitlines() for name in line.split()[1:]}
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
NAMES = [route.name for route in ROUTES]
CLOSED = [route for route in ROUTES if "o" not in EXPECTED[route.name]]
# Its study does not exist: who is let in is told so, and nothing is changed.
NOWHERE = "nowhere"


@pytest.fixture(scope="module")
def keys(here: Live) -> dict[tuple[Role, str | None], str]:
    """Keys by role and study."""
    made: dict[tuple[Role, str | None], str] = {}
    for role in get_args(Role):
        for study in (None,) if role == "administrator" else (None, NOWHERE, "elsewhere"):
            request = ApiKeyCreate(role=role, study=study, name="Ada")
            made[role, study] = create_key(here.coordinator, request).key or ""
    return made


def _path(route: APIRoute, study: str) -> str:
    parts = {"study": study, "client": "north", "round": "1", "query": "1", "version": "latest", "key": "none"}
    return route.path.format_map(parts | {"session": "0", "name": "auditor"})


def _asked(here: Live, route: APIRoute, key: str | None) -> httpx.Response:
    (method,) = route.methods
    with here.http.stream(
        method,
        _path(route, NOWHERE),
        headers={} if key is None else {"Authorization": f"Bearer {key}"},
        params={"wait": 0},
    ) as answer:
        answer.read()
        return answer


def test_the_table_names_every_operation_once() -> None:
    assert sorted(NAMES) == sorted(EXPECTED) == sorted(OPERATIONS)
    letters = LETTERS | {"member": "m", "itself": "i", "anyone": "o"}
    assert {name: {letters[caller] for caller in callers} for name, callers in OPERATIONS.items()} == EXPECTED


def _people(route: APIRoute) -> Iterator[tuple[Role, str | None, bool]]:
    for role in get_args(Role):
        may = LETTERS[role] in EXPECTED[route.name]
        for study in (None,) if role == "administrator" else (None, NOWHERE, "elsewhere"):
            # What belongs to no study is open to a role anywhere. What is listed is that person's alone.
            yield role, study, may and (study != "elsewhere" or "{study}" not in route.path)


@pytest.mark.parametrize("route", CLOSED, ids=lambda route: route.name)
def test_every_role_and_nobody(here: Live, keys: dict[tuple[Role, str | None], str], route: APIRoute) -> None:
    for role, study, may in _people(route):
        answer = _asked(here, route, keys[role, study])
        refused = answer.status_code == 403 and answer.json()["code"] == "forbidden"
        assert refused != may, (role, study, answer.status_code, answer.text)
        assert answer.status_code not in (401, 500), answer.text
    for key in (None, "wrk_0000000000000000_00", "wri_1_2_3"):
        answer = _asked(here, route, key)
        assert answer.status_code == 401, (key, answer.text)


@pytest.fixture(scope="module")
def hospitals(here: Live) -> dict[str, Hospital]:
    for study in ("roles-here", "roles-there"):
        here.open_study(study)
    return {
        "itself": here.enrol("roles-here", "north"),
        "member": here.enrol("roles-here", "south"),
        "of another study": here.enrol("roles-there", "north"),
    }


# A withdrawal is the last thing that a hospital asks for.
@pytest.mark.parametrize(
    "route", sorted(CLOSED, key=lambda route: route.name == "withdraw"), ids=lambda route: route.name
)
def test_every_hospital(here: Live, hospitals: dict[str, Hospital], route: APIRoute) -> None:
    (method,) = route.methods
    for who in ("of another study", "member", "itself"):
        may = "m" in EXPECTED[route.name] or ("i" in EXPECTED[route.name] and who == "itself")
        may = may and who != "of another study"
        token_id = secrets.token_hex(16)
        answer = here.signed(hospitals[who], method, f"{_path(route, 'roles-here')}?wait=0", token_id=token_id)
        refused = answer.status_code == 403 and answer.json()["code"] == "forbidden"
        assert refused != may, (who, answer.status_code, answer.text)


def test_lists_hold_only_studies_of_the_key(here: Live) -> None:
    for name in ("study-a", "study-b"):
        here.open_study(name)
    key = create_key(here.coordinator, ApiKeyCreate(role="viewer", study="study-a", name="Ada")).key
    for path, names in (("/v1/studies", ["study-a"]), ("/v1/studies?after=study-a", [])):
        assert [study["study"] for study in here.send("GET", path, key).json()["studies"]] == names
    shown = here.send("GET", "/dashboard.json", key).json()["studies"]
    assert [one["study"]["study"] for one in shown] == ["study-a"]
    assert "study-b" not in here.send("GET", "/dashboard.json?search=study", key).text


def test_a_lead_creates_its_own_study_and_gives_keys_for_it(here: Live) -> None:
    lead = create_key(here.coordinator, ApiKeyCreate(role="lead", study="led", name="Ada")).key
    body = {"study": "led", "settings": settings_json()}
    assert here.send("POST", "/v1/studies", lead, json=body | {"study": "other"}).status_code == 403
    assert here.send("POST", "/v1/studies", lead, json=body).status_code == 201
    given = here.send("POST", "/v1/api-keys", lead, json={"role": "asker", "study": "led", "name": "Grace"})
    assert given.status_code == 201
    for wrong in (
        {"role": "asker", "study": "other", "name": "Grace"},
        {"role": "asker", "name": "Grace"},
        {"role": "administrator", "name": "Grace"},
    ):
        answer = here.send("POST", "/v1/api-keys", lead, json=wrong)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    listed = here.send("GET", "/v1/api-keys", lead).json()["keys"]
    assert {key["study"] for key in listed} == {"led"}
    foreign = create_key(here.coordinator, ApiKeyCreate(role="viewer", study="other", name="Ada"))
    assert here.send("DELETE", f"/v1/api-keys/{foreign.id}", lead).status_code == 404
    assert here.send("DELETE", f"/v1/api-keys/{given.json()['id']}", lead).status_code == 200
