import os
import socket
import sqlite3
import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from client_sdk.api.config import ClientSettings, Connection
from client_sdk.api.transport import Transport
from client_sdk.guard.decision import Subject
from client_sdk.guard.decisions import DECISIONS_FILE, decide, decisions_in
from client_sdk.guard.exclusion_file import OBJECTIONS_FILE
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.objections import OBJECTIONS_LEDGER
from client_sdk.guard.people import DecidingPerson, SystemAccount
from client_sdk.guard.policy import ApprovalRule, SitePolicy
from client_sdk.identity import DRAW_KEY_FILE, KEY_FILE, Identity
from client_sdk.study.diagnostics import Finding, examine
from client_sdk.study.feature_cache import FOLDER, KEY
from client_sdk.study.objecting import take_objections
from study_protocol.files.durable import write_durably
from study_protocol.files.private import make_private_folder
from study_protocol.study.site_versions import SiteVersions, compare
from study_protocol.versions import ProgramVersion
from study_protocol.wire.signing import decode_public_key, fingerprint
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital
from tests.factories.live_coordinator import live
from tests.factories.snapshots import frozen, recorded
from tests.factories.tls import certificate, issued_certificate, tls_server
from tests.factories.wire_answers import problem, reply
from tests.harness.windows.system import let_others_in

Meddle = Callable[[httpx.Request], httpx.Response | None]


def found(directory: Path, other: Coordinator | None = None, **options: object) -> dict[str, Finding]:
    handler = httpx.MockTransport((other or coordinator()).answer)
    settings = ClientSettings.model_validate(
        {"client_home": directory, "server": "https://study.example.org"} | options
    )
    findings = examine(settings, transport=lambda connection: Transport(connection, handler=handler))
    assert len({finding.check for finding in findings}) == len(findings)
    return {finding.check: finding for finding in findings}


def test_a_healthy_hospital_has_nothing_bad(tmp_path: Path) -> None:
    other = coordinator()
    hospital(other, tmp_path)
    os.chmod(tmp_path, 0o700)
    HospitalLedger.open(ledger_path(tmp_path, "records")).close()
    findings = found(tmp_path, other)
    assert {f.verdict for f in findings.values()} <= {"good", "note"}
    assert findings["clock"].verdict == findings["coordinator"].verdict == findings["ledger"].verdict == "good"
    assert "sepsis as mercy" in findings[KEY_FILE].text
    (joined,) = Identity.open(tmp_path).memberships()
    mark = fingerprint(decode_public_key(joined.coordinator_key))
    assert findings["coordinator's key"].text == f"{mark} in sepsis, pinned at enrolment"
    (tmp_path / "policy.toml").write_text("[individual]\nepsilon = 6.0\ndelta = 1e-6\n")
    assert found(tmp_path, other)["site policy"].text.endswith("each patient epsilon 6")


def test_the_enrolled_coordinator_is_asked_where_none_is_named(tmp_path: Path) -> None:
    other = coordinator()
    hospital(other, tmp_path)
    assert found(tmp_path, other, server=None)["address"].text == "https://study.example.org"


@pytest.mark.parametrize("skew", [45.0, -4000.0])
def test_a_clock_that_signatures_would_not_bear_is_bad(tmp_path: Path, skew: float) -> None:
    finding = found(tmp_path, coordinator(skew=skew))["clock"]
    assert finding.verdict == "bad"
    assert ("behind" if skew > 0 else "ahead of") in finding.text


def test_each_trouble_is_found_by_itself(tmp_path: Path) -> None:
    empty = found(tmp_path / "nowhere")
    assert (empty["directory"].verdict, empty[KEY_FILE].verdict) == ("bad", "bad")
    hospital(coordinator(), tmp_path)
    let_others_in(tmp_path / KEY_FILE)
    let_others_in(tmp_path)
    (tmp_path / "policy.toml").write_text("studis = []")
    (tmp_path / "ledgers").mkdir()
    ledger_path(tmp_path, "records").write_bytes(b"nonsense" * 1000)
    findings = found(tmp_path)
    assert {name for name, f in findings.items() if f.verdict == "bad"} == {KEY_FILE, "site policy", "ledger"}
    assert findings["directory"].verdict == "note"


