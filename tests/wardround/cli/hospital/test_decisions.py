"""People at a hospital who agree, decline and withdraw on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import client_sdk.guard.people as people
import wardround.cli.hospital.agreement as agreement
from client_sdk.errors import ConfigurationError
from client_sdk.guard.decision import Subject
from client_sdk.guard.decisions import DECISIONS_FILE, decide, decisions_in
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.people import DecidingPerson, SystemAccount
from client_sdk.guard.policy import ApprovalRule
from tests.factories.commands import Run, opened
from tests.factories.live_coordinator import Live
from wardround.cli.hospital.decisions import require_digest


@pytest.fixture
def as_account(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Act under an account of this number."""

    def act(uid: int) -> None:
        monkeypatch.setattr(people, "_login_uid", lambda: uid)

    return act


def digest_of(run: Run, *command: str) -> str:
    """The digest that the command asks to be repeated, where there is no terminal."""
    words = " ".join(run(*command, code=1).stderr.split())
    return words.rpartition("--digest ")[2].strip()


def test_two_people_agree_to_a_policy_and_the_list_shows_them(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_account: Any
) -> None:
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path))
    (tmp_path / "policy.toml").write_text('excluded_patients = ["p7"]\n[approval]\npeople = 2\n')
    assert "no person has decided" in run("decision", "list").stdout
    digest = digest_of(run, "policy", "agree")
    agree = ("policy", "agree", "--yes", "--digest", digest)
    as_account(1_000_001)
    shown = run(*agree, "--as", "Ada", "--role", "privacy officer", "--reason", "as discussed").stdout
    assert "1 of 2 people have agreed (Ada (account user 1000001, privacy officer))" in " ".join(shown.split())
    assert "p7" not in shown
    # One person with two names.
    assert "1 more has to agree" in " ".join(run(*agree, "--as", "Eve").stdout.split())
    run("decision", "withdraw", "2", "--as", "Eve")
    assert "Eve" in run("decision", "withdraw", "2", "--as", "Eve", code=1).stderr
    as_account(1_000_002)
    assert "approved by Bob" in run(*agree, "--as", "Bob").stdout
    listed = json.loads(run("decision", "list", "--json").stdout)
    assert [(each["number"], each["decision"], each["person"]["name"]) for each in listed] == [
        (1, "agree", "Ada"),
        (2, "agree", "Eve"),
        (3, "withdraw", "Eve"),
        (4, "agree", "Bob"),
    ]
    assert {each["sha256"] for each in listed} == {digest}
    assert listed[0]["person"]["reason"] == "as discussed"
    assert "as discussed" in " ".join(run("decision", "list").stdout.split())
    # An edited file is another policy, also for fewer people.
    (tmp_path / "policy.toml").write_text("[approval]\npeople = 1\n")
    edited = digest_of(run, "policy", "agree")
    assert edited != digest
    shown = run("policy", "agree", "--yes", "--digest", edited, "--as", "Bob").stdout
    assert "1 of 2 people have agreed" in " ".join(shown.split())
    assert "declined by Ada" in run("decision", "decline", "5", "--as", "Ada").stdout
    refused = run("policy", "agree", "--yes", "--digest", digest, code=1).stderr
    assert "another one than the one that you read" in " ".join(refused.split())


def test_what_is_missing_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path))
    (tmp_path / "policy.toml").write_text("[approval]\nneeds_reason = true\n")
    digest = digest_of(run, "policy", "agree")
    assert "add --reason" in run("policy", "agree", "--yes", "--digest", digest, code=1).stderr
    assert "--digest" in run("policy", "agree", "--yes", code=1).stderr
    assert "there is no decision 9" in run("decision", "withdraw", "9", code=1).stderr
    signed = ("policy", "agree", "--yes", "--digest", digest, "--reason", "why", "--as")
    assert "a person's name" in run(*signed, "\x07", code=1).stderr
    assert decisions_in(tmp_path) == []


@pytest.mark.slow
def test_a_second_person_agrees_to_the_terms_of_a_study(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_account: Any
) -> None:
    opened(run, tmp_path)
    assert "no ledger" in run("agree", "sepsis", code=1).stderr
    home = tmp_path / "mercy"
    (home / "policy.toml").write_text(
        "plain_disclosure = true\nlargest_delta = 0.5\nlargest_epsilon = 1e9\nleast_noise_multiplier = 1e-9\n"
        "[approval]\npeople = 2\n"
    )
    HospitalLedger.open(ledger_path(home, "records")).close()
    monkeypatch.setattr(agreement, "at_a_terminal", lambda: True)
    as_account(1_000_001)
    declined = run("agree", "sepsis", "--as", "Ada", code=1, input="n\n")
    assert "Take part under these terms?" in declined.output
    assert "1 of 2 people have agreed" in " ".join(run("agree", "sepsis", "--as", "Ada", input="y\n").stdout.split())
    as_account(1_000_002)
    assert "approved by Bob" in " ".join(run("agree", "sepsis", "--as", "Bob", input="y\n").stdout.split())
    terms = [each for each in decisions_in(home) if each.subject.kind == "terms"]
    assert [str(each.person and each.person.name) for each in terms] == ["Ada", "Bob"]


def test_the_list_says_that_decisions_were_removed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path))
    about, ada = Subject("terms", "sepsis", "ab" * 32, "take part"), DecidingPerson("Ada", account=SystemAccount("1"))
    decide(tmp_path, about, "agree", ada, ApprovalRule())
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        ledger.mark_decisions(decisions_in(tmp_path), ApprovalRule())
    assert "Ada" in run("decision", "list").stdout
    (tmp_path / DECISIONS_FILE).unlink()
    for options in ((), ("--json",)):
        assert "lacks decision 1" in " ".join(run("decision", "list", *options, code=1).stderr.split())


@pytest.mark.parametrize(("read", "yes"), [(None, True), ("ab" * 31, False), ("AB" * 32, False)])
def test_a_digest_is_whole_and_needed_where_no_person_is_asked(read: str | None, yes: bool) -> None:
    with pytest.raises(ConfigurationError, match="--digest"):
        require_digest(read, yes=yes)
    require_digest("ab" * 32, yes=True)
