"""A query's round at the hospital: one vector a patient, summed, noised, kept, sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import BadAssignment, PolicyRefused, Refused
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.individual import IndividualBudget
from client_sdk.guard.policy import Charge
from client_sdk.guard.query_rules import approval_of, require_answerable
from client_sdk.protocol.randomness.discrete_gaussian import sampler
from client_sdk.protocol.randomness.source import Purpose, RandomSource
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.statistics.question import Grid
from client_sdk.protocol.study.messages import AssignmentBody
from client_sdk.protocol.study.queries import QueryAsked
from client_sdk.protocol.wire.failpoints import failpoint
from client_sdk.study.delivery import Able, Delivery
from client_sdk.study.patients import AskedPatients
from client_sdk.study.work import Books, Make


class AnsweringWork:
    """This hospital's part of a query's sum. approvals: what people here decided about questions."""

    def __init__(self, party: str, books: Books, able: Able, delivery: Delivery, approvals: Approvals) -> None:
        self._party, self._books, self._able, self._delivery = party, books, able, delivery
        self._approvals = approvals

    def subject(self, assignment: AssignmentBody) -> str:
        return _asked(assignment).document.digest()

    def open(self, assignment: AssignmentBody) -> Make:
        """Raises Refused: the site policy, the records or the patients' own limit cannot answer it."""
        asked, able, books = _asked(assignment), self._able, self._books
        patients = able.patients
        if patients is None:
            raise Refused("no-table", "this hospital takes part with records that have no columns")
        require_answerable(books.policy, asked.document, able.data_version)
        # Asked again: a coordinator may say that this hospital has consented when nobody here has.
        if not approval_of(books.policy, self._approvals, asked.document):
            raise PolicyRefused("not-approved", "no person at this hospital has approved this question")
        # Of the table's form alone: a refusal that depended on a value would tell of it.
        if lacking := [name for name in asked.document.question.columns if name not in patients.records.columns]:
            raise Refused("unknown-column", f"this hospital's table has no column {', '.join(lacking)}")
        return partial(self._make, assignment, asked, patients, books.individual(patients.identifiers))

    def _make(
        self,
        assignment: AssignmentBody,
        asked: QueryAsked,
        patients: AskedPatients,
        individual: IndividualBudget | None,
        vectors: Sequence[VectorSpec],
        *,
        paid: bool,
    ) -> None:
        round, books, question = assignment.round, self._books, asked.document.question
        price = Charge.of_query(asked.document.cost())
        if not paid:
            books.pay(round, price, self.subject(assignment))
        # Who has no room left adds zero, like somebody who is not there.
        columns = patients.columns(question, None if individual is None else individual.room_for(price))
        total = question.total(columns, question.grid().spacing)
        source = self._able.randomness.of(Purpose.QUERY, party=self._party, round=round)
        noised = total + noise_share(question.grid(), self._able.noise_shares, total.size, source)
        body = self._delivery.answer(round, vectors, noised)
        failpoint("hospital.after-training")
        own = None
        if individual is not None:
            individual.charge_query(price)
            own = individual.to_bytes(entries=books.ledger.next_sequence)
        books.finish(round, body, individual=own)


def noise_share(grid: Grid, shares: int, cells: int, source: RandomSource) -> NDArray[np.int64]:
    """(cells,) one hospital's noise in grid steps: of so many honest ones together, at least grid.std."""
    # Variances add up over the honest survivors that are sure to be there; rounded up, so that they reach it.
    share = math.nextafter(grid.std / math.sqrt(shares) * (1 + 2.0**-50), math.inf)
    return sampler(share).sample(cells, source)


def _asked(assignment: AssignmentBody) -> QueryAsked:
    if assignment.query is None or assignment.model is not None:
        raise BadAssignment("the assignment of a query names none")
    return assignment.query
