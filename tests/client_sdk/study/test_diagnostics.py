import os
import ssl
from pathlib import Path

import httpx
import pytest

from client_sdk.api.config import ClientSettings, Connection
from client_sdk.api.transport import Transport
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.identity import KEY_FILE, Identity
from client_sdk.study.diagnostics import Finding, examine
from study_protocol.wire.signing import decode_public_key, fingerprint
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital


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
    os.chmod(tmp_path / KEY_FILE, 0o644)
    os.chmod(tmp_path, 0o755)
    (tmp_path / "policy.toml").write_text("studis = []")
    (tmp_path / "ledgers").mkdir()
    ledger_path(tmp_path, "records").write_bytes(b"nonsense" * 1000)
    findings = found(tmp_path)
    assert {name for name, f in findings.items() if f.verdict == "bad"} == {KEY_FILE, "site policy", "ledger"}
    assert findings["directory"].verdict == "note"


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
    assert "ConnectionRefusedError" in findings["coordinator"].text
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
    assert "SSLCertVerificationError" in reported
    assert "WARDROUND_CA_FILE" in reported


def test_connections_of_the_doctor_do_not_wait(tmp_path: Path) -> None:
    seen: list[Connection] = []

    def dial(connection: Connection) -> Transport:
        seen.append(connection)
        return Transport(connection, handler=httpx.MockTransport(coordinator().answer))

    examine(ClientSettings(client_home=tmp_path, server="https://x"), transport=dial)
    assert [connection.patience_seconds for connection in seen] == [0.0]


def test_a_policy_for_laboratories_is_noted(tmp_path: Path) -> None:
    hospital(coordinator(), tmp_path)
    (tmp_path / "policy.toml").write_text('unpinned_roster = "laboratory"\n')
    finding = found(tmp_path)["site policy"]
    assert (finding.verdict, "for laboratories only" in finding.text) == ("note", True)
