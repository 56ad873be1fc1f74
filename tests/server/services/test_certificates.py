"""The coordinator certifies what its ledger says, to whoever may read, and nothing of a database that differs."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from sqlalchemy import text

from accounting.budget import history
from accounting.budget.ledger import Entry
from server.db.session import Transaction
from server.domain.errors import Rejected
from server.services import certificates, views
from server.services.certificates import certificate
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.studies import lifecycle
from server.worker import Worker
from study_protocol.documents import check
from study_protocol.documents.certify import Facts, compute_account, issue_certificate
from study_protocol.study.certificate import Certificate
from tests.factories.hospital_double import Hospital, update
from tests.factories.studies import FakeClock, open_study


def work(coordinator: Coordinator) -> None:
    worker = Worker(coordinator)
    while worker.step():
        pass


def train(coordinator: Coordinator, hospitals: list[Hospital], *rounds: int) -> None:
    for round in rounds:
        work(coordinator)
        for hospital in hospitals:
            hospital.send(round, update())
        work(coordinator)


def opened(coordinator: Coordinator, round: int | None = None) -> check.OpenedCertificate:
    return check.open_certificate(certificate(coordinator, "sepsis", round).model_dump_json().encode())


@pytest.mark.quick("sqlite")
def test_it_holds_the_numbers_of_the_budget_and_follows_from_the_ledger(coordinator: Coordinator) -> None:
    train(coordinator, open_study(coordinator), 1, 2)
    found = opened(coordinator)
    stated, budget = found.certificate, views.read_budget(coordinator, "sepsis")
    assert [limit.model_dump(exclude={"meaning"}) for limit in stated.limits] == [
        limit.model_dump() for limit in budget.limits
    ]
    assert stated.model == views.locate_model(coordinator, "sepsis").info
    assert check.check_signature(found, coordinator.signer.public_key, "the key", is_confirmed=True).result == "good"
    entries = [Entry.from_dict(one.model_dump(mode="json")) for one in ledger_page(coordinator, "sepsis").entries]
    assert {one.result for one in check.check_ledger(stated, entries)} == {"good"}
    # Who takes part is nowhere in it; keys and signatures may hold any two letters.
    assert re.search(r"\bh[0-2]\b", json.dumps(found.raw["certificate"]["members"])) is None
    assert not any(word in json.dumps(found.raw) for word in ('"h0"', '"h1"', '"h2"', " h0", " h1", " h2"))
    assert (stated.members.active, stated.members.least, stated.members.most) == (3, 3, 3)


@pytest.mark.quick("sqlite")
def test_a_model_s_certificate_stays_what_it_was_while_the_study_goes_on(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator)
    train(coordinator, hospitals, 1)
    before = certificate(coordinator, "sepsis", 1).certificate
    train(coordinator, hospitals, 2)
    after = certificate(coordinator, "sepsis", 1).certificate
    assert [limit.spent for limit in before.limits] == [limit.spent for limit in after.limits]
    assert (before.model, before.round) == (after.model, 1)
    for round, code in ((3, "unknown-model"), (99, "unknown-model")):
        with pytest.raises(Rejected, match="released no model") as refused:
            certificate(coordinator, "sepsis", round)
        assert refused.value.code == code


@pytest.mark.quick("sqlite")
def test_before_the_first_round_there_is_no_model_and_nothing_is_spent(coordinator: Coordinator) -> None:
    open_study(coordinator)
    stated = certificate(coordinator, "sepsis").certificate
    assert (stated.round, stated.model, stated.spent_after, stated.members.least) == (0, None, [], None)
    assert {limit.spent for limit in stated.limits} == {0.0, None}


@pytest.mark.quick("sqlite")
def test_nothing_is_certified_of_a_database_that_differs(coordinator: Coordinator) -> None:
    train(coordinator, open_study(coordinator), 1)
    _forge(coordinator, 2)
    with pytest.raises(Rejected) as refused:
        certificate(coordinator, "sepsis")
    assert refused.value.code == "study-finished"


def _forge(coordinator: Coordinator, sequence: int) -> None:
    forged = text(f"UPDATE ledger SET body = replace(body, :said, :other) WHERE sequence = {sequence}")
    with coordinator.database.engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            for name in connection.execute(text(triggers)).scalars().all():
                connection.execute(text(f"DROP TRIGGER {name}"))
        else:
            connection.execute(text("ALTER TABLE ledger DISABLE TRIGGER USER"))
        assert connection.execute(forged, {"said": '"members":', "other": '"members":1'}).rowcount == 1


class Reads:
    """How many entries of the ledger were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries, read = 0, certificates.entries

        def counted(tx: Transaction, study_id: int, after: int, limit: int) -> list[Entry]:
            found = read(tx, study_id, after, limit)
            self.entries += len(found)
            return found

        monkeypatch.setattr(certificates, "entries", counted)

    def take(self) -> int:
        taken, self.entries = self.entries, 0
        return taken


