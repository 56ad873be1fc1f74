"""Questions that follow from signed answers: the whole cost is kept from the first one on, and each next one is queued.

A chain is either the study's synthesis or the steps of one question.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Protocol

from sqlalchemy import select

from accounting.plan.queries import QueryCost
from server.db import rows
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.tables import StudyRow
from server.db.tamper_check import round_that_opened
from server.services.queries.steps import StepChain
from server.services.queries.synthesis import SynthesisChain
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.queries import PublishedAnswer, QueryDocument, SignedAnswer, StepPlace, SynthesisPlace

logger = logging.getLogger("wardround.coordinator")
_LIVE = ("waiting", "asked")
_ChainRow = tuple[int, QueryDocument, QueryRow]
"""The place in the chain from 1, the document and the row of a question."""


class QuestionChain(Protocol):
    """Questions of which each follows from the answers before. kind: of all of them."""

    @property
    def kind(self) -> str: ...

    def step_of(self, document: QueryDocument) -> int | None: ...

    def kept_after(self, document: QueryDocument) -> tuple[QueryCost, ...]: ...

    def following(
        self, document: QueryDocument, earlier: Mapping[str, PublishedAnswer], newest: PublishedAnswer
    ) -> QueryDocument | None: ...


def chain_of(settings: AnySettings, document: QueryDocument) -> QuestionChain | None:
    """Return the chain in which a question stands, or None for a question by itself."""
    synthesis = _synthesis_of(settings)
    if synthesis is not None and synthesis.step_of(document) is not None:
        return synthesis
    return StepChain(document.first_step()) if document.steps > 1 else None


def kept_after(study: StudyRow, document: QueryDocument) -> tuple[QueryCost, ...]:
    """Return the costs of what may follow a question. They are admitted together with it."""
    chain = chain_of(rows.settings_of(study), document)
    return () if chain is None else chain.kept_after(document)


def kept(tx: Transaction, study: StudyRow) -> list[QueryCost]:
    """Return the costs that are kept for questions to which answers have not led yet.

    A question that failed keeps no cost, neither for itself nor for those after it. After the last one of a chain none
    is kept.
    """
    synthesis = _synthesis_of(rows.settings_of(study))
    live = select(QueryRow.document).where(QueryRow.study_id == study.id, QueryRow.state.in_(_LIVE))
    documents = [QueryDocument.model_validate(each) for each in tx.session.scalars(live.order_by(QueryRow.number))]
    costs = [cost for document in documents for cost in document.question.costs_after()]
    if synthesis is not None:
        # Of several in the form of the rule only one can be its question. It is not computed here which: the most is
        # kept.
        costs += max(map(synthesis.kept_after, documents), key=len, default=())
    return costs


def synthesis_place(tx: Transaction, study: StudyRow, row: QueryRow, document: QueryDocument) -> SynthesisPlace | None:
    """Return the place of a query in the study's synthesis, or None if it has not the form of one of its questions."""
    chain = _synthesis_of(rows.settings_of(study))
    stage = None if chain is None else chain.step_of(document)
    if chain is None or stage is None:
        return None
    later = _live_costs(chain, row, document)
    if row.state in _LIVE:
        words = f"{_squares(later):.3g} of the allowance is kept for what follows." if later else "Nothing follows it."
    elif row.state == "answered":
        follower = _follower(tx, study, chain, stage)
        words = _FOLLOWED.format(follower) if follower else "Nothing follows it, and nothing is kept."
    elif round_that_opened(tx, study, row.sha256) is not None:
        words = f"{_LOST} The rule asks no other question in its place, so the synthesis ends. {_FREE}"
    else:
        words = f"What was kept for it and for later questions is free again. {_GOES_ON}"
    return SynthesisPlace(stage=stage, kept=_squares(later), words=f"Question {stage} of the synthesis. {words}")


