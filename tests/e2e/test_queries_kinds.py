"""Every kind of question over real HTTP: four and five hospitals, masked and in the clear, on both databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.budget.budget import replay
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from private_learning.records import Table
from server.db.ledger_store import entries
from server.db.rows import find_study
from study_protocol.cells import Column
from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.kinds import Question
from study_protocol.queries.variables import Patients
from study_protocol.study.queries import Query, QueryDocument
from study_protocol.wire.signing import decode_public_key
from tests.factories.asking import NAMES, Site, drive, enrolled, operator
from tests.factories.live_coordinator import Live, live
from tests.factories.questions import AGE, EXAMPLES, PRESSURE, answer_without_noise, kinds, patients, question
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(300)
# Of each hospital; small beside them is the noise, so that a wrong sum shows.
PATIENTS = 400


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Live]:
    home = tmp_path / "home"
    with live(home, time_of_day=FakeClock(), database_url=database_url, long_poll_seconds=0.2) as coordinator:
        yield coordinator


def test_every_kind_of_question_has_an_example() -> None:
    assert set(EXAMPLES) == kinds()
    assert all(question(document).kind == kind for kind, document in EXAMPLES.items())


def records(seed: int) -> Table:
    columns = patients(PATIENTS, seed)
    identifiers = [f"p{number}" for number in range(PATIENTS)]
    return Table.of({**columns, "patient": np.array(identifiers, object)}, patient_column="patient")


def documents() -> list[QueryDocument]:
    """All that ask about patients alone; what asks about a model or its training needs a study that trains one."""
    asked = [question(one) for one in (*EXAMPLES.values(), EXAMPLES["moments"] | {"centred": True})]
    # A regression in several steps asks more questions by itself: tests/e2e/test_regression.py.
    asked = [one for one in asked if one.kind not in ("distances", "glm")]
    asked.append(question(EXAMPLES["glm"] | {"family": "linear", "outcome": AGE, "predictors": [PRESSURE], "steps": 1}))
    return [QueryDocument.model_validate({"question": one.model_dump()}) for one in asked if one.model_number is None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hospitals", "masked"),
    [
        (4, True),
        (5, False),
        pytest.param(5, True, marks=pytest.mark.slow),
        pytest.param(4, False, marks=pytest.mark.slow),
    ],
)
def test_every_kind_is_answered_and_charged_once(here: Live, tmp_path: Path, hospitals: int, masked: bool) -> None:
    asked = documents()
    chosen = statistics_settings(masked=masked, max_queries=len(asked), epsilon=15.0)
    sites = enrolled(here, tmp_path, chosen, names=NAMES[:hospitals], data=records)
    for site in sites:
        site.start()
    with operator(here) as lead:
        numbers = [lead.ask_query("registry", one).number for one in asked]
        drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
        found = [lead.query("registry", number) for number in numbers]
        key = decode_public_key(lead.study("registry").coordinator_key)
    parts = {name: records(seed).columns for seed, name in enumerate(NAMES[:hospitals])}
    for query in found:
        assert query.state == "answered", (query.document, query.reason)
        query.require_believable(key)
        _require_close(query, parts, spread=np.sqrt(hospitals / 3 if masked else hospitals))
    _require_charged_once(here, sites, found)


def _require_close(query: Query, parts: Mapping[str, Patients], spread: float) -> None:
    """Within eight of the answer's own DP standard errors of the answer without noise: a false alarm below 1e-10."""
    assert query.answered is not None
    stated, asked = query.answered.published, query.document.question
    grid = asked.grid()
    assert stated.noise.guaranteed == pytest.approx(grid.std * grid.spacing)
    assert stated.noise.present == pytest.approx(grid.std * grid.spacing * spread)
    exact = _exact(asked, parts)
    for name, value, truth, error in _cells(asked, stated.answer, exact):
        assert abs(value - truth) <= 8 * error + 1e-9, (asked.kind, name, value, truth, error)


def _exact(asked: Question, parts: Mapping[str, Patients]) -> Answer:
    """The answer without noise, of all patients together or in every hospital's block."""
    if asked.is_by_hospital:
        spacing = asked.grid().spacing
        total = np.sum([asked.placed(asked.total(part, spacing), name) for name, part in parts.items()], axis=0)
        return asked.answer(NoisedSum(total * spacing, 0.0, 1))
    pooled: dict[str, Any] = {
        name: Column.joined([part[name] for part in parts.values()]) for name in ("age", "sex", "pressure")
    }
    return answer_without_noise(asked, pooled)


def _cells(asked: Question, noised: Answer, exact: Answer) -> Iterator[tuple[str, float, float, float]]:
    compared = 0
    for table, truth in zip(noised.tables, exact.tables, strict=True):
        if not {"estimate", "dp_error"} <= set(table.columns) or len(table.rows) != len(truth.rows):
            continue
        estimate, error = table.columns.index("estimate"), table.columns.index("dp_error")
        for row, true in zip(table.rows, truth.rows, strict=True):
            value, is_true, spread = row[estimate], true[estimate], row[error]
            if isinstance(value, float) and isinstance(is_true, float) and isinstance(spread, float):
                compared += 1
                yield table.name, value, is_true, spread
    assert compared, f"nothing of {asked.kind} was compared"


def _require_charged_once(here: Live, sites: Sequence[Site], found: Sequence[Query]) -> None:
    ledger = here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "registry").id, 0, 10_000))
    assert replay(ledger).charged_queries == len(found)
    assert [entry.body["query"] for entry in ledger if entry.kind == "asked"] == [query.sha256 for query in found]
    for site in sites:
        with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
            assert len(own.charges()) == len(found)
