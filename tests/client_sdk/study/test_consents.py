"""A hospital's word on queries that wait."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk.api.calls import POLL_SECONDS
from client_sdk.errors import ConflictError
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.study.consents import NO, YES, HospitalConsents
from client_sdk.study.permission import Permission
from study_protocol.study.messages import Problem
from study_protocol.study.queries import Consent, Query
from tests.factories.hospitals import plain_policy
from tests.factories.settings import settings, statistics_settings
from tests.factories.signed_answers import document, shown

ASKED = document("count")
STUDY = statistics_settings()


class Coordinator:
    """One that shows `queries`, and takes the hospital's word."""

    def __init__(self, *queries: Query) -> None:
        self.shown, self.put, self.closed = queries, list[tuple[int, Consent]](), False

    def queries(self, study: str, state: str) -> Any:
        assert (study, state) == ("registry", "waiting")
        return SimpleNamespace(queries=self.shown)

    def put_consent(self, study: str, number: int, client: str, consent: Consent) -> None:
        if self.closed:
            told = {"type": "x", "title": "x", "status": 409, "code": "begun", "detail": "it began", "request_id": "r"}
            raise ConflictError(Problem.model_validate(told))
        assert (study, client) == ("registry", "mercy")
        self.put.append((number, consent))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(tmp_path / "ledger.db") as opened:
        yield opened


def consents(
    other: Coordinator, directory: Path, ledger: HospitalLedger, study: Any = STUDY, **rules: Any
) -> HospitalConsents:
    policy = plain_policy(statistics=rules)
    permission = Permission("registry", study, policy, Approvals(directory, "registry"), ledger)
    client: Any = other
    able: Any = SimpleNamespace(settings=study, data_version="1")
    membership: Any = SimpleNamespace(study="registry", client="mercy")
    return HospitalConsents(client, membership, policy, able, permission)


def test_a_study_without_questions_is_not_asked_for_any(tmp_path: Path, ledger: HospitalLedger) -> None:
    assert consents(Coordinator(), tmp_path, ledger, settings()).speak() == POLL_SECONDS


def test_the_policy_alone_may_say_yes_or_no(tmp_path: Path, ledger: HospitalLedger) -> None:
    other = Coordinator(shown(ASKED))
    assert consents(other, tmp_path, ledger, queries="allow").speak() < POLL_SECONDS
    assert other.put == [(1, YES)]
    consents(other, tmp_path, ledger, queries="refuse").speak()
    ((_, refusal),) = other.put[1:]
    assert (refusal.allowed, refusal.code) == (False, "policy-queries")
    assert "no question is answered" in refusal.detail


def test_a_person_is_told_once_and_then_waited_for(
    tmp_path: Path, ledger: HospitalLedger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    other = Coordinator(shown(ASKED, number=4))
    speaker = consents(other, tmp_path, ledger)
    speaker.speak()
    speaker.speak()
    assert other.put == []
    (message,) = caplog.messages
    assert message.startswith("query 4 of study registry waits for a person here: How many patients there are.")
    assert message.endswith("`wardround query approve registry 4`")


@pytest.mark.parametrize(("approved", "word"), [(True, YES), (False, NO)])
def test_what_a_person_decided_is_said(tmp_path: Path, ledger: HospitalLedger, approved: bool, word: Consent) -> None:
    other = Coordinator(shown(ASKED))
    Approvals(tmp_path, "registry").decide(ASKED.digest(), approved=approved, words="")
    consents(other, tmp_path, ledger).speak()
    assert other.put == [(1, word)]


def test_a_word_that_stands_there_is_not_said_again_and_another_replaces_it(
    tmp_path: Path, ledger: HospitalLedger
) -> None:
    entries = [{"client": "mercy", "consent": YES}, {"client": "grace", "consent": NO}]
    other = Coordinator(shown(ASKED, consents=entries))
    consents(other, tmp_path, ledger, queries="allow").speak()
    assert other.put == []
    Approvals(tmp_path, "registry").decide(ASKED.digest(), approved=False, words="")
    consents(other, tmp_path, ledger).speak()
    assert other.put == [(1, NO)]


def test_a_query_that_began_meanwhile_takes_no_word_and_stops_nobody(
    tmp_path: Path, ledger: HospitalLedger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    other = Coordinator(shown(ASKED))
    other.closed = True
    consents(other, tmp_path, ledger, queries="allow").speak()
    (message,) = caplog.messages
    assert message.startswith("query 1 ")
    assert "it began" in message
