"""A query's round at the hospital: one vector a patient, summed, noised, kept, sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from accounting.budget.ledger import Entry
from client_sdk.errors import BadAssignment, PolicyRefused, Refused
from client_sdk.guard.charges import Charge
from client_sdk.guard.individual import IndividualBudget
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.query_rules import require_answerable
from client_sdk.guard.study_count import require_within_study
from client_sdk.study.cell_counts import cells_of_question, log_counts
from client_sdk.study.delivery import Capabilities, Delivery
from client_sdk.study.evaluated import require_form
from client_sdk.study.models import StudyModels
from client_sdk.study.patients import AskedPatients
from client_sdk.study.permission import Permission
from client_sdk.study.work import Make, RoundCharges
from study_protocol.cells import column_name
from study_protocol.queries.kinds import Question
from study_protocol.queries.kinds.distances import LOSS, Distances
from study_protocol.queries.kinds.evaluation import Evaluation
from study_protocol.queries.question import BaseQuestion, Grid
from study_protocol.queries.variables import Patients
from study_protocol.randomness.discrete_gaussian import sampler
from study_protocol.randomness.source import Purpose, RandomSource
from study_protocol.secure_sum.vectors import VectorSpec
from study_protocol.study.messages import AssignmentBody
from study_protocol.study.model_info import ModelInfo
from study_protocol.study.monitoring import window_in
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryAsked, QueryDocument
from study_protocol.study.steps import fault_of_steps
from study_protocol.wire.failpoints import failpoint


@dataclass(frozen=True, repr=False)
class _Part:
    """The patients whose vectors are summed, and the function that computes them once every check has passed."""

    identifiers: tuple[str, ...]
    columns: Callable[[NDArray[np.bool_] | None], Patients]


class AnsweringWork:
    """This hospital's part of a query's sum. permission: what people here decided about questions."""

    def __init__(
        self,
        party: str,
        books: RoundCharges,
        able: Capabilities,
        models: StudyModels | None,
        delivery: Delivery,
        permission: Permission,
    ) -> None:
        self._party, self._books, self._able = party, books, able
        self._models, self._delivery, self._permission = models, delivery, permission

    def subjects(self, assignment: AssignmentBody) -> tuple[str, ...]:
        query = _query_of(assignment)
        return query.charged_digest, query.document.digest()

    def open(self, assignment: AssignmentBody) -> Make:
        """Raises Refused: the site policy, the records or the patients' own limit cannot answer it. BadAssignment: the
        model that it is about is not the one that is shown.
        """
        query, books = _query_of(assignment), self._books
        require_block(query.document.question, self._party)
        require_answerable(books.policy, query.document, self._able.data_version)
        if query.document.steps > 1 and (fault := fault_of_steps(self._able.settings)) is not None:
            raise Refused("depends-on-answers", fault)
        entries = books.ledger.seen_ledger(books.study).entries()
        require_never_opened(entries, query.document.digest(), assignment.round, self._delivery.has_opened)
        self._permission.require_by_rule(query, except_round=assignment.round)
        # Asked again: a coordinator may say that this hospital has consented when nobody here has.
        if not self._permission.of(query, except_round=assignment.round):
            raise PolicyRefused("not-approved", "no person at this hospital has approved this question")
        price = price_of(query.document)
        require_within_study(plan_of(self._able.settings), books.ledger.sent(books.study), price)
        part = self._part(query)
        return partial(self._make, assignment, query, part, books.individual(part.identifiers))

    def _part(self, query: QueryAsked) -> _Part:
        if isinstance(query.document.question, Distances):
            return self._trained()
        return self._asked_about_everybody(query) if query.model is None else self._evaluated(query, query.model)

    def _trained(self) -> _Part:
        """Patients who are trained on, with what training has cost each of them."""
        training, books = self._able.training, self._books
        if training is None:
            raise Refused("no-distances", "this hospital trains on no patient in this study")
        patients = training.dataset.patients
        source = self._able.randomness.of(Purpose.ACCOUNTING_SAMPLE, party=self._party, round_number=0)
        lost = books.ledger.rounds_lost(books.study)
        moments = LogMomentBounds.open(
            training.settings, patients, books.ledger.sums(books.study), rounds_lost=lost, source=source
        )
        if moments is None:
            raise Refused(
                "no-distances", "this study measures no patient's distance: it has no Bayesian limit for them"
            )
        losses = moments.losses()
        measured = np.asarray(patients)[moments.rows]
        return _Part(tuple(measured.tolist()), lambda keep: {LOSS: losses if keep is None else losses[keep]})

    def _asked_about_everybody(self, query: QueryAsked) -> _Part:
        question, patients = query.document.question, self._able.patients
        if question.model_number is not None:
            raise BadAssignment("the question is about a released model, and the assignment names none")
        if patients is None:
            raise Refused("no-table", "this hospital takes part with records that have no columns")
        _require_columns(question, patients)
        return _Part(patients.identifiers, partial(patients.columns, question))

    def _evaluated(self, query: QueryAsked, model: ModelInfo) -> _Part:
        question = query.document.question
        window = window_in(query.document)
        evaluated = self._able.evaluated if window is None else self._able.later
        if question.model_number != model.version or not isinstance(question, Evaluation):
            raise BadAssignment("the assignment names another model than the question is about")
        if evaluated is None or self._models is None:
            raise Refused("no-evaluation", "the study sets no patients aside who could bear an evaluation")
        # Of everybody's: that nobody here may be set aside is told by no refusal that is left out.
        _require_columns(question, self._able.patients)
        require_form(evaluated.training.task, question)
        weights = self._models.assigned(model)
        if window is not None:
            self._require_trained_known()
            evaluated = evaluated.in_window(window, partial(self._books.ledger.are_trained, self._books.study))
        return _Part(evaluated.identifiers, partial(evaluated.columns, question, weights))

    def _require_trained_known(self) -> None:
        """Raises Refused: it was lost whom this hospital has trained on, who might be asked about."""
        ledger, study = self._books.ledger, self._books.study
        if ledger.rounds_lost(study) or (ledger.rounds_trained(study) and not ledger.knows_trained(study)):
            raise Refused("lost-ledger", "the lost ledger held whom this hospital has trained on: no later patients")

    def _make(
        self,
        assignment: AssignmentBody,
        query: QueryAsked,
        part: _Part,
        individual: IndividualBudget | None,
        vectors: Sequence[VectorSpec],
        *,
        paid: bool,
    ) -> None:
        round, books, question = assignment.round, self._books, query.document.question
        price = price_of(query.document)
        if not paid:
            books.pay(round, price, query.charged_digest, self._permission.under(query))
        _log_counts(question, self._able.patients)
        # Who has no room left adds zero, like somebody who is not there.
        columns = part.columns(None if individual is None else individual.room_for(price))
        total = question.at_hospital(self._party).total(columns, question.grid().spacing)
        source = self._able.randomness.of(Purpose.QUERY, party=self._party, round_number=round, subject=total.tobytes())
        total = question.placed(total, self._party)
        noised = total + noise_share(question.grid(), self._able.noise_shares, total.size, source)
        body = self._delivery.answer(round, vectors, noised)
        failpoint("hospital.after-training")
        filter_state = None
        if individual is not None:
            individual.charge_query(price)
            filter_state = individual.to_bytes(entries=books.ledger.next_sequence)
        books.finish(round, body, individual=filter_state)


def price_of(document: QueryDocument) -> Charge:
    """Return the charge of a question to this hospital's own ledger."""
    return Charge.of_query(document.cost(), later=window_in(document) is not None)


