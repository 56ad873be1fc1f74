"""Wrong values in every column of every table: no answer fails, no other number is shown, no other study stops."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import JSON, Column, LargeBinary, String, Table

from server.db.tables import Base
from server.worker import Worker
from study_protocol.wire.signing import request_token
from tests.factories.hospital_double import Hospital
from tests.factories.saved_studies import Saved, saved

ORIGIN = "https://study.example.org"
SETTINGS = "SELECT settings, settings_sha256 FROM studies WHERE name = ?"
NOTHING = hashlib.sha256(b"").hexdigest()
WITHOUT_DATA = ("/docs", "/openapi.json", "/livez", "/readyz")
# What hospitals sent in the round under way, before it is in the ledger: each of them sees its own part.
SENT = ("participants", "secure_sum_sessions", "secure_sum_messages", "secure_sum_octets")
UNDER_MASKS = ("secure_sum_sessions", "secure_sum_messages", "secure_sum_octets")
# Of the right form: the next number, another row's text. A text that is none in any encoding.
NEXT, ANOTHER, NO_TEXT = "= {0} + 1", "= (SELECT max({0}) FROM {1})", "= CAST(x'ff' AS TEXT)"
NUMBERS = (None, "x", 0, -1, 1e308, 2**63 - 1, "[]", NEXT)
WORDS = (None, "", "x", 2**63 - 1, '"text"', "a" * 64, "A" * 86, "A" * 43, b"x", ANOTHER, NO_TEXT)
DOCUMENTS = (
    None,
    "",
    "x",
    "[{",
    0,
    1e308,
    "[]",
    "{}",
    '"text"',
    "[7,null]",
    '{"h0":7}',
    '{"clip":{}}',
    ANOTHER,
    NO_TEXT,
)
OCTETS = (None, "x", 0, b"", b"x", b"{}", b"\xff" * 64)
Answers = dict[str, tuple[int, Any]]


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Saved]:
    with saved(tmp_path_factory.mktemp("scan"), sqlite_template) as made:
        yield made


def values_of(column: Column[Any]) -> tuple[object, ...]:
    kind = column.type
    if isinstance(kind, JSON):
        return DOCUMENTS
    if isinstance(kind, LargeBinary):
        return OCTETS
    return WORDS if isinstance(kind, String) else NUMBERS


def asked(studies: Saved, study: str) -> Answers:
    """Every GET of the API about this study and some about another one, as an operator and as hospitals may ask."""
    return asyncio.run(_asked(studies, study))


async def _asked(studies: Saved, study: str) -> Answers:
    found: Answers = {}
    transport = httpx.ASGITransport(app=studies.app)
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
        for path, who in questions(studies, study):
            found[path if who is None else f"{path} {who.name}"] = await _ask(studies, http, path, who)
    return found


async def _ask(studies: Saved, http: httpx.AsyncClient, path: str, who: Hospital | None) -> tuple[int, Any]:
    token = studies.operator_key
    if who is not None:
        said = {"client": who.name, "study": who.study, "audience": ORIGIN, "method": "GET", "url": ORIGIN + path}
        token = request_token(who.key, body_sha256=NOTHING, now=studies.clock.now(), **said)
    try:
        answer = await http.get(path, headers={"Authorization": f"Bearer {token}"})
    except EOFError:
        # A model that is shorter than its row says: an answer that has begun can only be cut off, and whoever reads it
        # compares its digest.
        return 200, "cut off"
    is_json = "json" in answer.headers.get("content-type", "")
    return answer.status_code, answer.json() if is_json else answer.content


def questions(studies: Saved, study: str) -> Iterator[tuple[str, Hospital | None]]:
    """Every GET route of the API that has data, its places filled in; and some again as a hospital."""
    me = studies.hospitals[study][2]
    places = {"study": study, "client": me.name, "version": "latest", "round": "1", "query": "1"}
    for route, methods in studies.app.openapi()["paths"].items():
        if "get" not in methods or route in WITHOUT_DATA or ("secure-sum" in route and study != "masked"):
            continue
        path = route.format(**places)
        if route.endswith(("/assignment", "/secure-sum", "/events")):
            path += "?wait=0"
        elif route.endswith("/synthesis/shares.json"):
            path += "?column=0"
        yield path, me if "secure-sum" in route or "/assignment" in route else None
    for more in ("rounds/2", "models/0", "roster?round=1"):
        yield f"/v1/studies/{study}/{more}", me
    for more in ("", "/budget"):
        yield f"/v1/studies/other{more}", None


def forged(studies: Saved, table: Table, column: str, value: object, study: str) -> bool:
    """Every row of the study that takes this value has it; False where nothing is other than it was."""
    before = studies.ask(f"SELECT * FROM {table.name}")
    where, bound = "study_id = (SELECT id FROM studies WHERE name = ?)", study
    if table.name == "studies":
        where = "name = ?"
    elif table.name == "api_keys":
        where, bound = "name = ?", "b"
    elif table.name in ("audit_log", "audit_heads"):
        where = "study = ?"
    elif table.name in ("sessions", "device_logins"):
        where = "? <> ''"
    written, given = "= ?", (value, bound)
    if isinstance(value, str) and value.startswith("= "):
        written, given = value.format(column, table.name), (bound,)
    try:
        # A primary key that is given twice is left as it is.
        studies.sql((f"UPDATE OR IGNORE {table.name} SET {column} {written} WHERE {where}", given))
    except sqlite3.IntegrityError:
        # An INTEGER PRIMARY KEY takes nothing else.
        return False
    return studies.ask(f"SELECT * FROM {table.name}") != before


def misread(answers: Answers, honest: Answers) -> Iterator[str]:
    """What must not be answered, whatever is in the rows."""
    for path, (status, body) in answers.items():
        if status >= 500 and body.get("code") != "unavailable":
            yield f"{path}: {status} {body}"
        elif status >= 400 and not (body["code"] and body["detail"]):
            yield f"{path}: no reason is given"
        elif "/other" in path and (status, body) != honest[path]:
            yield f"{path}: another study is answered otherwise"
        elif path.endswith("/budget") and status == 200 and numbers(body) != numbers(honest[path][1]):
            yield f"{path}: other numbers"
    listed = answers["/v1/studies"][1]
    if "other" not in [shown["study"] for shown in listed["studies"]]:
        yield "other studies are not listed"


def numbers(statement: dict[str, Any]) -> list[Any]:
    return [statement[name] for name in ("limits", "percentiles", "round", "max_steps", "ledger")]


def ledger(studies: Saved, study: str) -> list[tuple[object, ...]]:
    wanted = "SELECT sequence, sha256 FROM ledger JOIN studies ON id = study_id WHERE name = ? ORDER BY sequence"
    return studies.ask(wanted, study)


def models(studies: Saved, study: str) -> list[tuple[object, ...]]:
    return studies.ask(
        "SELECT models.version FROM models JOIN studies ON id = study_id WHERE name = ? ORDER BY 1", study
    )


def worked(studies: Saved) -> Worker:
    """Past every deadline, as a worker's loop goes: what fails in one study must not keep the others waiting."""
    studies.clock.seconds += 700.0
    worker = Worker(studies.coordinator)
    for _ in range(4):
        # Not the pause of a study in which something has failed: it would be over by then.
        worker._paused_until.clear()
        worker._pass()
    return worker


