"""A coordinator killed between an entry of the audit log and its change has both after a restart, or neither.

Real processes. Some die at a point between the entry, the change and the commit, and some are killed at any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from client_sdk.study.audit_log import fetch_audit_log
from study_protocol.study.messages import StudyCreate
from study_protocol.wire.failpoints import EXIT_CODE
from study_protocol.wire.variables import read_secret
from tests.factories.settings import settings
from tests.harness.forked import ForkedProcesses, become_wardround
from wardround.demo.live import LiveCoordinator, embedded_postgres

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DIES_AT, POINTS = "DIES_AT", ("entry", "change", "commit")
STUDY, KILLS, CALLERS = "sepsis", 6, 3


def become(arguments: list[str], env: dict[str, str], log: str) -> None:
    """Run `wardround` in a fork that ends at a point of its first change, as when the power goes."""
    from server.db import session
    from server.services.people import audit

    point, write_entry, notify = env.pop(DIES_AT, ""), audit.write_entry, session._notify
    committed = session.Database._committed

    def die(tx: session.Transaction, reached: str) -> None:
        if point == reached and audit._ENTRY in tx.shared:
            os._exit(EXIT_CODE)

    def entry_written(tx: session.Transaction, *arguments: Any) -> None:
        write_entry(tx, *arguments)
        die(tx, "entry")

    def change_made(tx: session.Transaction) -> None:
        notify(tx)
        die(tx, "change")

    def change_committed(self: session.Database, tx: session.Transaction) -> None:
        die(tx, "commit")
        committed(self, tx)

    audit.write_entry, session._notify, session.Database._committed = entry_written, change_made, change_committed
    become_wardround(arguments, env, log)


class DyingProcesses(ForkedProcesses):
    become = staticmethod(become)


@pytest.fixture(params=["sqlite", "postgresql"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveCoordinator]:
    database = nullcontext(None) if request.param == "sqlite" else embedded_postgres()
    with database as url, DyingProcesses() as processes:
        coordinator = LiveCoordinator(tmp_path / "coordinator", processes, database_url=url)
        coordinator.prepare()
        coordinator.serve()
        with coordinator.operator() as operator:
            operator.create_study(StudyCreate(study=STUDY, settings=settings()))
        yield coordinator


def invite(live: LiveCoordinator, client: str) -> int | None:
    """Return the status of the answer. None: there was none."""
    headers = {"Authorization": f"Bearer {read_secret(live.operator_key_file)}"}
    try:
        path = f"{live.address}/v1/studies/{STUDY}/invitations"
        return httpx.post(path, json={"client": client}, headers=headers, timeout=30, trust_env=False).status_code
    except httpx.TransportError:
        return None


def require_each_with_its_entry(live: LiveCoordinator) -> set[str]:
    """Compare invitations, log and ledger, and return the names of the invited hospitals."""
    url = live.database_url or f"sqlite:///{live.home / 'wardround.db'}"
    engine = create_engine(url)
    with engine.connect() as connection:
        invited = sorted(connection.execute(text("SELECT client FROM invitations")).scalars())
    engine.dispose()
    with live.operator() as operator:
        log = fetch_audit_log(operator, STUDY)
        ledger = operator.ledger(STUDY).entries
    assert log.faults(log.coordinator_key, ledger) == []
    bodies = [entry.event.body_sha256 for entry in log.entries if entry.event.action == "invite"]
    digests = [
        hashlib.sha256(json.dumps({"client": name}, separators=(",", ":")).encode()).hexdigest() for name in invited
    ]
    assert sorted(map(str, bodies)) == sorted(digests)
    assert sorted(entry.body["client"] for entry in ledger if entry.body.get("action") == "invite") == invited
    return set(invited)


def test_death_between_an_entry_and_its_change_leaves_both_or_neither(live: LiveCoordinator) -> None:
    for point in POINTS:
        assert live.process is not None
        live.process.kill()
        live.variables = {DIES_AT: point}
        process = live.serve()
        assert invite(live, f"at-{point}") is None
        assert process.wait(60) == EXIT_CODE
        live.variables = {}
        live.serve()
        require_each_with_its_entry(live)
    assert require_each_with_its_entry(live) == {"at-commit"}


def test_a_coordinator_killed_at_any_moment_loses_no_entry(live: LiveCoordinator) -> None:
    chance, acknowledged = random.Random(36), set[str]()
    for kill in range(KILLS):
        enough, wanted = Event(), chance.randint(2, 12)

        def call(caller: int, kill: int = kill, enough: Event = enough, wanted: int = wanted) -> None:
            for number in range(1000):
                client = f"h-{kill}-{caller}-{number}"
                status = invite(live, client)
                if status is None:
                    return
                assert status == 201
                acknowledged.add(client)
                if number * CALLERS >= wanted:
                    enough.set()

        with ThreadPoolExecutor(CALLERS) as pool:
            calls = [pool.submit(call, caller) for caller in range(CALLERS)]
            assert enough.wait(120)
            assert live.process is not None
            live.process.kill()
            for each in calls:
                each.result()
        live.serve()
        # What was answered is there, and what had no answer has both or neither.
        assert acknowledged <= require_each_with_its_entry(live)
