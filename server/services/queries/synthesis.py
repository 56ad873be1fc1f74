"""Questions that follow from signed answers: the whole cost is kept from the first one on, and each next one is queued.

The rule itself is `synthesis.rule`, by which every hospital computes the same question.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from sqlalchemy import select

from accounting.plan.queries import QueryCost
from server.db import rows
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.tables import StudyRow
from server.db.tamper_check import round_that_opened
from study_protocol.study.queries import PublishedAnswer, QueryDocument, SignedAnswer, SynthesisPlace
from study_protocol.study.synthesis import Synthesis
from synthesis.chain import follow

logger = logging.getLogger("wardround.coordinator")
_LIVE = ("waiting", "asked")


def kept(tx: Transaction, study: StudyRow) -> list[QueryCost]:
    """Return the costs that are kept for questions of a synthesis that answers have not led to yet.

    A question that failed keeps no cost, neither for itself nor for those after it. After the last one of the rule none
    is kept.
    """
    synthesis = rows.settings_of(study).synthesis
    if synthesis is None:
        return []
    # Of several in the form of the rule only one can be its question. It is not computed here which: the most is kept.
    live = (document for _, document, row in _asked(tx, study, synthesis) if row.state in _LIVE)
    return list(max(map(synthesis.kept_after, live), key=len, default=()))


def place_of(tx: Transaction, study: StudyRow, row: QueryRow, document: QueryDocument) -> SynthesisPlace | None:
    """Return the place of a query in the study's synthesis, or None if it has not the form of one of its questions."""
    synthesis = rows.settings_of(study).synthesis
    stage = None if synthesis is None else synthesis.stage_of(document)
    if synthesis is None or stage is None:
        return None
    later = synthesis.kept_after(document) if row.state in _LIVE else ()
    squares = sum((cost.sensitivity / cost.noise_std) ** 2 for cost in later)
    if row.state in _LIVE:
        words = f"{squares:.3g} of the allowance is kept for what follows." if later else "Nothing follows it."
    else:
        words = _sequel(tx, study, synthesis, row, stage)
    return SynthesisPlace(stage=stage, kept=squares, words=f"Question {stage} of the synthesis. {words}")


def _sequel(tx: Transaction, study: StudyRow, synthesis: Synthesis, row: QueryRow, stage: int) -> str:
    """Return in words what came after a question that has ended."""
    if row.state == "answered":
        next_numbers = [later.number for at, _, later in _asked(tx, study, synthesis) if at == stage + 1]
        if not next_numbers:
            return "Nothing follows it, and nothing is kept."
        return f"Query {next_numbers[-1]} followed from it."
    if round_that_opened(tx, study, row.sha256) is not None:
        return (
            "Its sum was opened and the answer is lost. The rule asks no other question in its place, so the synthesis "
            "ends. What was kept for later questions is free again."
        )
    return (
        "What was kept for it and for later questions is free again. Asked again, it goes on from here, if both still "
        "fit."
    )


def earlier_answers(tx: Transaction, study: StudyRow, document: QueryDocument) -> Mapping[str, PublishedAnswer] | None:
    """Return the answers of the synthesis by their questions' digests, or None if this is no question of it."""
    synthesis = rows.settings_of(study).synthesis
    if synthesis is None or synthesis.stage_of(document) is None:
        return None
    return {
        row.sha256: SignedAnswer.model_validate(row.answer).published
        for _, _, row in _asked(tx, study, synthesis)
        if row.answer is not None
    }


def following(
    synthesis: Synthesis, earlier: Mapping[str, PublishedAnswer], newest: PublishedAnswer
) -> QueryDocument | None:
    """Return the question to which this newest answer leads, or None after the last one."""
    try:
        chain = follow(synthesis, {**earlier, newest.sha256: newest}.get)
    except ValueError as error:
        logger.warning("query %d of %s leads to no further question: %s", newest.query, newest.study, error)
        return None
    # An answer to a question that only looks like one of the rule leads nowhere.
    return chain.document if chain.answers and chain.answers[-1] is newest else None


def _asked(tx: Transaction, study: StudyRow, synthesis: Synthesis) -> Iterator[tuple[int, QueryDocument, QueryRow]]:
    """Yield the stage, document and row of every question of the synthesis."""
    statement = select(QueryRow).where(QueryRow.study_id == study.id).order_by(QueryRow.number)
    for row in tx.session.scalars(statement):
        if row.document["question"]["kind"] != "marginals":
            continue
        document = QueryDocument.model_validate(row.document)
        stage = synthesis.stage_of(document)
        if stage is not None:
            yield stage, document, row
