"""Which answer stands in a certificate by hospital: the newest one by hospital that this coordinator has signed."""

from __future__ import annotations

import numpy as np
import pytest

from server.db import rows
from server.db.query_tables import QueryRow
from server.db.row_checks import RowBroken
from server.db.session import Transaction
from server.services import certificates
from server.services.coordinator import Coordinator
from server.services.queries import show
from study_protocol.documents.by_hospital import DistanceBlocks
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.distances import Distances
from study_protocol.study.queries import PublishedAnswer, QueryDocument, QueryNoise, SignedAnswer
from study_protocol.wire.signing import QUERY_ANSWER
from tests.factories.asked_studies import STUDY, open_asked

# On both databases in the whole suite.
pytestmark = pytest.mark.quick("sqlite")
BY_HOSPITAL = Distances(kind="distances", noise_multiplier=2.0, by="hospital", hospitals=("h0", "h1", "h2"))
POOLED = Distances(kind="distances", noise_multiplier=2.0)


def answered(coordinator: Coordinator, number: int, question: Distances, patients: float, answer_to: int = 0) -> None:
    """Queue a question of this number with an answer. answer_to: of another number than its own."""
    document = QueryDocument(question=question)
    published = PublishedAnswer(
        study=STUDY,
        query=answer_to or number,
        sha256=document.digest(),
        round=number,
        hospitals=3,
        noise=QueryNoise(guaranteed=2.0, present=2.0, spacing=1.0),
        answer=question.answer(NoisedSum(np.full(question.cells, patients), 2.0, 1)),
        warning="w",
        ledger_entries=3,
        ledger_sha256="b" * 64,
    )
    signature = coordinator.signer.sign(QUERY_ANSWER, published.model_dump(mode="json"))

    def write(tx: Transaction) -> None:
        row = QueryRow(
            study_id=rows.find_study(tx, STUDY).id,
            number=number,
            sha256=document.digest(),
            document=document.model_dump(mode="json"),
            state="answered",
            created_at=0.0,
            answer=SignedAnswer(published=published, signature=signature).model_dump(mode="json"),
        )
        tx.session.add(row)

    coordinator.database.write("answer", write)


def found(coordinator: Coordinator) -> DistanceBlocks | None:
    def read(tx: Transaction) -> DistanceBlocks | None:
        return certificates._distances(coordinator, tx, rows.find_study(tx, STUDY))

    return coordinator.database.read("look", read)


def test_a_later_question_about_all_patients_takes_no_numbers_by_hospital_away(coordinator: Coordinator) -> None:
    open_asked(coordinator)
    assert found(coordinator) is None
    answered(coordinator, 1, BY_HOSPITAL, 70.0)
    answered(coordinator, 2, POOLED, 210.0)
    blocks = found(coordinator)
    assert blocks is not None
    assert (blocks.query, blocks.blocks.tolist()) == (1, [[70.0] * 8] * 3)


def test_an_answer_that_was_put_in_another_ones_place_is_not_used(coordinator: Coordinator) -> None:
    open_asked(coordinator)
    answered(coordinator, 1, BY_HOSPITAL, 70.0, answer_to=4)
    with pytest.raises(RowBroken, match="another query's"):
        found(coordinator)
    with pytest.raises(RowBroken, match="another query's"):
        show.show_query(coordinator, STUDY, 1, with_clients=True)


def test_an_answer_that_was_changed_is_not_used(coordinator: Coordinator) -> None:
    open_asked(coordinator)
    answered(coordinator, 1, BY_HOSPITAL, 70.0)

    def change(tx: Transaction) -> None:
        row = tx.session.get_one(QueryRow, (rows.find_study(tx, STUDY).id, 1))
        signed = SignedAnswer.model_validate(row.answer)
        published = signed.published.model_copy(update={"round": 9})
        row.answer = signed.model_copy(update={"published": published}).model_dump(mode="json")

    coordinator.database.write("change", change)
    with pytest.raises(RowBroken, match="signed"):
        found(coordinator)
