"""Masked rounds of one study through the use cases: hospitals that are there or fall silent, and what is kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from accounting.budget.ledger import Entry
from server.db.ledger_store import entries
from server.db.rows import find_round, find_study, participants
from server.db.session import Transaction
from server.services.coordinator import Coordinator
from server.services.secure_sum import lists
from study_protocol.wire.tensors import Array
from tests.factories.hospital_double import MODEL, Hospital
from tests.factories.masked_studies import STEPS, MaskedHospital, Turn
from tests.factories.studies import FakeClock, open_study, read_model, work

CLIENTS = 6  # t = 4, at least 4 survivors: two may go


def updates(value: float) -> dict[str, Array]:
    return {name: np.full_like(array, value) for name, array in MODEL.items()}


def begin(coordinator: Coordinator, settings, clients: int = CLIENTS, **fields) -> list[Turn]:
    hospitals: list[Hospital] = open_study(coordinator, clients=clients, settings=settings)
    work(coordinator)
    return [
        MaskedHospital(hospital, updates((i + 1) / 64), **fields).session(coordinator, settings, 1)
        for i, hospital in enumerate(hospitals)
    ]


PASSED = {"keys": 61.0, "shares": 121.0, "masked": 721.0}


def run(coordinator: Coordinator, clock: FakeClock, turns: list[Turn], lost: Mapping[str, set[str]]) -> None:
    """Every step in order; who is lost falls silent before it, and then deadlines pass."""
    silent: set[str] = set()
    start = clock.seconds
    for step in STEPS:
        silent |= lost.get(step, set())
        if lists.read_session(coordinator, "sepsis", 1)[1].phase != step:
            continue
        for turn in turns:
            if turn.name not in silent:
                turn.take(step)
        if silent and step in PASSED:
            clock.seconds = start + PASSED[step]
        work(coordinator)


def round_of(coordinator: Coordinator, number: int = 1):
    return coordinator.database.read("look", lambda tx: find_round(tx, find_study(tx, "sepsis").id, number))


def participants_of(coordinator: Coordinator, number: int):
    def names(tx: Transaction) -> set[str]:
        return {row.client for row in participants(tx, find_round(tx, find_study(tx, "sepsis").id, number))}

    return coordinator.database.read("look", names)


def ledger(coordinator: Coordinator) -> list[Entry]:
    return coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "sepsis").id, 0, 100))


def kinds(coordinator: Coordinator) -> list[str]:
    return [entry.kind for entry in ledger(coordinator) if entry.round == 1 and entry.kind != "released"]


def released_mean(coordinator: Coordinator) -> float:
    """Plain server optimiser against a gradient: w = 0 − mean."""
    model = read_model(coordinator, "sepsis", 1)
    values = np.concatenate([array.reshape(-1) for array in model.values()])
    assert np.ptp(values) < 1e-6
    return -float(values[0]) * 5.0
