"""The ledger of what people at a hospital decided."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.decision import Subject, SubjectKind
from client_sdk.guard.decisions import DECISIONS_FILE, DecisionLedger, decide, decision_numbered, decisions_in
from client_sdk.guard.ledger_chain import DECLARED
from client_sdk.guard.people import DecidingPerson, SystemAccount
from client_sdk.guard.policy import ApprovalRule, SitePolicy
from client_sdk.guard.standing import standing_of
from study_protocol.files.private import exposure

ONE, TWO = ApprovalRule(), ApprovalRule(people=2)
ADA = DecidingPerson("Ada", "privacy officer", "agreed on the telephone", SystemAccount("1000", "ada"))
BOB = DecidingPerson("Bob", account=SystemAccount("1001", "bob"))


def subject(kind: SubjectKind = "terms", sha256: str = "ab" * 32) -> Subject:
    return Subject(kind, "sepsis", sha256, "take part")


def test_an_entry_holds_time_person_role_reason_account_and_digest(tmp_path: Path) -> None:
    decide(tmp_path, subject(), "agree", ADA, ONE)
    (decision,) = decisions_in(tmp_path)
    assert (decision.number, decision.verdict, decision.subject, decision.person) == (1, "agree", subject(), ADA)
    assert decision.at.endswith("+00:00")
    assert len(decision.sha256) == 64
    assert exposure(tmp_path / DECISIONS_FILE) is None


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, 'Ada', 'Eve') WHERE sequence = 1",
        "UPDATE entries SET body = replace(body, 'agree', 'decline') WHERE sequence = 1",
        "DELETE FROM entries WHERE sequence = 1",
        "DELETE FROM entries WHERE sequence = 2",
        "UPDATE entries SET sequence = 9 WHERE sequence = 2",
    ],
)
def test_a_changed_or_removed_entry_is_found(tmp_path: Path, change: str) -> None:
    for person in (ADA, BOB, ADA):
        decide(tmp_path, subject(), "agree", person, TWO)
    with closing(sqlite3.connect(tmp_path / DECISIONS_FILE)) as connection, connection:
        connection.execute(change)
    with pytest.raises(LedgerDamaged):
        decisions_in(tmp_path)
    with pytest.raises(LedgerDamaged):
        decide(tmp_path, subject(), "agree", BOB, TWO)


def test_what_is_in_force_is_not_declined_but_ended_in_another_way(tmp_path: Path) -> None:
    for kind, words in (("terms", "wardround withdraw sepsis"), ("policy", "change the"), ("roster", "pin another")):
        about = Subject(kind, "sepsis" if kind != "policy" else "", "ab" * 32, "", ONE if kind == "policy" else None)
        decide(tmp_path, about, "agree", ADA, ONE)
        with pytest.raises(ConfigurationError, match=words):
            decide(tmp_path, about, "decline", BOB, ONE)
    decide(tmp_path, subject("question"), "agree", ADA, ONE)
    assert decide(tmp_path, subject("question"), "decline", BOB, ONE).declined is not None


def test_only_an_agreement_of_ones_own_that_waits_is_taken_back(tmp_path: Path) -> None:
    decide(tmp_path, subject(), "agree", ADA, TWO)
    eve = DecidingPerson("Ada", account=SystemAccount("1002"))
    for other in (BOB, eve):
        with pytest.raises(ConfigurationError, match="nothing was written"):
            decide(tmp_path, subject(), "withdraw", other, TWO)
    assert decide(tmp_path, subject(), "withdraw", ADA, TWO).agreed == ()
    decide(tmp_path, subject(), "agree", ADA, TWO)
    decide(tmp_path, subject(), "agree", BOB, TWO)
    with pytest.raises(ConfigurationError, match="nothing was written"):
        decide(tmp_path, subject(), "withdraw", ADA, TWO)


def test_a_reason_is_asked_for_where_a_policy_does(tmp_path: Path) -> None:
    strict = SitePolicy(approval=ApprovalRule(needs_reason=True))
    with pytest.raises(ConfigurationError, match="--reason"):
        decide(tmp_path, subject(), "agree", BOB, strict.approval)
    decide(tmp_path, Subject.of_policy(strict), "agree", ADA, strict.approval)
    # Also under a file that was edited since.
    with pytest.raises(ConfigurationError, match="--reason"):
        decide(tmp_path, subject(), "decline", BOB, ONE)
    assert len(decisions_in(tmp_path)) == 1


def test_earlier_approvals_are_taken_over_once_and_name_no_person(tmp_path: Path) -> None:
    folder = tmp_path / "outbox" / "sepsis" / "queries"
    folder.mkdir(parents=True)
    (folder / f"{'ab' * 32}.json").write_text(json.dumps({"approved": True, "question": "one", "at": "2026-01-01"}))
    (folder / f"{'cd' * 32}.json").write_text(json.dumps({"approved": False, "question": "two", "id": "01"}))
    assert [each.person_in_words for each in decisions_in(tmp_path)] == ["not recorded"] * 2
    decide(tmp_path, subject(), "agree", ADA, ONE)
    (folder / f"{'ef' * 32}.json").write_text(json.dumps({"approved": True, "question": "forged"}))
    listed = decisions_in(tmp_path)
    assert [(each.person_in_words, each.verdict, each.identity) for each in listed[:2]] == [
        ("not recorded", "agree", None),
        ("not recorded", "decline", "01"),
    ]
    assert len(listed) == 3


def _agree(home: Path, name: str) -> None:
    decide(home, subject(), "agree", DecidingPerson(name, account=SystemAccount(name)), TWO)


@pytest.mark.slow
def test_processes_that_decide_at_once_write_one_chain(tmp_path: Path) -> None:
    names = ["ada", "bob", "carol", "dave"]
    processes = [multiprocessing.get_context("spawn").Process(target=_agree, args=(tmp_path, name)) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(names)
    people = [each.person.name for each in decisions_in(tmp_path) if each.person is not None]
    assert sorted(people) == names


def test_a_number_that_is_none_is_named(tmp_path: Path) -> None:
    DecisionLedger.open_in(tmp_path).close()
    with pytest.raises(ConfigurationError, match="there is no decision 3"):
        decision_numbered(decisions_in(tmp_path), 3)


def test_the_digest_of_a_policy_is_of_its_rules_and_not_of_its_comments(tmp_path: Path) -> None:
    texts = ['largest_epsilon = 3.0\nstudies = ["a", "b"]', '# new\nstudies = ["b", "a"]\nlargest_epsilon = 3']
    paths = [tmp_path / f"{place}.toml" for place in range(2)]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    first, second = (SitePolicy.read(path) for path in paths)
    assert first.digest() == second.digest()
    # What is left out may mean something else than its default beside another entry.
    assert SitePolicy(allow_three=True).digest() != SitePolicy(allow_three=True, least_survivors=4).digest()
    (tmp_path / "left-out.txt").write_text("p1\n")
    paths[0].write_text(f'excluded_patients_file = "left-out.txt"\n{texts[0]}')
    assert SitePolicy.read(paths[0]).digest() != first.digest()


ENTRY = {
    "kind": "terms",
    "of": "sepsis",
    "sha256": "ab" * 32,
    "words": "take part",
    "rule": None,
    "verdict": "agree",
    "person": ADA.to_dict(),
    "at": "2026-11-27T12:00:00+00:00",
}


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "delegate"},
        {"kind": "export"},
        {"valid_until": "2027-01-01"},
        {"person": None, "rule": {"people": 0}},
        {"person": {"name": "Ada"}},
        {"person": ADA.to_dict() | {"name": "A\x1b[2J"}},
        {"at": 5},
    ],
    ids=lambda change: "-".join(change),
)
def test_an_entry_that_is_no_known_decision_is_one_sentence(tmp_path: Path, change: dict[str, object]) -> None:
    class Newer(DecisionLedger):
        def write(self) -> None:
            with self._writing():
                self._append(DECLARED, "/decision", None, ENTRY | change)

    with Newer.open(tmp_path / DECISIONS_FILE) as ledger:
        ledger.write()
    with pytest.raises(LedgerDamaged, match=r"entry 1 of decisions\.db is no decision that this version knows"):
        decisions_in(tmp_path)
    with pytest.raises(LedgerDamaged):
        decide(tmp_path, subject(), "agree", BOB, TWO)


def test_earlier_approvals_count_until_a_ledger_has_taken_them_over(tmp_path: Path) -> None:
    folder = tmp_path / "outbox" / "sepsis" / "queries"
    folder.mkdir(parents=True)
    (folder / f"{'ab' * 32}.json").write_text(json.dumps({"approved": False, "question": "one"}))
    # As a process leaves it that ends between the two steps.
    DecisionLedger.open(tmp_path / DECISIONS_FILE).close()
    assert [each.verdict for each in decisions_in(tmp_path)] == ["decline"]
    decide(tmp_path, subject(), "agree", ADA, ONE)
    assert [each.number for each in decisions_in(tmp_path)] == [1, 2]


def test_the_order_of_entries_counts_and_no_clock(tmp_path: Path) -> None:
    about = subject("question")
    for day, verdict in ((27, "agree"), (2, "decline")):
        moment = datetime(2026, 11, day, tzinfo=UTC)
        with DecisionLedger.open(tmp_path / DECISIONS_FILE, now=lambda moment=moment: moment) as ledger:
            ledger.decide(about, verdict, ADA, ONE)
    standing = standing_of(decisions_in(tmp_path), about, ONE)
    assert standing.effective is None
    assert standing.in_words == "declined by Ada (account ada, privacy officer) on 2026-11-02"
