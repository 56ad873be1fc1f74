"""Studies of questions alone: as many hospitals, and as many numbers, as a round of training is measured with."""

from __future__ import annotations

import asyncio
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from client_sdk.api.client import Client
from client_sdk.api.config import Connection
from client_sdk.secure_sum.store import Store
from research.benchmarks.load.coordinators import Served
from research.benchmarks.load.jobs import Figures, timed
from research.benchmarks.load.line import LoadConnection
from research.benchmarks.load.masked import MaskedHospital as MaskedHospital
from research.benchmarks.load.masked import MaskedLoad
from research.benchmarks.load.meter import Meter
from research.benchmarks.load.plain import Load, PlainHospital
from research.benchmarks.load.studies import Case, Member, open_study
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.study.any_settings import StatisticsSettings
from study_protocol.study.messages import Assignment
from study_protocol.study.queries import Consent, QueryDocument
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from wardround.demo.live import LiveCoordinator

_CONSENTING = 8
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class QueryCase(Case):
    """A study of `rounds` queries, each of `values` cells; values: the square of a whole number."""

    @property
    def model(self) -> dict[str, np.ndarray]:
        return {}

    def settings(self) -> StatisticsSettings:
        limit = {"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": 1e-5}
        masking = self._masking() if self.masked else None
        return StatisticsSettings.model_validate(
            {
                "statistics": {"max_queries": self.rounds, "max_cells": self.values},
                "privacy": {"scheme": "statistics", "limits": [limit], "masking": masking},
                "schedule": {"min_clients": self.clients, "round_deadline_seconds": 1200.0},
            }
        )

    def document(self, number: int) -> QueryDocument:
        """Two columns crossed; another noise for each number."""
        side = math.isqrt(self.values)
        edges = [float(edge) for edge in range(side - 2)]
        variables = [{"column": name, "edges": edges} for name in ("a", "b")]
        question = {"kind": "table", "noise_multiplier": 8.0 + number, "variables": variables}
        return QueryDocument.model_validate({"question": question})


class MaskedAnswer(MaskedHospital):
    """A hospital's half of a query's secure sum."""

    def plan(self, given: Assignment) -> SessionPlan:
        case, assignment = self.member.case, given.assignment
        assert assignment.query is not None
        return SessionPlan.of_query(
            case.settings(),
            assignment.query.document,
            study=case.name,
            round_number=assignment.round,
            roster=assignment.roster_sha256,
            model=None,
            ledger=(assignment.ledger.entries, assignment.ledger.sha256),
        )


class MaskedAnswers(MaskedLoad):
    def hospital(self, member: Member, client: Client, store: Store) -> MaskedHospital:
        return MaskedAnswer(member, client, self.roster, store)


class ClearAnswers(Load):
    """Numbers with the whole noise of each hospital, in the clear."""

    async def _client(self, index: int, member: Member, body: bytes) -> None:
        line = LoadConnection("127.0.0.1", self.ports[index % len(self.ports)], troubles=self.troubles)
        hospital = PlainHospital(member, line, self.meter, self.ledger_read)
        while (assignment := await hospital.assignment()) is not None:
            with self.meter.round(assignment["round"]):
                await hospital.look_at_ledger(assignment["ledger"]["entries"])
                await hospital.send_update(assignment["round"], body)
        hospital.line.close()
        self.requests += hospital.line.requests

    async def run(self) -> None:
        case = self.members[0].case
        body = encode({ANSWER_TENSOR: np.arange(case.values, dtype=np.float64)})
        await asyncio.gather(*(self._client(index, member, body) for index, member in enumerate(self.members)))


def run_queries(coordinator: Served, case: QueryCase) -> Figures:
    """`case.rounds` queries one after another: asked, consented to by everybody, answered."""
    members = open_study(coordinator.first, case)
    meter = Meter(case.clients, coordinator.pids)
    with coordinator.first.operator() as operator:
        read = operator.ledger(case.name).head.head.entries
    if case.masked:
        run: Callable[[], None] = MaskedAnswers(members, meter, coordinator.first.origin).run
    else:
        clear = ClearAnswers(members, meter, coordinator.ports, read)
        run = lambda: asyncio.run(clear.run())  # noqa: E731
    waits: list[float] = []

    def all_of_it() -> None:
        asking = threading.Thread(target=_ask, args=(coordinator.first, case, members, waits))
        asking.start()
        run()
        asking.join()

    figures = timed(coordinator, case, all_of_it)
    return {**meter.summary(), **figures, "answered_seconds": statistics.median(waits)}


def _ask(coordinator: LiveCoordinator, case: QueryCase, members: Sequence[Member], seconds: list[float]) -> None:
    """Ask, let every hospital look and say yes, and wait for the answer; each takes so many seconds."""
    with coordinator.operator(patience_seconds=900.0) as operator, ThreadPoolExecutor(_CONSENTING) as pool:
        for place in range(case.rounds):
            begun = time.perf_counter()
            number = operator.ask_query(case.name, case.document(place)).number
            list(pool.map(lambda member, n=number: _consent(coordinator, member, n), members))
            while operator.query(case.name, number).state != "answered":
                time.sleep(_LOOK_SECONDS)
            seconds.append(time.perf_counter() - begun)


def _consent(coordinator: LiveCoordinator, member: Member, number: int) -> None:
    connection = Connection(url=coordinator.origin, read_seconds=900.0, patience_seconds=900.0)
    with Client(connection, member.credentials) as client:
        (waiting,) = client.queries(member.case.name, state="waiting").queries
        assert waiting.number == number
        client.put_consent(member.case.name, number, member.membership.client, Consent(allowed=True))