def test_every_file_of_a_key_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    hospital(coordinator(), home)
    Identity.open(home).draw_secret()
    operator = tmp_path / "administrator.key"
    for path in (home / FOLDER / KEY, operator):
        make_private_folder(path.parent)
        write_durably(path, b"secret")
    monkeypatch.setenv("WARDROUND_API_KEY_FILE", str(operator))
    assert not {"draws.key", "key", "administrator.key"} & found(home).keys()
    for path in (home / DRAW_KEY_FILE, home / FOLDER / KEY, operator):
        let_others_in(path)
    findings = found(home)
    assert [findings[name].verdict for name in ("draws.key", "key", "administrator.key")] == ["bad", "bad", "note"]
    assert f"{operator} may be read by others" in findings["administrator.key"].text
    assert "secret" not in str(findings)


def test_snapshots_are_held_against_their_entries(tmp_path: Path) -> None:
    hospital(coordinator(), tmp_path)
    assert "snapshots" not in found(tmp_path)
    snapshot = recorded(tmp_path, frozen(tmp_path, "icu-1", b"first"))
    finding = found(tmp_path)["snapshots"]
    assert (finding.verdict, finding.text) == ("good", "1 in snapshots.db, chain good")
    snapshot.path.write_bytes(b"other")
    finding = found(tmp_path)["snapshots"]
    assert finding.verdict == "bad"
    assert snapshot.record.files["icu-1.parquet"] in finding.text
    snapshot.path.unlink()
    finding = found(tmp_path)["snapshots"]
    assert (finding.verdict, finding.text) == ("note", "1 in snapshots.db, chain good. icu-1: missing")


def test_a_running_process_on_the_ledger_is_no_trouble(tmp_path: Path) -> None:
    hospital(coordinator(), tmp_path)
    with HospitalLedger.open(ledger_path(tmp_path, "records")):
        assert found(tmp_path)["ledger"].text == "a running hospital process holds it"


def test_a_refused_address_ends_the_examination(tmp_path: Path) -> None:
    findings = found(tmp_path, server="http://study.example.org")
    assert findings["address"].verdict == "bad"
    assert "coordinator" not in findings


def test_the_innermost_reason_is_told_and_a_proxy_password_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@proxy.example:3128")
    other = coordinator()

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused") from ConnectionRefusedError()

    other.meddle = refuse
    findings = found(tmp_path, other)
    assert findings["coordinator"].verdict == "bad"
    assert "proxy.example:3128 does not listen there. Ask your IT" in findings["coordinator"].text
    assert findings["proxy"].text == "requests go through proxy.example:3128"
    assert "hunter2" not in repr(findings)


def test_a_certificate_that_is_not_trusted_is_named_as_such(tmp_path: Path) -> None:
    def dial(request: httpx.Request) -> httpx.Response:
        # As httpcore does it: the cause is in the context alone.
        try:
            raise ssl.SSLCertVerificationError("certificate verify failed")
        except ssl.SSLCertVerificationError as error:
            raise httpx.ConnectError(str(error), request=request) from None

    settings = ClientSettings.model_validate({"client_home": tmp_path, "server": "https://study.example.org"})
    findings = examine(settings, transport=lambda connection: Transport(connection, handler=httpx.MockTransport(dial)))
    reported = next(finding.text for finding in findings if finding.check == "coordinator")
    assert "its certificate is not trusted here" in reported
    assert "WARDROUND_CA_FILE" in reported


@pytest.mark.parametrize("is_trusted", [True, False])
def test_the_issuer_of_a_certificate_is_named_trusted_or_not(tmp_path: Path, is_trusted: bool) -> None:
    leaf, authority = issued_certificate(tmp_path, "Web Gateway CA", "St. Mercy IT")
    with tls_server(leaf) as port:
        settings = ClientSettings(
            client_home=tmp_path, server=f"https://localhost:{port}", ca_file=authority if is_trusted else None
        )
        findings = {finding.check: finding for finding in examine(settings)}
    assert findings["coordinator"].verdict == ("good" if is_trusted else "bad")
    assert findings["certificate"].verdict == ("good" if is_trusted else "note")
    assert findings["certificate"].text.startswith("issued by Web Gateway CA, St. Mercy IT. If that is your own")


def test_a_certificate_that_issued_itself_is_named_so(tmp_path: Path) -> None:
    with tls_server(certificate(tmp_path / "own.pem")) as port:
        issuer = Transport(Connection(url=f"https://localhost:{port}")).certificate_issuer()
    assert issuer == "localhost (the certificate itself)"


def test_no_issuer_is_named_where_no_tls_is_spoken(tmp_path: Path) -> None:
    with live(tmp_path / "coordinator") as here:
        settings = ClientSettings(client_home=tmp_path, server=here.url)
        findings = {finding.check: finding for finding in examine(settings)}
    assert findings["coordinator"].text == "ready, over plain HTTP"
    assert "certificate" not in findings


