"""From a settled query to its signed answer. The charge is committed already, and all of it can be done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from server.db import rows
from server.db.blobs import OpenedFile, Place, sum_of, update_of
from server.db.leases import Lease, commit_under_lease
from server.db.ledger_store import lock_account, require_unchanged, settled_at
from server.db.session import Transaction
from server.db.session_store import opened_sums
from server.domain.queries import WARNING, answer_of, noise_of
from server.domain.rounds import Abandon, move
from server.services.coordinator import Coordinator
from server.services.queries.chains import chain_of, earlier_answers, following
from server.services.queries.schedule import ask_next
from server.services.queries.show import asked_of, find
from server.services.rounds.close import abandon_round
from study_protocol.secure_sum.parameters import ANSWER
from study_protocol.secure_sum.vectors import VectorSpec, decode_signed
from study_protocol.study.queries import PublishedAnswer, QueryDocument, SignedAnswer
from study_protocol.wire.signing import QUERY_ANSWER
from study_protocol.wire.tensor_files import TensorFile
from study_protocol.wire.tensors import ANSWER_TENSOR, answer_spec

_Result = TypeVar("_Result")
# At most so often the lease is looked at while an answer is computed.
_RENEW_SECONDS = 0.5


class _Lost(Exception):
    """A file that the answer needs is gone."""


class _AnswerInputs:
    """The inputs of a settled query's answer.

    files  of the clear answers, or of the one opened sum
    """

    def __init__(self, tx: Transaction, study: str, number: int) -> None:
        row = rows.find_study(tx, study)
        round = rows.find_round(tx, row.id, number)
        self.study, self.round, self.query = study, number, round.query or 0
        self.document = asked_of(tx, row, round)
        self.settings, self.ledger = rows.settings_of(row), settled_at(tx, row, number)
        self.chain = chain_of(self.settings, self.document)
        self.earlier = earlier_answers(tx, row, self.chain)
        session = rows.find_session(tx, row.id, number)
        received = [(p.client, p.sha256) for p in rows.participants(tx, round) if p.sha256 is not None]
        sums = [opened_sum for opened_sum in opened_sums(session) if opened_sum[0].name == ANSWER]
        self.opened: tuple[VectorSpec, str] | None = sums[0] if sums else None
        self.answered = frozenset([name for name, _ in received] if session is None else session.survivors)
        self.hospitals = len(self.answered)
        self.files = _files_of(study, number, received, self.opened)


def _files_of(
    study: str, number: int, received: list[tuple[str, str]], opened: tuple[VectorSpec, str] | None
) -> list[tuple[Place, str]]:
    if opened is not None:
        return [(sum_of(study, number, ANSWER), opened[1])]
    return [(update_of(study, number, client), sha256) for client, sha256 in received]


def answer_query(coordinator: Coordinator, lease: Lease, study: str, number: int, renew: Callable[[], None]) -> None:
    """Publish the answer of the query that round `number` asked."""

    def read(tx: Transaction) -> _AnswerInputs:
        require_unchanged(tx, coordinator.signer, rows.find_study(tx, study))
        return _AnswerInputs(tx, study, number)

    inputs = coordinator.database.read("read-settled-query", read)
    try:
        total = _total(coordinator, inputs, renew)
    except _Lost:
        commit_under_lease(coordinator.database, lease, "abandon", lambda tx: _abandon(coordinator, tx, inputs))
        return
    signed, document = _meanwhile(lambda: _signed(coordinator, inputs, total), renew)
    commit_under_lease(
        coordinator.database, lease, "answer", lambda tx: _publish(coordinator, tx, inputs, signed, document)
    )


def _meanwhile(work: Callable[[], _Result], renew: Callable[[], None]) -> _Result:
    """Return the result of another thread, and renew the lease meanwhile: many groups and figures take minutes."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        result = pool.submit(work)
        while wait([result], timeout=_RENEW_SECONDS).not_done:
            renew()
        return result.result()


def _total(coordinator: Coordinator, inputs: _AnswerInputs, renew: Callable[[], None]) -> NDArray[np.float64]:
    """Return (cells,) the noised sum in grid steps. Whole numbers below 2^53 add up exactly in any order."""
    total = np.zeros(inputs.document.question.cells)
    for part in _parts(coordinator, inputs):
        total += part
        renew()
    return total


def _parts(coordinator: Coordinator, inputs: _AnswerInputs) -> Iterator[NDArray[np.float64]]:
    for place, sha256 in inputs.files:
        file = coordinator.blobs.open(place, sha256)
        if file is None:
            raise _Lost
        with file:
            yield _read(inputs, file)


def _read(inputs: _AnswerInputs, file: OpenedFile) -> NDArray[np.float64]:
    cells = inputs.document.question.cells
    if inputs.opened is not None:
        words = np.frombuffer(file.read(0, file.bytes), inputs.opened[0].dtype)[:cells]
        return decode_signed(words, scale_bits=0)
    return TensorFile(file.descriptor, answer_spec(cells)).piece(ANSWER_TENSOR, 0, cells).astype(np.float64)


def _signed(
    coordinator: Coordinator, inputs: _AnswerInputs, total: NDArray[np.float64]
) -> tuple[SignedAnswer, QueryDocument | None]:
    """Return the signed answer and the question to which it leads, if one follows from it."""
    noise = noise_of(inputs.document, inputs.settings, inputs.hospitals)
    statistics = inputs.settings.statistics
    published = PublishedAnswer(
        study=inputs.study,
        query=inputs.query,
        sha256=inputs.document.digest(),
        round=inputs.round,
        hospitals=inputs.hospitals,
        noise=noise,
        answer=answer_of(
            inputs.document, noise, total, 0 if statistics is None else statistics.suppress_below, inputs.answered
        ),
        warning=WARNING,
        ledger_entries=inputs.ledger[0],
        ledger_sha256=inputs.ledger[1],
    )
    signature = coordinator.signer.sign(QUERY_ANSWER, published.model_dump(mode="json"))
    chain = inputs.chain
    document = None if chain is None else following(chain, inputs.document, inputs.earlier, published)
    return SignedAnswer(published=published, signature=signature), document


def _publish(
    coordinator: Coordinator,
    tx: Transaction,
    inputs: _AnswerInputs,
    signed: SignedAnswer,
    document: QueryDocument | None,
) -> None:
    study = rows.lock_study(tx, inputs.study)
    round = rows.lock_round(tx, study.id, inputs.round)
    round.state, round.ended_at = move(round.state, "released"), tx.now()
    require_unchanged(tx, coordinator.signer, study)
    query = find(tx, study, inputs.query, lock=True)
    query.state, query.answer = "answered", signed.model_dump(mode="json")
    # In this commit: an answer that leads to a question is never seen without it.
    ask_next(tx, study, document)
    rows.append_event(tx, study, "query-answered", inputs.round)


def _abandon(coordinator: Coordinator, tx: Transaction, inputs: _AnswerInputs) -> None:
    study = rows.lock_study(tx, inputs.study)
    round = rows.lock_round(tx, study.id, inputs.round)
    account = lock_account(tx, coordinator.signer, study)
    abandon_round(tx, study, round, account, Abandon("updates-lost", charged=True))
