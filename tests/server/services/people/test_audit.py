"""The audit log: an entry in the transaction of each change, with the right actor, and nothing taken away unseen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from server.db.ledger_store import entries as ledger_entries
from server.db.rows import find_study
from server.domain.change_request import ChangeRequest
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people.audit import acting, read_log
from server.services.people.keys import create_key, revoke_key
from server.services.studies import enrolment, lifecycle
from study_protocol.study.audit_log import Actor, AuditPage
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.people import ApiKeyCreate
from tests.factories.settings import settings
from tests.factories.studies import FakeClock, open_study

ADA = Actor(kind="key", id="4f1c9b", name="Ada", role="lead")
Broken = Callable[[Coordinator], None]


def by_ada(coordinator: Coordinator, action: str, study: str | None = "sepsis") -> Coordinator:
    return acting(coordinator, ChangeRequest(ADA, study, action, f"/v1/studies/{study}/x", "request-1", "a" * 64))


@pytest.fixture
def logged(coordinator: Coordinator) -> Coordinator:
    """A study with three entries."""
    request = StudyCreate(study="sepsis", settings=settings())
    lifecycle.create(by_ada(coordinator, "create_study", None), request)
    for name in ("north", "south"):
        enrolment.invite(by_ada(coordinator, "invite"), "sepsis", InvitationCreate(client=name))
    return coordinator


def page(coordinator: Coordinator, study: str | None = "sepsis") -> AuditPage:
    return read_log(coordinator, study, 0, 500)


def operated(coordinator: Coordinator) -> list[dict[str, Any]]:
    found = coordinator.database.read("x", lambda tx: ledger_entries(tx, find_study(tx, "sepsis").id, 0, 500))
    return [dict(entry.body) for entry in found if entry.kind == "operated"]


def test_each_change_has_an_entry_with_its_actor(logged: Coordinator) -> None:
    shown = page(logged)
    assert shown.fault is None
    assert [entry.event.action for entry in shown.entries] == ["create_study", "invite", "invite"]
    for entry in shown.entries:
        assert (entry.event.actor, entry.event.request_id, entry.event.body_sha256) == (ADA, "request-1", "a" * 64)
    # A study's creation is in the coordinator's log as well, which lists all studies.
    assert [entry.event.action for entry in page(logged, None).entries] == ["create_study"]


def test_the_hash_of_an_entry_is_that_of_its_json(logged: Coordinator) -> None:
    previous = "0" * 64
    for entry in page(logged).entries:
        content = json.loads(entry.model_dump_json())
        assert content.pop("sha256") == entry.sha256
        assert content["previous"] == previous
        raw = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(raw.encode()).hexdigest() == entry.sha256
        previous = entry.sha256


def test_hospitals_see_the_person_in_the_ledger(logged: Coordinator) -> None:
    found = operated(logged)
    assert [(body["action"], body["actor"], body["role"]) for body in found] == [
        ("create", "Ada", "lead"),
        ("invite", "Ada", "lead"),
        ("invite", "Ada", "lead"),
    ]
    assert [body.get("client") for body in found] == [None, "north", "south"]
    hashes = {entry.sequence: entry.sha256 for entry in page(logged).entries}
    assert [hashes[body["audit_entries"]] for body in found] == [body["audit_sha256"] for body in found]


def test_a_refused_change_leaves_no_entry(logged: Coordinator) -> None:
    with pytest.raises(Rejected, match="model-missing"):
        lifecycle.act(by_ada(logged, "start_study"), "sepsis", "start")
    assert len(page(logged).entries) == 3
    assert len(operated(logged)) == 3


def test_a_change_that_cannot_be_committed_leaves_no_entry(logged: Coordinator) -> None:
    """Both are in one transaction: what fails after the change, as a crash, undoes the entry with it."""
    bound = by_ada(logged, "invite")

    def crash(tx: Any) -> None:
        tx.session.execute(text("UPDATE studies SET title = 'changed'"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bound.database.write("crash", crash)
    assert len(page(logged).entries) == 3
    assert lifecycle.show(logged, "sepsis").title != "changed"


def test_keys_are_in_the_log_of_the_coordinator(coordinator: Coordinator) -> None:
    machine = Actor(kind="machine", name="root")
    bound = acting(coordinator, ChangeRequest(machine, None, "create_key"))
    create_key(bound, ApiKeyCreate(role="viewer", name="Grace"))
    (entry,) = page(coordinator, None).entries
    assert (entry.study, entry.event.actor, entry.event.action) == (None, machine, "create_key")


def test_pages_follow_each_other(logged: Coordinator) -> None:
    first = read_log(logged, "sepsis", 0, 2)
    second = read_log(logged, "sepsis", 2, 2)
    assert [e.sequence for e in (*first.entries, *second.entries)] == [1, 2, 3]
    assert (first.next, second.next, first.fault, second.fault) == (2, None, None, None)
    with pytest.raises(Rejected, match="unknown-study"):
        read_log(logged, "nowhere", 0, 2)


def _without_triggers(coordinator: Coordinator, *statements: str) -> None:
    """As a person with the database's own password could."""

    def work(tx: Any) -> None:
        if tx.session.get_bind().dialect.name == "postgresql":
            tx.session.execute(text("ALTER TABLE audit_log DISABLE TRIGGER ALL"))
        else:
            for action in ("update", "delete"):
                tx.session.execute(text(f"DROP TRIGGER IF EXISTS audit_log_no_{action}"))
        for statement in statements:
            tx.session.execute(text(statement))

    coordinator.database.write("tamper", work)


