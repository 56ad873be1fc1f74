"""Bodies that no question or consent is: a plain refusal each, and the study has no query afterwards."""

from __future__ import annotations

import json
import random

import httpx
import pytest

from server.services.people.keys import create_key
from study_protocol.study.people import ApiKeyCreate
from tests.factories.hospital_double import Hospital
from tests.factories.live_coordinator import Live, code_of
from tests.factories.settings import statistics_settings

STUDY = "hostile-queries"
COUNT = {"question": {"kind": "count", "noise_multiplier": 5.0}}
AGE = {"column": "age", "edges": [40.0]}


def body(**question: object) -> bytes:
    return json.dumps({"question": {"kind": "count", "noise_multiplier": 5.0} | question}).encode()


def table(variables: object) -> bytes:
    return body(kind="table", variables=variables)


HOSTILE = {
    "nothing": b"",
    "no JSON": b"{",
    "a number": b"5",
    "a list": b"[]",
    "null": b"null",
    "no question": b"{}",
    "question is null": b'{"question": null}',
    "question is a list": b'{"question": [["kind", "count"]]}',
    "no kind": b'{"question": {"noise_multiplier": 5.0}}',
    "unknown kind": body(kind="everything"),
    "kind is a number": body(kind=1),
    "kind is a list": body(kind=["count"]),
    "NaN": b'{"question": {"kind": "count", "noise_multiplier": NaN}}',
    "Infinity": b'{"question": {"kind": "count", "noise_multiplier": Infinity}}',
    "1e999": b'{"question": {"kind": "count", "noise_multiplier": 1e999}}',
    "an integer of 5,000 digits": b'{"question": {"kind": "count", "noise_multiplier": ' + b"9" * 5000 + b"}}",
    "noise as text": body(noise_multiplier="5"),
    "noise is true": body(noise_multiplier=True),
    "no noise": body(noise_multiplier=0.0),
    "negative noise": body(noise_multiplier=-5.0),
    "unknown field": body(secret=1),
    "unknown field beside": json.dumps(COUNT | {"secret": 1}).encode(),
    "twice the kind": b'{"question": {"kind": "count", "kind": "table", "noise_multiplier": 5.0}}',
    "twice the noise": b'{"question": {"kind": "count", "noise_multiplier": 50.0, "noise_multiplier": 0.5}}',
    "control character in a title": body(title="a\x1b[2J"),
    "zero byte in a column": body(where=[{"column": "a\x00", "low": 1.0}]),
    "half a surrogate": b'{"question": {"kind": "count", "noise_multiplier": 5.0, "title": "\\ud800"}}',
    "no UTF-8": b'{"question": {"kind": "count", "noise_multiplier": 5.0, "title": "\xff"}}',
    "deep lists": b'{"question": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"question": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "17 conditions": body(where=[{"column": f"c{i}", "low": 1.0} for i in range(17)]),
    "100,000 edges": table([{"column": "age", "edges": [float(i) for i in range(100_000)]}]),
    "100,000 variables": table([{"column": f"c{i}", "presence": True} for i in range(100_000)]),
    "a product of 64 columns": table([{"column": f"c{i}", "edges": [float(e) for e in range(64)]} for i in range(64)]),
    "more cells than the study allows": table([{"column": "age", "edges": [float(i) for i in range(1000)]}]),
    "a data version of a megabyte": json.dumps(COUNT | {"data_version": "1" * 1_000_000}).encode(),
    "an empty data version": json.dumps(COUNT | {"data_version": ""}).encode(),
    "a data version that is a number": json.dumps(COUNT | {"data_version": 1}).encode(),
}


@pytest.fixture(scope="module")
def hospital(here: Live) -> Hospital:
    settings = statistics_settings(epsilon=10.0, max_queries=5, max_cells=1000)
    created = here.operator("POST", "/v1/studies", json={"study": STUDY, "settings": settings.as_json()})
    assert created.status_code == 201, created.text
    hospitals = [here.enrol(STUDY, name) for name in ("a", "b", "c", "d")]
    assert here.operator("POST", f"/v1/studies/{STUDY}/start").status_code == 200
    return hospitals[0]


def refused(answer: httpx.Response) -> None:
    assert answer.status_code in (400, 413, 422), answer.text
    problem = answer.json()
    assert problem["code"] in ("invalid-request", "body-too-large", "payload-too-large"), problem
    assert 0 < len(problem["detail"]) < 4000