def test_connections_of_the_doctor_do_not_wait(tmp_path: Path) -> None:
    seen: list[Connection] = []

    def dial(connection: Connection) -> Transport:
        seen.append(connection)
        return Transport(connection, handler=httpx.MockTransport(coordinator().answer))

    examine(ClientSettings(client_home=tmp_path, server="https://x"), transport=dial)
    assert {connection.patience_seconds for connection in seen} == {0.0}


def test_a_policy_for_laboratories_is_noted(tmp_path: Path) -> None:
    hospital(coordinator(), tmp_path)
    (tmp_path / "policy.toml").write_text('unpinned_roster = "laboratory"\n')
    finding = found(tmp_path)["site policy"]
    assert (finding.verdict, "for laboratories only" in finding.text) == ("note", True)


def failing(kind: type[Exception], text: str = "", cause: type[Exception] | None = None) -> Meddle:
    def meddle(request: httpx.Request) -> httpx.Response:
        raise kind(text) from (None if cause is None else cause())

    return meddle


def answering(status: int, code: str = "", **headers: str) -> Meddle:
    def meddle(request: httpx.Request) -> httpx.Response:
        return problem(status, code) if code else httpx.Response(status, text="<html>login</html>", headers=headers)

    return meddle


def of_members(code: str, status: int = 401) -> Meddle:
    """Only the request that is signed finds out."""
    return lambda request: problem(status, code) if request.url.path.startswith("/v1/studies") else None


