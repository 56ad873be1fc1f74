"""The audit of `research.attacks.audit` on queries: canary patients, each in a cell of its own, in three masked
queries.

Two attacks look at the noised sums of a study of questions: the guesses of one run, which see noise that is too small
and patients that count more than once; and the differences of two queries in cells where nobody is, which see noise
that was drawn once and used twice. Patients, their vectors, grid, noise, words, masks and recovery are a study's own
code; only the sending is left out. A defect is planted from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.budget.budget import Budget
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.answers import noise_share
from client_sdk.study.patients import AskedPatients
from private_learning.records import Table
from research.attacks.audit import SIGNAL, AlarmCount, AttackChances, ReusedNoise, alarm_count
from research.attacks.one_run import DELTA, Floats, guessed, largest_refuted, p_value, too_small
from server.domain.queries import shares_of
from study_protocol.queries.question import BaseQuestion
from study_protocol.randomness.source import Purpose, SeededRandomness
from study_protocol.secure_sum.parameters import ANSWER
from study_protocol.secure_sum.vectors import decode_signed, encode
from study_protocol.study.any_settings import StatisticsSettings
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from tests.factories.masked_memory import MaskedHospitals

QUERIES, SIDE = 3, 260
CELLS = SIDE * SIDE
# Of the cells, one for each canary; nobody is in the others.
CANARIES = 40_000
HOSPITALS = 10
Patients = Callable[[Table, BaseQuestion], dict[str, Any]]


def one_row_each(records: Table, question: BaseQuestion) -> dict[str, Any]:
    """As a hospital reads its patients."""
    return dict(AskedPatients.of(records, SitePolicy()).columns(question))


def every_row(records: Table, question: BaseQuestion) -> dict[str, Any]:
    """A defect: a patient of two rows counts twice."""
    return {name: records.columns[name] for name in question.columns}


@dataclass(frozen=True)
class QueryTwin:
    """A study of queries as it should be, or with one defect."""

    noise_factor: float = 1.0
    patients: Patients = one_row_each
    randomness: Callable[[int], SeededRandomness] = lambda seed: SeededRandomness(seed, allow_insecure=True)


TWINS = {
    "queries, sound": QueryTwin(),
    "queries, noise halved": QueryTwin(noise_factor=0.5),
    "queries, patients counted twice": QueryTwin(patients=every_row),
    "queries, noise reused": QueryTwin(randomness=lambda seed: ReusedNoise(seed, allow_insecure=True)),
}


def study(hospitals: int = HOSPITALS) -> StatisticsSettings:
    """Every hospital is needed: the sum holds no more noise than is charged for, but for one colluder's share."""
    return StatisticsSettings.model_validate(
        {
            "statistics": {"max_queries": QUERIES, "max_cells": CELLS},
            "privacy": {
                "scheme": "statistics",
                "limits": [{"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": DELTA}],
                "masking": {
                    "colluders": 1,
                    "neighbours": None,
                    "min_survivors": hospitals,
                    "mask_updates": True,
                    "allow_three": False,
                    "step_deadline_seconds": 60.0,
                    "expiry_seconds": 600.0,
                },
            },
            "schedule": {"min_clients": hospitals, "round_deadline_seconds": 600.0},
        }
    )


def document(number: int, hospitals: int = HOSPITALS) -> QueryDocument:
    """The same cells each time under another title; together they show SIGNAL deviations of a canary."""
    noise = math.sqrt(QUERIES * (hospitals - 1) / hospitals) / SIGNAL
    edges = [float(edge) for edge in range(SIDE - 2)]
    variables = [{"column": name, "edges": edges} for name in ("row", "column")]
    question = {"kind": "table", "title": f"{number}", "noise_multiplier": noise, "variables": variables}
    return QueryDocument.model_validate({"question": question})


def certificate(settings: StatisticsSettings) -> float:
    """ε at DELTA of all queries, as the study's budget charges them."""
    budget = Budget(plan_of(settings))
    for number in range(1, QUERIES + 1):
        budget.reserve_query(number, document(number).cost())
        budget.settle(number, None)
    return budget.accounts[0].epsilon()


def records(canaries: NDArray[np.int64]) -> Table:
    """Two equal rows of each of these patients, in the cell that is its own."""
    twice = np.repeat(canaries, 2)
    columns: dict[str, Any] = {"row": _value(twice // SIDE), "column": _value(twice % SIDE)}
    return Table.of({**columns, "patient": np.array([f"p{row}" for row in twice], object)}, patient_column="patient")


def _value(place: NDArray[np.int64]) -> Floats:
    # The cells are: below 0, [0, 1), …, above the last edge, missing.
    return np.where(place == SIDE - 1, np.nan, place - 0.5)


def sums(twin: QueryTwin, members: Sequence[NDArray[np.int64]], seed: int) -> Floats:
    """(queries, cells): the noised sum of each masked query, in patients."""
    settings, names = study(len(members)), [f"hospital-{i:02d}" for i in range(len(members))]
    hospitals = MaskedHospitals(settings, {}, names)
    tables = {name: records(member_rows) for name, member_rows in zip(names, members, strict=True)}
    randomness = twin.randomness(seed)
    scores: list[Floats] = []
    for number in range(1, QUERIES + 1):
        query = document(number, len(members))
        question = query.question
        grid = question.grid()
        noised = replace(grid, std=grid.std * twin.noise_factor)

        def words(name: str, vectors: Any, number: int = number, question: Any = question, noised: Any = noised) -> Any:
            total = question.total(twin.patients(tables[name], question), noised.spacing)
            source = randomness.of(Purpose.QUERY, party=name, round_number=number)
            part = total + noise_share(noised, shares_of(settings), total.size, source)
            (spec,) = vectors
            blind = randomness.of(Purpose.THRESHOLDS, party=name, round_number=number)
            return {spec.name: encode(spec, part.astype(np.float64), blind.read)}

        _, opened = hospitals.summed(number, words, asked=query)[ANSWER]
        scores.append(decode_signed(opened[: question.cells], scale_bits=0) * grid.spacing)
    return np.array(scores)


def attack(twin: QueryTwin, *, seed: int, hospitals: int = HOSPITALS) -> AttackChances:
    """Run one study of queries and attack what it released."""
    inside = np.random.default_rng(seed).random(CANARIES) < 0.5
    members = [np.flatnonzero(inside[start::hospitals]) * hospitals + start for start in range(hospitals)]
    noised, epsilon = sums(twin, members, seed), certificate(study(hospitals))
    guesses, right = guessed(noised[:, :CANARIES].sum(0), inside)
    question = document(1, hospitals).question
    present = question.grid().std * question.grid().spacing * math.sqrt(hospitals / (hospitals - 1))
    return AttackChances(
        epsilon=epsilon,
        at_least=largest_refuted(CANARIES, guesses, right),
        one_run=p_value(CANARIES, guesses, right, epsilon),
        differences=too_small(np.diff(noised[:, CANARIES:], axis=0), math.sqrt(2) * present),
    )


def audit_queries(seeds: Sequence[int]) -> dict[str, AlarmCount]:
    """Twin -> alarms."""
    counts: dict[str, AlarmCount] = {}
    for name, twin in TWINS.items():
        attacks = [attack(twin, seed=seed) for seed in seeds]
        counts[name] = alarm_count(attacks)
        print(f"{name}: {counts[name]}", flush=True)
    return counts