def misdone(studies: Saved, study: str, name: str, honest: Ended, *, refused: bool) -> Iterator[str]:
    """What a worker must not do."""
    before, settings = ledger(studies, study), studies.ask(SETTINGS, study)
    known = len(models(studies, study))
    worker = worked(studies)
    if models(studies, "other") != [(0,), (1,)]:
        yield "the worker does not go on with another study"
    after = ledger(studies, study)
    if refused and after != before:
        yield "something is written into a ledger over rows that differ"
    if (
        name not in SENT
        and len(after) > len(before)
        and after[len(before) :] != honest.ledger[len(before) : len(after)]
    ):
        yield "another entry is written into the ledger"
    if len(models(studies, study)) > known and settings != honest.settings:
        yield "a model is released under other settings"
    worker._let_go()
    if all(worker._pass() for _ in range(4)):
        yield "the worker finds no end"


@dataclass(frozen=True)
class Ended:
    """What a worker makes of the studies where nobody has changed anything."""

    answers: Answers
    ledger: list[tuple[object, ...]]
    settings: list[tuple[object, ...]]


@pytest.fixture(scope="module")
def honest(studies: Saved) -> dict[str, Ended]:
    ended: dict[str, Ended] = {}
    for study in ("sepsis", "masked"):
        studies.restore(study)
        answers = asked(studies, study)
        assert {status for status, _ in answers.values()} <= {200, 204, 409, 404}, answers
        settings = studies.ask(SETTINGS, study)
        worked(studies)
        ended[study] = Ended(answers, ledger(studies, study), settings)
        assert len(models(studies, study)) == (3 if study == "sepsis" else 2)
    return ended


def faults(studies: Saved, honest: dict[str, Ended], name: str, *, one_each: bool) -> Iterator[str]:
    table, study = Base.metadata.tables[name], "masked" if name in UNDER_MASKS else "sepsis"
    for place, column in enumerate(table.columns):
        values = values_of(column)
        # One kind after another, so that a table meets most of them.
        for value in values[place % len(values) :][:1] if one_each else values:
            studies.restore(study)
            if not forged(studies, table, column.name, value, study):
                continue
            case = f"{name}.{column.name} = {value!r}"
            answers = asked(studies, study)
            refused = answers[f"/v1/studies/{study}/budget"][0] != 200
            yield from (f"{case}: {fault}" for fault in misread(answers, honest[study].answers))
            yield from (f"{case}: {fault}" for fault in misdone(studies, study, name, honest[study], refused=refused))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What is logged of hundreds of differences takes longer than to find them."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.quick("leases")
@pytest.mark.parametrize("name", sorted(Base.metadata.tables))
def test_a_wrong_value_is_refused_and_stops_nobody_else(studies: Saved, honest: dict[str, Ended], name: str) -> None:
    found = list(faults(studies, honest, name, one_each=True))
    assert found == [], "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(Base.metadata.tables))
def test_every_wrong_value_is_refused_and_stops_nobody_else(
    studies: Saved, honest: dict[str, Ended], name: str
) -> None:
    found = list(faults(studies, honest, name, one_each=False))
    assert found == [], "\n".join(found)