def require_block(question: BaseQuestion, hospital: str) -> None:
    """Raises Refused: the question is by hospital, and this one has no block in it."""
    if question.is_by_hospital and hospital not in question.hospitals_asked:
        raise Refused("no-block", "the question is by hospital and was asked of others: this hospital joined later")


def require_never_opened(
    entries: Sequence[Entry], digest: str, round_number: int, has_opened: Callable[[int], bool]
) -> None:
    """Require that every earlier round which asked this question was never opened, by the signed ledger and by what
    this hospital saw itself. Two answers to one question have half the noise, for any fate of the first.

    entries     of the coordinator's ledger
    has_opened  whether this hospital was shown the opened sum of a round

    Raises:
        Refused: one was opened.
    """
    question_rounds = {entry.round or 0 for entry in entries if entry.kind == "asked" and entry.body["query"] == digest}
    nothing = {entry.round for entry in entries if entry.kind in ("cancelled", "charged-in-full")}
    for earlier in sorted(question_rounds - {0, round_number}):
        if earlier not in nothing or has_opened(earlier):
            raise Refused("opened-before", f"round {earlier} opened a sum of this question: it is answered only once")


def _require_columns(question: Question, patients: AskedPatients | None) -> None:
    """Of the table's form alone: a refusal that depended on a value would tell of it. Raises Refused."""
    if not question.columns:
        return
    if patients is None:
        raise Refused("no-table", "this hospital takes part with records that have no columns")
    if lacking := [name for name in question.columns if column_name(name) not in patients.records.columns]:
        raise Refused("unknown-column", f"this hospital's table has no column {', '.join(lacking)}")


def _log_counts(question: Question, patients: AskedPatients | None) -> None:
    """For the hospital alone: how many cells of the columns fit nowhere."""
    if patients is not None:
        log_counts(cells_of_question(question, patients.records), f"question of kind {question.kind}")


def noise_share(grid: Grid, shares: int, cells: int, source: RandomSource) -> NDArray[np.int64]:
    """(cells,) one hospital's noise in grid steps: of so many honest ones together, at least grid.std."""
    # Variances add up over the honest survivors that are sure to be there. Rounded up, so that they reach it.
    share = math.nextafter(grid.std / math.sqrt(shares) * (1 + 2.0**-50), math.inf)
    return sampler(share).sample(cells, source)


def _query_of(assignment: AssignmentBody) -> QueryAsked:
    if assignment.query is None or assignment.model is not None:
        raise BadAssignment("the assignment of a query names none")
    return assignment.query