_IN = "WHERE study = 'sepsis' AND sequence"
CHANGES = {
    "another name": f"UPDATE audit_log SET event = replace(event, 'Ada', 'Eve') {_IN} = 2",
    "another name at the end": f"UPDATE audit_log SET event = replace(event, 'Ada', 'Eve') {_IN} = 3",
    "another hash": f"UPDATE audit_log SET sha256 = '{'b' * 64}' {_IN} = 1",
    "no JSON": f"UPDATE audit_log SET event = 'x' {_IN} = 2",
    "removed first": f"DELETE FROM audit_log {_IN} = 1",
    "removed between": f"DELETE FROM audit_log {_IN} = 2",
    "removed last": f"DELETE FROM audit_log {_IN} = 3",
    "removed all": "DELETE FROM audit_log WHERE study = 'sepsis'",
    "removed head": "DELETE FROM audit_heads WHERE study = 'sepsis'",
    "other head": f"UPDATE audit_heads SET sha256 = '{'b' * 64}' WHERE study = 'sepsis'",
    "shorter head": "UPDATE audit_heads SET entries = 2 WHERE study = 'sepsis'",
    "no signature": "UPDATE audit_heads SET signature = NULL WHERE study = 'sepsis'",
    "added": (
        "INSERT INTO audit_log (study, sequence, event, previous, sha256, written_by) SELECT study, 4, event, sha256, "
        f"sha256, written_by FROM audit_log {_IN} = 3"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_in_the_database_is_found(logged: Coordinator, change: str) -> None:
    _without_triggers(logged, CHANGES.get(change, change))
    assert page(logged).fault is not None
    # A study can be stopped all the same, and the fault stays.
    lifecycle.act(by_ada(logged, "stop_study"), "sepsis", "stop")
    assert lifecycle.show(logged, "sepsis").state == "finished"
    assert page(logged).fault is not None


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE audit_log SET sequence = 'x' {_IN} = 2",
        f"UPDATE audit_log SET sequence = 'x' {_IN} = 3",
        f"UPDATE audit_log SET sequence = 9223372036854775807 {_IN} = 3",
        f"UPDATE audit_log SET sequence = 2.5 {_IN} = 3",
        "UPDATE audit_heads SET signature = x'78' WHERE study = 'sepsis'",
    ],
)
def test_a_value_of_another_type_is_found_and_stops_nothing(logged: Coordinator, change: str) -> None:
    if logged.database.engine.dialect.name == "postgresql":
        pytest.skip("it keeps the types of columns")
    test_what_is_changed_in_the_database_is_found(logged, change)


def test_a_log_with_new_hashes_is_not_signed(logged: Coordinator) -> None:
    """Whoever writes all hashes anew lacks the coordinator's key."""
    entries = page(logged).entries
    forged = entries[0].model_copy(update={"event": entries[0].event.model_copy(update={"action": "invite"})})
    sha256 = forged.model_copy(update={"sha256": ""}).digest()
    body = json.dumps(forged.event.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).replace("'", "''")
    _without_triggers(
        logged,
        f"DELETE FROM audit_log {_IN} > 1",
        f"UPDATE audit_log SET event = '{body}', sha256 = '{sha256}' {_IN} = 1".replace(":", r"\:"),
        f"UPDATE audit_heads SET entries = 1, sha256 = '{sha256}' WHERE study = 'sepsis'",
    )
    assert page(logged).fault == "the head of the audit log is not signed by the coordinator"