def step_place(tx: Transaction, study: StudyRow, row: QueryRow, document: QueryDocument) -> StepPlace | None:
    """Return the place of a query among the steps of one question, or None if the question has one step."""
    chain = chain_of(rows.settings_of(study), document)
    if not isinstance(chain, StepChain):
        return None
    step, steps, later = document.step, document.steps, _live_costs(chain, row, document)
    follower = _follower(tx, study, chain, step) if row.state == "answered" else None
    if row.state == "failed":
        is_lost = round_that_opened(tx, study, row.sha256) is not None
        words = f"{_LOST} {_NO_OTHER_STEP} {_FREE}" if is_lost else f"{_FREED_STEPS} {_GOES_ON}"
    elif step == steps:
        words = "It is the last step: its answer is the result."
    elif row.state == "answered":
        words = _FOLLOWED.format(follower) if follower else "No step follows it, and nothing is kept."
    else:
        words = f"{_squares(later):.3g} of Σ 1 / noise_multiplier² is kept for the steps after it."
    return StepPlace(
        step=step,
        steps=steps,
        first=row.number if step == 1 else _follower(tx, study, chain, 0) or row.number,
        next=follower,
        kept=_squares(later),
        words=f"Step {step} of {steps}. {words}",
    )


_NO_OTHER_STEP = "No other step is asked in its place, so this question ends without a result."
_FREED_STEPS = "What was kept for it and for later steps is free again."
_FOLLOWED = "Query {} followed from it."
_LOST = "Its sum was opened and the answer is lost."
_FREE = "What was kept for later questions is free again."
_GOES_ON = "Asked again, it goes on from here, if both still fit."


def to_resume(tx: Transaction, study: StudyRow, document: QueryDocument) -> tuple[QueryDocument, QueryRow] | None:
    """Return the failed step from which a question in steps goes on when any step of it is asked again, or None."""
    chain = chain_of(rows.settings_of(study), document)
    if not isinstance(chain, StepChain):
        return None
    failed = ((each, row) for _, each, row in _rows_of_chain(tx, study, chain) if row.state == "failed")
    return next(failed, None)


def earlier_answers(tx: Transaction, study: StudyRow, chain: QuestionChain | None) -> Mapping[str, PublishedAnswer]:
    """Return the answers of a chain by their questions' digests."""
    if chain is None:
        return {}
    return {
        row.sha256: SignedAnswer.model_validate(row.answer).published
        for _, _, row in _rows_of_chain(tx, study, chain)
        if row.answer is not None
    }


def following(
    chain: QuestionChain, document: QueryDocument, earlier: Mapping[str, PublishedAnswer], newest: PublishedAnswer
) -> QueryDocument | None:
    """Return the question to which this newest answer leads, or None after the last one."""
    try:
        return chain.following(document, earlier, newest)
    # A number that is not finite is published as none.
    except (TypeError, ValueError) as error:
        logger.warning("query %d of %s leads to no further question: %s", newest.query, newest.study, error)
        return None


def _synthesis_of(settings: AnySettings) -> SynthesisChain | None:
    return None if settings.synthesis is None else SynthesisChain(settings.synthesis)


def _live_costs(chain: QuestionChain, row: QueryRow, document: QueryDocument) -> tuple[QueryCost, ...]:
    """Return the costs that a query keeps for those after it while it is under way."""
    return chain.kept_after(document) if row.state in _LIVE else ()


def _squares(costs: tuple[QueryCost, ...]) -> float:
    return sum((cost.sensitivity / cost.noise_std) ** 2 for cost in costs)


def _follower(tx: Transaction, study: StudyRow, chain: QuestionChain, step: int) -> int | None:
    """Return the number of the newest query after this step of a chain. None: there is none yet."""
    numbers = [row.number for place, _, row in _rows_of_chain(tx, study, chain) if place == step + 1]
    return numbers[-1] if numbers else None


def _rows_of_chain(tx: Transaction, study: StudyRow, chain: QuestionChain) -> Iterator[_ChainRow]:
    """Yield every question of a chain that was asked, in order."""
    statement = select(QueryRow).where(QueryRow.study_id == study.id).order_by(QueryRow.number)
    for row in tx.session.scalars(statement):
        if row.document["question"]["kind"] != chain.kind:
            continue
        document = QueryDocument.model_validate(row.document)
        step = chain.step_of(document)
        if step is not None:
            yield step, document, row