def nothing_is_asked(here: Live) -> bool:
    return here.operator("GET", f"/v1/studies/{STUDY}/queries").json()["queries"] == []


@pytest.mark.slow_cases("-nothing")
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("path", ["", "/forecast"])
def test_what_is_no_question_is_refused_and_not_kept(here: Live, hospital: Hospital, name: str, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    refused(here.operator("POST", f"/v1/studies/{STUDY}/queries{path}", content=HOSTILE[name], headers=headers))
    assert nothing_is_asked(here)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"true", id="a truth"),
        pytest.param(b"{}", id="nothing said"),
        pytest.param(b'{"allowed": "yes"}', id="a word"),
        pytest.param(b'{"allowed": 1}', id="a number"),
        pytest.param(b'{"allowed": true, "allowed": false}', id="said twice"),
        pytest.param(b'{"allowed": true, "more": 1}', id="unknown field"),
        pytest.param(b'{"allowed": false, "code": "UPPER"}', id="capitals"),
        pytest.param(b'{"allowed": false, "code": "a b"}', id="a space"),
        pytest.param(b'{"allowed": false, "detail": "\\u001b[2J"}', id="control character"),
        pytest.param(b'{"allowed": false, "detail": "\\udfff"}', id="half a character"),
        pytest.param(b'{"allowed": false, "detail": "' + b"x" * 501 + b'"}', id="long"),
        pytest.param(b'{"allowed": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", id="deep"),
    ],
)
def test_what_is_no_consent_is_refused(here: Live, hospital: Hospital, said: bytes) -> None:
    refused(here.signed(hospital, "PUT", f"/v1/studies/{STUDY}/queries/1/consents/a", said))


def test_a_hospital_speaks_for_itself_alone_and_asks_nothing(here: Live, hospital: Hospital) -> None:
    path = f"/v1/studies/{STUDY}/queries"
    assert code_of(here.signed(hospital, "PUT", f"{path}/1/consents/b", b'{"allowed": true}'))[0] == 403
    assert code_of(here.signed(hospital, "PUT", f"{path}/1/consents/a", b'{"allowed": true}')) == (404, "unknown-query")
    assert here.signed(hospital, "POST", path, json.dumps(COUNT).encode()).status_code in (401, 403)
    assert here.send("POST", path, here.viewer_key, json=COUNT).status_code == 403
    assert here.send("POST", path, json=COUNT).status_code == 401
    for number in ("0", "-1", "2147483648", "1e3", "x", "9" * 30):
        assert here.operator("GET", f"{path}/{number}").status_code in (404, 422), number
    assert nothing_is_asked(here)


def test_random_changes_of_a_good_question_never_break_anything(here: Live, hospital: Hospital) -> None:
    """Octets changed, cut out and put in at random: refused in words, or read as a question that it then is."""
    chance, good = random.Random(5), table([AGE, {"column": "sex", "categories": ["f", "m"]}])
    headers = {"Content-Type": "application/json"}
    for _ in range(150):
        changed = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(changed))
            changed[place : place + chance.randint(0, 3)] = bytes(chance.randbytes(chance.randint(0, 3)))
        answer = here.operator("POST", f"/v1/studies/{STUDY}/queries/forecast", content=bytes(changed), headers=headers)
        if answer.status_code != 200:
            refused(answer)
    assert nothing_is_asked(here)


def test_an_asker_does_not_see_who_consents(here: Live) -> None:
    """Not in the answer to the same question again, either."""
    study = "asked-again"
    created = here.operator(
        "POST", "/v1/studies", json={"study": study, "settings": statistics_settings(masked=False).as_json()}
    )
    assert created.status_code == 201, created.text
    hospitals = [here.enrol(study, name) for name in ("a", "b")]
    assert here.operator("POST", f"/v1/studies/{study}/start").status_code == 200
    asker = create_key(here.coordinator, ApiKeyCreate(role="asker", study=study, name="Ada")).key
    path = f"/v1/studies/{study}/queries"
    assert here.send("POST", path, asker, json=COUNT).status_code == 201
    assert here.signed(hospitals[0], "PUT", f"{path}/1/consents/a", b'{"allowed": true}').status_code == 201
    shown = here.send("GET", f"{path}/1", asker).json()
    assert (shown["allowed"], shown["consents"]) == (1, None)
    again = here.send("POST", path, asker, json=COUNT)
    assert (again.status_code, again.json()) == (200, shown)
    named = here.operator("POST", path, json=COUNT).json()["consents"]
    assert [consent["client"] for consent in named] == ["a"]