def test_rows_cannot_be_changed_as_they_are(logged: Coordinator) -> None:
    for statement in ("UPDATE audit_log SET event = 'x'", "DELETE FROM audit_log"):
        with pytest.raises(Exception, match="append-only"):
            logged.database.write("x", lambda tx, statement=statement: tx.session.execute(text(statement)))


FORGED = {
    "two rows exchanged": [
        f"UPDATE audit_log SET sequence = 9 {_IN} = 1",
        f"UPDATE audit_log SET sequence = 1 {_IN} = 2",
        f"UPDATE audit_log SET sequence = 2 {_IN} = 9",
    ],
    "numbered anew after a removal": [
        f"DELETE FROM audit_log {_IN} = 2",
        f"UPDATE audit_log SET sequence = 2 {_IN} = 3",
        "UPDATE audit_heads SET entries = 2 WHERE study = 'sepsis'",
    ],
    "the log of another study": [
        "DELETE FROM audit_log WHERE study = 'sepsis'",
        "DELETE FROM audit_heads WHERE study = 'sepsis'",
        "UPDATE audit_log SET study = 'sepsis' WHERE study = 'icu'",
        "UPDATE audit_heads SET study = 'sepsis' WHERE study = 'icu'",
    ],
    "the entry of an upgrade as a second one": [
        "INSERT INTO audit_log (study, sequence, event, previous, sha256, written_by) SELECT study, 4, "
        """replace(event, '"kind":"key"', '"kind":"unknown"'), sha256, sha256, written_by """
        f"FROM audit_log {_IN} = 3".replace(":", r"\:"),
        "UPDATE audit_heads SET entries = 4, signature = NULL WHERE study = 'sepsis'",
    ],
}


@pytest.mark.parametrize("forgery", FORGED)
def test_rows_moved_within_or_between_logs_are_found(logged: Coordinator, forgery: str) -> None:
    lifecycle.create(by_ada(logged, "create_study", None), StudyCreate(study="icu", settings=settings()))
    for name in ("east", "west"):
        enrolment.invite(by_ada(logged, "invite", "icu"), "icu", InvitationCreate(client=name))
    assert page(logged, "icu").fault is None
    _without_triggers(logged, *FORGED[forgery])
    assert page(logged).fault is not None


def test_a_clock_set_back_neither_stops_nor_breaks_the_log(logged: Coordinator, clock: FakeClock) -> None:
    clock.seconds -= 3600
    enrolment.invite(by_ada(logged, "invite"), "sepsis", InvitationCreate(client="west"))
    shown = page(logged)
    assert shown.fault is None
    # It is seen: entries have an order of their own.
    assert shown.entries[-1].event.at < shown.entries[-2].event.at


def _at_once(work: Callable[[int], object], number: int) -> None:
    with ThreadPoolExecutor(number) as pool:
        for done in [pool.submit(work, each) for each in range(number)]:
            done.result()


def test_changes_at_once_leave_a_log_without_gaps(logged: Coordinator) -> None:
    """Of one study, of the coordinator, and of both."""

    def change(number: int) -> None:
        if number % 3 == 0:
            enrolment.invite(by_ada(logged, "invite"), "sepsis", InvitationCreate(client=f"h{number}"))
            return
        study = "sepsis" if number % 3 == 1 else None
        create_key(by_ada(logged, "create_key", None), ApiKeyCreate(role="viewer", study=study, name=f"h{number}"))

    _at_once(change, 50)
    of_study, own = page(logged), page(logged, None)
    assert (of_study.fault, own.fault) == (None, None)
    names = [entry.event.key.name for entry in own.entries if entry.event.key is not None]
    assert sorted(names) == sorted(f"h{number}" for number in range(50) if number % 3)
    assert [entry.event.action for entry in of_study.entries[3:]].count("invite") == 17
    assert len(of_study.entries) == 3 + 17 + 17
    assert len(operated(logged)) == 3 + 17


