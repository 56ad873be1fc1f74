"""A coordinator on SQLite with three studies at work, saved once and put back for every case of a scan.

`sepsis`  plain; one round is released, and in the second all but one hospital have answered
`masked`  one round under masks, whose session waits for the last openings
`other`   plain; every update of its first round is there, and nothing is ever done to it
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fastapi import FastAPI
from sqlalchemy import event

from server.app import create_app
from server.config import Settings
from server.db.session import Database
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.people.device_logins import keep_login
from server.services.people.keys import create_key
from server.services.people.sessions import begin_session
from server.services.queries import ask
from server.services.studies import enrolment, models, witnesses
from server.single_sign_on.grants import GroupGrant
from server.single_sign_on.identity import PersonIdentity
from server.single_sign_on.logins import PendingDevice
from server.worker import Worker, find_due
from study_protocol.study.messages import InvitationCreate, Metrics, SignedLedgerHead
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.queries import Consent, QueryDocument
from study_protocol.study.witness import sign_head
from tests.factories.hospital_double import Hospital, update
from tests.factories.masked_rounds import updates
from tests.factories.masked_studies import MaskedHospital
from tests.factories.settings import settings
from tests.factories.studies import FakeClock, coordinator_on, open_study, work


@dataclass
class Saved:
    """`restore` puts everything back as it was saved; `home` holds the database and the files."""

    home: Path
    clock: FakeClock
    coordinator: Coordinator
    app: FastAPI
    operator_key: str
    invitation: str
    hospitals: dict[str, list[Hospital]]
    time: float

    @property
    def path(self) -> Path:
        return self.home / "wardround.db"

    def restore(self, study: str) -> None:
        """No worker gets anything to do but in this study and in `other`."""
        self.coordinator.database.dispose()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copyfile(self.home / "saved.db", self.path)
        shutil.rmtree(self.home / "blobs")
        shutil.copytree(self.home / "saved-blobs", self.home / "blobs")
        self.coordinator.statements.clear()
        self.clock.seconds = self.time
        idle = "masked" if study == "sepsis" else "sepsis"
        of_idle = "study_id = (SELECT id FROM studies WHERE name = ?)"
        self.sql((f"UPDATE leases SET owner = 'elsewhere', expires_at = ? WHERE {of_idle}", (self.time * 2, idle)))

    def sql(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        """What whoever has the file can write: no check, no key, no trigger stands in the way."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for pragma in ("ignore_check_constraints=ON", "foreign_keys=OFF"):
                connection.execute(f"PRAGMA {pragma}")
            for statement, values in statements:
                connection.execute(statement, values)

    def ask(self, question: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.text_factory = bytes
            return connection.execute(question, values).fetchall()


@contextmanager
def saved(home: Path, template: Path) -> Iterator[Saved]:
    """The three studies under `home`; `template` is a migrated database."""
    shutil.copyfile(template, home / "wardround.db")
    clock = FakeClock()
    coordinator = coordinator_on(Database(f"sqlite:///{home / 'wardround.db'}", clock=clock), home)
    coordinator = replace(coordinator, group_grants=(GroupGrant(group="leads", role="lead"),))
    keys = [create_key(coordinator, ApiKeyCreate(role="administrator", name=label)).key or "" for label in "ab"]
    identity = PersonIdentity("https://id.example", "ada-1", "Ada", ("leads",))
    begin_session(coordinator, identity, 86400.0, "finish_login", "/sso/back", "")
    begun = PendingDevice("ABCD", "https://id.example/device", None, 5.0, 5.0, 600.0, device_code="x")
    keep_login(coordinator, begun, 86400.0)
    # Nobody pulls the plug here.
    event.listen(coordinator.database.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
    hospitals = {"other": _others(coordinator), "masked": _masked(coordinator), "sepsis": _plain(coordinator)}
    token = enrolment.invite(coordinator, "sepsis", InvitationCreate(client="late")).token
    app = create_app(
        Settings(home=home, origin=coordinator.origin, worker=False), coordinator=coordinator, clock=clock.now
    )
    coordinator.database.dispose()
    _unguard(home / "wardround.db")
    shutil.copyfile(home / "wardround.db", home / "saved.db")
    shutil.copytree(home / "blobs", home / "saved-blobs")
    yield Saved(home, clock, coordinator, app, keys[0], token, hospitals, clock.seconds)
    coordinator.database.dispose()


def _others(coordinator: Coordinator) -> list[Hospital]:
    hospitals = open_study(coordinator, "other", max_steps=6)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    return hospitals


def _masked(coordinator: Coordinator) -> list[Hospital]:
    chosen = settings(masked=True)
    hospitals = open_study(coordinator, "masked", clients=6, settings=chosen)
    worked(coordinator, "masked")
    turns = [
        MaskedHospital(hospital, updates((i + 1) / 64)).session(coordinator, chosen, 1)
        for i, hospital in enumerate(hospitals)
    ]
    for step in ("keys", "shares", "masked", "consistency"):
        for turn in turns:
            turn.take(step)
    for turn in turns[:5]:
        turn.unmask()
    return hospitals


def _plain(coordinator: Coordinator) -> list[Hospital]:
    asking = settings(max_steps=6, statistics={"max_queries": 9, "max_cells": 99})
    hospitals = open_study(coordinator, "sepsis", settings=asking)
    worked(coordinator, "sepsis")
    for hospital in hospitals:
        hospital.send(1, update())
    worked(coordinator, "sepsis")
    for hospital in hospitals[:2]:
        hospital.send(2, update())
    models.record_metrics(coordinator, "sepsis", 1, Metrics(evaluation_set="held out", values={"auc": 0.7}))
    signed = sign_head(hospitals[0].key, "h0", ledger_page(coordinator, "sepsis").head.head)
    witnesses.put(coordinator, "sepsis", "h0", SignedLedgerHead(head=signed.head, signature=signed.signature))
    enrolment.use_token(coordinator, "sepsis", "h0", "used")
    question = {"kind": "count", "noise_multiplier": 5.0}
    ask.ask(coordinator, "sepsis", QueryDocument.model_validate({"question": question}))
    ask.consent(coordinator, "sepsis", 1, "h0", Consent(allowed=True))
    return hospitals


def worked(coordinator: Coordinator, study: str) -> None:
    """Everything that is due in this study alone."""
    worker = Worker(coordinator)
    while tasks := [
        task for task in coordinator.database.read("due", lambda tx: find_due(tx, worker.owner)) if task.study == study
    ]:
        for task in tasks:
            worker.perform(task)
    # Or nobody else could take the study before the lease has run out.
    worker._let_go()


def _unguard(path: Path) -> None:
    """Whoever owns the file can take away NOT NULL, triggers and unique indexes as well."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        for kind, name in connection.execute(
            "SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR (type = 'index' AND sql LIKE '%UNIQUE%')"
        ).fetchall():
            connection.execute(f"DROP {kind} {name}")
        connection.execute("PRAGMA writable_schema=ON")
        for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(
                "UPDATE sqlite_master SET sql = ? WHERE name = ?", (re.sub(r"(?<!IS) NOT NULL", "", sql), name)
            )
