"""Studies of questions in the clear, through the use cases: hospitals say yes and send the numbers they are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from accounting.budget.ledger import Entry
from server.db.ledger_store import entries
from server.db.rows import find_study
from server.services.coordinator import Coordinator
from server.services.queries import ask, show
from server.services.studies import lifecycle
from server.worker import Worker
from study_protocol.study.messages import StudyCreate
from study_protocol.study.queries import Consent, Query, QueryDocument
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from tests.factories.hospital_double import Hospital, UseCases
from tests.factories.settings import statistics_settings
from tests.factories.studies import work

STUDY = "registry"
COUNT = {"kind": "count", "noise_multiplier": 5.0}


def open_asked(coordinator: Coordinator, *, clients: int = 3, **options: Any) -> list[Hospital]:
    """A running study of questions in the clear; two hospitals are enough."""
    chosen = statistics_settings(**{"masked": False, "epsilon": 15.0} | options)
    lifecycle.create(coordinator, StudyCreate(study=STUDY, settings=chosen))
    hospitals = [Hospital(UseCases(coordinator), STUDY, f"h{i}").enrol() for i in range(clients)]
    lifecycle.act(coordinator, STUDY, "start")
    return hospitals


def document(**question: Any) -> QueryDocument:
    return QueryDocument.model_validate({"question": COUNT | question})


def consented(coordinator: Coordinator, hospitals: Sequence[Hospital], asked: QueryDocument) -> Query:
    """Asked, allowed by everybody, and its round is open."""
    number = ask.ask(coordinator, STUDY, asked).body.number
    for hospital in hospitals:
        ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=True))
    work(coordinator)
    return shown(coordinator, number)


def send(hospital: Hospital, query: Query, steps: float = 100.0 * 2**18) -> None:
    """The same number in every cell, in steps of the question's grid."""
    assert query.round is not None
    hospital.send(query.round, encode({ANSWER_TENSOR: np.full(query.document.question.cells, steps)}))


def shown(coordinator: Coordinator, number: int = 1) -> Query:
    return show.show_query(coordinator, STUDY, number, with_clients=True)


def ledger(coordinator: Coordinator) -> list[Entry]:
    return coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, STUDY).id, 0, 10_000))


def kinds(coordinator: Coordinator) -> list[str]:
    """Of the ledger's entries since the study began."""
    return [entry.kind for entry in ledger(coordinator) if entry.kind not in ("opened", "roster", "released")]


def settle_and_lose(
    coordinator: Coordinator, hospitals: Sequence[Hospital], asked: QueryDocument | None = None
) -> None:
    """Every answer was charged, and then its file is gone."""
    query = consented(coordinator, hospitals, asked or document())
    for hospital in hospitals:
        send(hospital, query)
    worker = Worker(coordinator)
    while kinds(coordinator)[-1] != "settled":
        (task, *_) = worker._tasks()
        worker.perform(task)
    worker._let_go()
    (folder,) = coordinator.blobs.folders(f"rounds/{STUDY}")
    coordinator.blobs.clear(folder)
