"""Which program asks is signed with every request; the coordinator says what it is, and what a study needs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from sqlalchemy import text

from server.services.studies import programs
from study_protocol.secure_sum.messages import SessionParameters
from study_protocol.versions import (
    ALL_QUESTIONS,
    NAMED_PEOPLE,
    PROTOCOL,
    PROTOCOL_HEADER,
    STUDY_PROTOCOL_HEADER,
    UNNUMBERED,
    VERSION_HEADER,
    ProgramVersion,
    program_version,
)
from study_protocol.wire.signing import SigningError, from_base64url, request_token, verify_request_token
from tests.factories.live_coordinator import ORIGIN, Live, code_of, live
from tests.factories.settings import settings, statistics_settings
from tests.harness import tiny


@pytest.fixture
def databases(database_url: str, tmp_path: Path) -> Iterator[Live]:
    """A coordinator on each kind of database that creates studies as the version before did."""
    with live(tmp_path, database_url=database_url, bind_models=False) as here:
        yield here


def test_the_coordinator_says_what_it_is(here: Live, study: str) -> None:
    versions = {"version": program_version(), "protocol": PROTOCOL, "min_protocol": UNNUMBERED}
    assert here.send("GET", "/version").json() == versions
    here.open_study(study)
    headers = here.operator("GET", f"/v1/studies/{study}").headers
    assert (headers[VERSION_HEADER], headers[PROTOCOL_HEADER]) == (program_version(), str(PROTOCOL))


@pytest.mark.quick("sqlite")
def test_a_hospital_is_told_what_its_study_needs(here: Live, databases: Live, study: str) -> None:
    # What names models and people in the ledger, older programs cannot read.
    for asked, needed, spoken in (
        (here, NAMED_PEOPLE, (PROTOCOL,)),
        (databases, UNNUMBERED, (PROTOCOL, UNNUMBERED, None)),
    ):
        asked.open_study(study)
        who = asked.enrol(study, "north")
        for protocol in spoken:
            answer = asked.signed(who, "GET", f"/v1/studies/{study}", protocol=protocol)
            assert (answer.status_code, answer.headers[STUDY_PROTOCOL_HEADER]) == (200, str(needed))


def test_a_study_that_takes_questions_is_created_for_every_form_of_them(here: Live, study: str) -> None:
    """Operators learn the number, too, and a hospital of the version before is told what to install."""
    here.open_study(study, statistics_settings(masked=False), model=False)
    who, path = here.enrol(study, "north"), f"/v1/studies/{study}"
    for answer in (here.operator("GET", path), here.signed(who, "GET", path)):
        assert answer.headers[STUDY_PROTOCOL_HEADER] == str(ALL_QUESTIONS)
    answer = here.signed(who, "GET", f"{path}/assignment?wait=0", protocol=ALL_QUESTIONS - 1)
    assert code_of(answer) == (403, "client-too-old")


@pytest.mark.parametrize("protocol", [None, UNNUMBERED])
def test_a_program_below_what_the_study_needs_is_told_what_to_install(
    here: Live, study: str, protocol: int | None
) -> None:
    masked = tiny.settings("sequential", clients=4, rounds=2, bayesian=False, step_seconds=60.0)
    here.open_study(study, masked, model=False)
    who = here.enrol(study, "north")
    for method, path in (("GET", ""), ("GET", "/assignment?wait=0"), ("GET", "/ledger"), ("GET", "/events?wait=0")):
        answer = here.signed(who, method, f"/v1/studies/{study}{path}", protocol=protocol)
        assert code_of(answer) == (403, "client-too-old")
        assert f"install the version that the coordinator runs ({program_version()})" in answer.json()["detail"]
        needed = {"needed_protocol": 4, "spoken_protocol": 1, "coordinator_protocol": PROTOCOL}
        assert answer.json()["extra"] == needed | {"coordinator_version": program_version()}
    assert here.signed(who, "GET", f"/v1/studies/{study}").status_code == 200
    # It may always leave.
    path = f"/v1/studies/{study}/clients/north/withdrawn"
    assert here.signed(who, "PUT", path, protocol=protocol).status_code == 200


@pytest.mark.slow
def test_an_older_masked_study_refuses_the_version_before_in_its_next_session(databases: Live, study: str) -> None:
    """Sessions name more now than that version can read: it is told so, instead of being handed one."""
    here, path = databases, f"/v1/studies/{study}"
    old, *others = here.running(study, *"abcd", settings=settings(masked=True))
    with here.coordinator.database.engine.begin() as connection:
        # What the migration writes for every study that is there.
        assert connection.execute(text("UPDATE studies SET protocol = 1")).rowcount == 1
    for protocol in (None, UNNUMBERED):
        asked = [("GET", "/assignment"), ("GET", "/rounds/1/secure-sum/keys"), ("PUT", "/rounds/1/secure-sum/keys/a")]
        for method, where in asked:
            answer = here.signed(old, method, path + where, b"{}" if method == "PUT" else b"", protocol=protocol)
            assert code_of(answer) == (403, "client-too-old")
            assert answer.json()["extra"]["needed_protocol"] == 2
    assert here.signed(old, "GET", path).headers[STUDY_PROTOCOL_HEADER] == "2"
    for who in (old, *others):
        (given,) = [here.signed(who, "GET", f"{path}/assignment").json()]
        assert SessionParameters.from_bytes(from_base64url(given["session"]["parameters"])).version == 2
    # It may always leave.
    assert here.signed(old, "PUT", f"{path}/clients/a/withdrawn", protocol=None).status_code == 200


@pytest.mark.slow
def test_an_older_study_in_the_clear_stays_open_to_the_version_before(databases: Live, study: str) -> None:
    old, *_ = databases.running(study, *"abc")
    answer = databases.signed(old, "GET", f"/v1/studies/{study}/assignment", protocol=None)
    assert (answer.status_code, answer.json()["assignment"]["round"]) == (200, 1)


def shown(here: Live, study: str, key: str | None = None) -> dict[str, list[object]]:
    """Of each hospital its version, number and comparison, as a reader is told."""
    listed = here.send("GET", f"/v1/studies/{study}/versions", key or here.viewer_key)
    assert listed.status_code == 200, listed.text
    return {
        site["client"]: [site["version"], site["protocol"], site["comparison"]] for site in listed.json()["hospitals"]
    }


def test_readers_see_the_program_that_each_hospital_named_last(here: Live, study: str) -> None:
    here.open_study(study)
    north, south, path = here.enrol(study, "north"), here.enrol(study, "south"), f"/v1/studies/{study}"
    roster = here.operator("GET", f"{path}/roster").json()
    same = [program_version(), PROTOCOL, "same"]
    assert shown(here, study) == {"north": same, "south": same}
    assert here.signed(south, "GET", f"{path}/budget", protocol=PROTOCOL + 1).status_code == 200
    assert shown(here, study)["south"] == [program_version(), PROTOCOL + 1, "differs"]
    # One that is refused is known, too, also where it names no version.
    assert code_of(here.signed(south, "GET", f"{path}/budget", protocol=None)) == (403, "client-too-old")
    assert shown(here, study) == {"north": same, "south": ["unknown", UNNUMBERED, "too-old"]}
    # The other hospital is told the same, and a stranger's signature changes nothing.
    assert here.signed(north, "GET", f"{path}/versions").json()["hospitals"][1]["comparison"] == "too-old"
    forged = here.hospital(study, "north")
    assert code_of(here.signed(forged, "GET", f"{path}/budget", protocol=PROTOCOL + 1)) == (401, "bad-signature")
    assert shown(here, study)["north"] == same
    # Upgraded, it is as the coordinator again. The roster, which older programs read, never changed.
    assert here.signed(south, "GET", f"{path}/budget").status_code == 200
    assert shown(here, study)["south"] == same
    assert here.operator("GET", f"{path}/roster").json() == roster


def test_a_program_that_is_known_is_not_written_again(here: Live, study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here.open_study(study)
    who, path = here.enrol(study, "north"), f"/v1/studies/{study}/budget"
    noted: list[ProgramVersion] = []
    monkeypatch.setattr(programs, "note_program", lambda *named: noted.append(named[-1]))
    for protocol in (PROTOCOL, PROTOCOL, PROTOCOL + 1):
        assert here.signed(who, "GET", path, protocol=protocol).status_code == 200
    assert noted == [ProgramVersion(program_version(), PROTOCOL + 1)]
    assert here.operator("PUT", f"/v1/studies/{study}/clients/north/revoked").status_code == 200
    assert code_of(here.signed(who, "GET", path, protocol=PROTOCOL + 1)) == (403, "revoked")
    assert len(noted) == 1
    assert shown(here, study) == {}


def test_a_hospital_reads_the_programs_of_its_own_study_alone(here: Live, study: str) -> None:
    here.open_study(study)
    here.open_study(f"{study}-b")
    who = here.enrol(study, "north")
    assert code_of(here.signed(who, "GET", f"/v1/studies/{study}-b/versions")) == (403, "forbidden")
    assert code_of(here.operator("GET", "/v1/studies/nowhere/versions"))[0] == 404


def test_the_number_is_covered_by_the_signature(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    path = f"/v1/studies/{study}"
    token = here.token(who, "GET", path)
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["pro"], claims["ver"]) == (PROTOCOL, program_version())
    head, _, signature = token.split(".")
    other = jwt.encode(claims | {"pro": 1}, who.key, algorithm="EdDSA").split(".")[1]
    assert code_of(here.send("GET", path, f"{head}.{other}.{signature}")) == (401, "bad-signature")


@pytest.mark.quick("wrong1", "wrong2", "wrong4")
@pytest.mark.parametrize("wrong", [{"pro": "2"}, {"pro": True}, {"pro": 0}, {"pro": 2.0}, {"ver": 1}, {"ver": "a b"}])
def test_a_number_that_is_none_is_refused(here: Live, study: str, wrong: dict[str, object]) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    path = f"/v1/studies/{study}"
    claims = jwt.decode(here.token(who, "GET", path), options={"verify_signature": False})
    token = jwt.encode(claims | wrong, who.key, algorithm="EdDSA")
    assert code_of(here.send("GET", path, token)) == (401, "bad-token")


def test_a_token_without_a_number_is_of_the_version_before() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, url = Ed25519PrivateKey.generate(), f"{ORIGIN}/v1/studies/ward"
    said = {"client": "north", "study": "ward", "audience": ORIGIN, "method": "GET", "url": url, "now": 1e9}
    token = request_token(key, **said, body_sha256=hashlib.sha256(b"").hexdigest(), protocol=None)
    claims = verify_request_token(token, key.public_key(), audience=ORIGIN, method="GET", url=url, now=1e9)
    assert (claims.protocol, claims.program) == (UNNUMBERED, "unknown")
    with pytest.raises(SigningError):
        verify_request_token(token, key.public_key(), audience=ORIGIN, method="PUT", url=url, now=1e9)