def _whole(coordinator: Coordinator) -> list[Entry]:
    page = ledger_page(coordinator, "sepsis").entries
    return [Entry.from_dict(one.model_dump(mode="json")) for one in page]


@pytest.mark.slow
def test_no_entry_is_read_twice_for_a_certificate(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MILESTONE_ROUNDS", 2)
    reads, hospitals = Reads(monkeypatch), open_study(coordinator, max_steps=10, noise_multiplier=8.0)
    train(coordinator, hospitals, 1, 2, 3, 4, 5)
    for round in (None, 5, 4, 3, 2, 1):
        certificate(coordinator, "sepsis", round)
    # Every entry once, and for each earlier round those alone between two milestones: of at most two rounds.
    assert reads.take() <= len(_whole(coordinator)) + 5 * 2 * 2
    for round in (None, 5, 4, 3, 2, 1, 1, None):
        certificate(coordinator, "sepsis", round)
    assert reads.take() == 0
    before = len(_whole(coordinator))
    train(coordinator, hospitals, 6)
    for round in (1, 2, 3, 4, 5):
        certificate(coordinator, "sepsis", round)
    # What is new, for all of them together.
    assert reads.take() == len(_whole(coordinator)) - before


@pytest.mark.slow
def test_what_was_walked_in_parts_is_what_the_whole_ledger_says(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MILESTONE_ROUNDS", 2)
    hospitals = open_study(coordinator, max_steps=10, noise_multiplier=8.0)
    for last in range(1, 7):
        train(coordinator, hospitals, last)
        for round in (None, *range(last, 0, -1)):
            stated = certificate(coordinator, "sepsis", round).certificate
            assert stated == issue_certificate(compute_account(_whole(coordinator), round), facts_of(stated))


def facts_of(stated: Certificate) -> Facts:
    signature = stated.ledger.signature
    said = {name: getattr(stated, name) for name in ("title", "state", "stop_reason", "issued_at", "coordinator_key")}
    return Facts(**said, head_signature=signature, model=stated.model)


@pytest.mark.slow
def test_the_entry_that_names_the_model_is_the_same_from_caches_and_without(
    coordinator: Coordinator, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every single step of the worker, with rounds that release nothing and to the study's end."""
    monkeypatch.setattr(history, "MILESTONE_ROUNDS", 2)
    hospitals, worker = open_study(coordinator, max_steps=10, noise_multiplier=8.0), Worker(coordinator)
    compared = 0
    for round, senders in ((1, hospitals), (2, hospitals[:1]), (3, hospitals), (4, hospitals), (5, [])):
        while worker.step():
            compared += _compared(coordinator)
        for hospital in senders:
            hospital.send(round, update())
        if len(senders) < len(hospitals):
            for hospital in hospitals[len(senders) :]:
                hospital.refuse(round)
        while worker.step():
            compared += _compared(coordinator)
        if len(senders) < len(hospitals):
            # A round that came to nothing is followed by a pause.
            clock.sleep(3600.0)
    lifecycle.act(coordinator, "sepsis", "stop")
    compared += _compared(coordinator)
    assert certificate(coordinator, "sepsis").certificate.state == "finished"
    assert compared > 20


def _compared(coordinator: Coordinator) -> int:
    """How many certificates, of every model and the newest, were held against one that nothing was kept for."""
    whole = _whole(coordinator)
    named = {entry.round: entry for entry in whole if entry.kind == "released" and entry.round is not None}
    for round in (None, *named):
        kept = certificate(coordinator, "sepsis", round).certificate
        fresh = certificate(replace(coordinator, certified={}, walks={}), "sepsis", round).certificate
        assert kept.model_copy(update={"issued_at": fresh.issued_at}) == fresh
        wanted = named.get(max(named, default=0) if round is None else round)
        assert kept.ledger.released == (None if wanted is None else wanted.sequence)
        if wanted is not None:
            assert kept.model is not None
            assert (kept.model.version, kept.model.sha256) == (wanted.round, wanted.body["sha256"])
    return len(named) + 1


@pytest.mark.quick("sqlite")
def test_a_ledger_that_was_rewritten_behind_a_milestone_is_not_certified(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was walked over once is held against its hash when it is read again."""
    monkeypatch.setattr(history, "MILESTONE_ROUNDS", 2)
    train(coordinator, open_study(coordinator), 1, 2, 3)
    certificate(coordinator, "sepsis")
    _forge(coordinator, 4)
    with pytest.raises(Rejected) as refused:
        certificate(coordinator, "sepsis", 1)
    assert refused.value.code == "study-finished"