def test_the_first_entries_of_a_log_at_once(coordinator: Coordinator) -> None:
    def create(number: int) -> None:
        create_key(by_ada(coordinator, "create_key", None), ApiKeyCreate(role="viewer", name=f"h{number}"))

    _at_once(create, 20)
    shown = page(coordinator, None)
    assert shown.fault is None
    assert [entry.sequence for entry in shown.entries] == list(range(1, 21))


def test_an_ended_session_changes_nothing(coordinator: Coordinator) -> None:
    asked = ChangeRequest(ADA.model_copy(update={"kind": "session"}), None, "create_key", session="ffff")
    with pytest.raises(Rejected, match="bad-token"):
        create_key(acting(coordinator, asked), ApiKeyCreate(role="viewer", name="Grace"))
    assert page(coordinator, None).entries == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET sequence = 'x' WHERE sequence = 3 AND study = 'sepsis'",
        "UPDATE audit_log SET sequence = 2.5 WHERE sequence = 3 AND study = 'sepsis'",
        "UPDATE audit_log SET sequence = 9223372036854775807 WHERE sequence = 3 AND study = 'sepsis'",
        "UPDATE audit_heads SET signature = x'78' WHERE study = 'sepsis'",
        "UPDATE audit_heads SET entries = 'x' WHERE study = 'sepsis'",
    ],
)
def test_a_log_of_any_values_is_read_and_goes_on(logged: Coordinator, statement: str) -> None:
    for trigger in ("audit_log_no_update", "audit_log_no_delete"):
        logged.database.write("x", lambda tx, name=trigger: tx.session.execute(text(f"DROP TRIGGER IF EXISTS {name}")))
    logged.database.write("x", lambda tx: tx.session.execute(text(statement)))
    assert page(logged).fault is not None
    # A hospital must be able to leave, and a study to be stopped.
    enrolment.invite(by_ada(logged, "invite"), "sepsis", InvitationCreate(client="west"))
    assert page(logged).fault is not None


def test_a_change_that_waits_for_its_turn_does_nothing_once_its_key_is_revoked(logged: Coordinator) -> None:
    """Its key was good when its transaction began."""
    if logged.database.is_in_process:
        pytest.skip("it has one writer at a time")
    made = create_key(logged, ApiKeyCreate(role="lead", study="sepsis", name="Eve"))
    eve = Actor(kind="key", id=made.id, name="Eve", role="lead")
    asked = acting(logged, ChangeRequest(eve, "sepsis", "invite"))
    head = text("SELECT 1 FROM audit_heads WHERE study = 'sepsis' FOR UPDATE")
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with ThreadPoolExecutor(1) as pool, logged.database.engine.connect() as other:
        other.execute(head)
        invited = pool.submit(enrolment.invite, asked, "sepsis", InvitationCreate(client="west"))
        while not logged.database.read("x", lambda tx: tx.session.scalar(waiting)):
            assert not invited.done()
        revoke_key(logged, made.id)
        other.rollback()
        with pytest.raises(Rejected, match="bad-token"):
            invited.result()
    assert len(page(logged).entries) == 3


def test_only_a_roster_s_entry_changes_the_number_of_members(coordinator: Coordinator) -> None:
    """Or hospitals would find that the coordinator lies, and stop for good."""
    open_study(coordinator, clients=3)
    enrolment.invite(by_ada(coordinator, "invite"), "sepsis", InvitationCreate(client="h9"))
    enrolment.revoke(by_ada(coordinator, "revoke"), "sepsis", "h1")
    enrolment.withdraw(by_ada(coordinator, "withdraw"), "sepsis", "h2")
    for action in ("pause", "resume", "stop"):
        lifecycle.act(by_ada(coordinator, f"{action}_study"), "sepsis", action)
    written = coordinator.database.read("x", lambda tx: ledger_entries(tx, find_study(tx, "sepsis").id, 0, 500))
    members = 0
    for entry in written:
        if entry.kind == "roster":
            members += 1 if entry.body["change"] == "enrolled" else -1
        assert entry.body["members"] == members, entry.kind
    assert members == 1
    actions = [entry.body["action"] for entry in written if entry.kind == "operated"]
    assert actions == ["invite", "revoke", "pause", "resume", "stop"]