PROXY = "http://user:hunter2@proxy.example:3128"
# fault: (what the network does, proxy, finding, who or what comes next)
FAULTS: dict[str, tuple[Meddle, str, str, str]] = {
    "no network": (failing(httpx.ConnectError, "", socket.gaierror), "", "coordinator", "no host has this name"),
    "wrong port": (
        failing(httpx.ConnectError, "", ConnectionRefusedError),
        "",
        "coordinator",
        "check address and port",
    ),
    "firewall": (failing(httpx.ConnectTimeout), "", "coordinator", "firewall and proxy"),
    "wrong proxy": (
        failing(httpx.ConnectError, "", socket.gaierror),
        PROXY,
        "coordinator",
        "Ask your IT for the proxy",
    ),
    "silent proxy": (failing(httpx.ConnectTimeout), PROXY, "coordinator", "Ask your IT for the proxy"),
    "proxy with password": (
        failing(httpx.ProxyError, "407 Proxy Authentication Required"),
        PROXY,
        "coordinator",
        "asks for a user name and password",
    ),
    "proxy that refuses": (failing(httpx.ProxyError, "403 Forbidden"), PROXY, "coordinator", "refuses (403)"),
    "TLS interception": (
        failing(httpx.ConnectError, "", ssl.SSLCertVerificationError),
        "",
        "coordinator",
        "ask your IT for its file",
    ),
    "no TLS": (failing(httpx.ConnectError, "", ssl.SSLError), "", "coordinator", "the right port"),
    "not a coordinator": (answering(404), "", "coordinator", "Check the address and the port"),
    "a login page": (answering(302, location="https://login"), "", "coordinator", "Check the address and the port"),
    "a coordinator that is not ready": (
        answering(503, "not-ready"),
        "",
        "coordinator",
        "Nothing is to be done here: tell the study's lead",
    ),
    "revoked": (of_members("revoked", 403), "", "study sepsis", "ask the study's lead for a new invitation"),
    "another key": (of_members("bad-signature"), "", "study sepsis", "restore identity.key from a backup"),
    "old address": (of_members("wrong-target"), "", "study sepsis", "--server"),
    "no such study": (of_members("not-found", 404), "", "study sepsis", "ask the study's lead"),
    "old version": (of_members("client-too-old", 409), "", "study sepsis", "install the version"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_says_who_does_what_next(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meddle, proxy, check, said = FAULTS[fault]
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    if proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    other = coordinator()
    hospital(other, tmp_path)
    other.meddle = meddle
    findings = found(tmp_path, other)
    assert findings[check].verdict == "bad"
    assert said in findings[check].text
    text = repr(findings)
    assert "doctor" not in text
    assert "hunter2" not in text
    # The address is blamed only where it can be at fault.
    assert not proxy or "address" not in findings[check].text


@pytest.mark.parametrize(
    ("grace", "verdict", "said"),
    [
        (ProgramVersion("0.9.1", 4), "good", "grace: 0.9.1 (4)"),
        (ProgramVersion("0.8.0", 3), "note", "grace: 0.8.0 (3) too old: the study needs protocol 4"),
        (None, "note", "grace: not known yet"),
    ],
)
def test_the_programs_of_all_sites_are_listed(
    tmp_path: Path, grace: ProgramVersion | None, verdict: str, said: str
) -> None:
    other, running = coordinator(), ProgramVersion("0.9.1", 4)
    hospital(other, tmp_path)
    programs = {"grace": grace, "mercy": running}
    sites = [compare(name, each, None, needed_protocol=4, coordinator=running) for name, each in programs.items()]
    listed = SiteVersions(
        study="sepsis", coordinator_version="0.9.1", coordinator_protocol=4, needed_protocol=4, hospitals=sites
    )
    other.meddle = lambda request: reply(listed) if request.url.path.endswith("/versions") else None
    finding = found(tmp_path, other)["versions in sepsis"]
    assert finding.verdict == verdict
    assert finding.text.startswith("the study needs protocol 4. coordinator: 0.9.1 (4), grace: ")
    assert said in finding.text
    assert finding.text.endswith(", mercy: 0.9.1 (4)")


def test_a_coordinator_that_lists_no_programs_is_no_trouble(tmp_path: Path) -> None:
    other = coordinator()
    hospital(other, tmp_path)
    findings = found(tmp_path, other)
    assert "versions in sepsis" not in findings
    assert findings["study sepsis"].verdict == "good"


@pytest.mark.parametrize(("free", "verdict"), [(1 << 20, "bad"), (1 << 28, "note"), (1 << 40, "good")])
def test_a_full_disk_is_bad(free: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital(coordinator(), tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    assert found(tmp_path)["disk"].verdict == verdict


def test_a_missing_ledger_names_the_others(tmp_path: Path) -> None:
    other = coordinator()
    hospital(other, tmp_path)
    HospitalLedger.open(ledger_path(tmp_path, "icu")).close()
    finding = found(tmp_path, other)["ledger"]
    assert finding.verdict == "note"
    assert finding.text.endswith("the first join makes it, or name one that is here with --dataset: icu")


def test_decisions_that_were_removed_are_found(tmp_path: Path) -> None:
    about = Subject("terms", "sepsis", "ab" * 32, "take part")
    decide(tmp_path, about, "agree", DecidingPerson("Ada", account=SystemAccount("1")), ApprovalRule())
    assert found(tmp_path)["decisions"].verdict == "good"
    with HospitalLedger.open(ledger_path(tmp_path, "records")) as ledger:
        ledger.mark_decisions(decisions_in(tmp_path), ApprovalRule())
    (tmp_path / DECISIONS_FILE).unlink()
    finding = found(tmp_path)["decisions"]
    assert (finding.verdict, "lacks decision 1" in finding.text) == ("bad", True)


def test_objections_are_checked_with_their_list(tmp_path: Path) -> None:
    assert "objections" not in found(tmp_path)
    person = DecidingPerson("Ada", account=SystemAccount("1"))
    take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p7", "p8"], person)
    finding = found(tmp_path)["objections"]
    assert (finding.verdict, finding.text[:1]) == ("good", "2")
    # A line that was taken out: the patient's records are read again.
    (tmp_path / OBJECTIONS_FILE).write_text("p7\n")
    finding = found(tmp_path)["objections"]
    assert (finding.verdict, "the patients of 2 any more" in finding.text) == ("bad", True)
    assert "p8" not in finding.text
    (tmp_path / OBJECTIONS_FILE).unlink()
    assert "the patients of 1, 2 any more" in found(tmp_path)["objections"].text


def test_a_ledger_of_objections_that_was_changed_is_found(tmp_path: Path) -> None:
    person = DecidingPerson("Ada", account=SystemAccount("1"))
    take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p7"], person)
    with closing(sqlite3.connect(tmp_path / OBJECTIONS_LEDGER)) as connection, connection:
        connection.execute("UPDATE entries SET body = replace(body, 'Ada', 'Bob')")
    finding = found(tmp_path)["objections"]
    assert (finding.verdict, "not what was written" in finding.text) == ("bad", True)
    (tmp_path / OBJECTIONS_LEDGER).write_bytes(b"no database")
    assert found(tmp_path)["objections"].verdict == "bad"


def test_objections_with_a_list_that_cannot_be_read_are_bad(tmp_path: Path) -> None:
    person = DecidingPerson("Ada", account=SystemAccount("1"))
    take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p7"], person)
    (tmp_path / OBJECTIONS_FILE).write_bytes(b"\xff\xfe\x00")
    assert found(tmp_path)["objections"].verdict == "bad"
