"""Synthetic records beside the released answers that they are made of. They are post-processing, without a cost."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from server.db import rows
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.tables import StudyRow
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.queries.chains import earlier_answers
from server.services.queries.synthesis import SynthesisChain
from study_protocol.study.queries import PublishedAnswer
from study_protocol.study.synthesis import Synthesis
from study_protocol.wire.signing import canonical_json
from synthesis.chain import Chain, follow
from synthesis.model.arithmetic import Integers
from synthesis.model.noised import Noised, NoisedTable
from synthesis.released import noised_of, records_of

# A picture needs no more, and a file is made where it is read.
MAX_ROWS = 100_000
# Records that a process keeps, by their answers, and the lock under which they are made.
_CACHE_SIZE = 4
# A coordinator's key, a study's name and time, and number, digest, round and time of each of its answered questions.
_Answers = tuple[str, str, float, tuple[tuple[object, ...], ...]]
_CACHE: OrderedDict[str, tuple[Noised, Integers]] = OrderedDict()
_FOLLOWED: OrderedDict[_Answers, SynthesisProgress] = OrderedDict()
_MAKING, _FOLLOWING = threading.Lock(), threading.Lock()
_NORMAL = 1.959963984540054


@dataclass(frozen=True)
class SynthesisProgress:
    """The section of the settings, and how far its questions have come."""

    synthesis: Synthesis
    chain: Chain


@dataclass(frozen=True)
class Marginal:
    """One crossed table, (cells of the first column, cells of the second or 1). All are shares of the patients.

    released   from the answers, None where they do not hold it. deviation: of the noise in one of its shares
    synthetic  of the synthetic records, None before there are any
    """

    labels: tuple[tuple[str, ...], ...]
    released: NDArray[np.float64] | None
    deviation: float
    synthetic: NDArray[np.float64] | None


def progress(coordinator: Coordinator, study: str) -> SynthesisProgress:
    """Return how far the questions of a study's synthesis have come.

    Raises:
        Rejected: `unknown-study`, `no-queries` (the study makes no synthetic records).
    """

    def work(tx: Transaction) -> SynthesisProgress:
        row = rows.find_study(tx, study)
        synthesis = rows.settings_of(row).synthesis
        if synthesis is None:
            raise Rejected("no-queries", "this study makes no synthetic records: its settings have no such section")
        key = _answers(tx, coordinator, row)
        with _FOLLOWING:
            if key not in _FOLLOWED:
                _FOLLOWED[key] = _followed(synthesis, earlier_answers(tx, row, SynthesisChain(synthesis)))
                while len(_FOLLOWED) > _CACHE_SIZE:
                    _FOLLOWED.popitem(last=False)
            _FOLLOWED.move_to_end(key)
            return _FOLLOWED[key]

    return coordinator.database.read("read-synthesis", work)


def _answers(tx: Transaction, coordinator: Coordinator, study: StudyRow) -> _Answers:
    """Return what an answer cannot change without, and what is read without the answers themselves."""
    answered = (QueryRow.study_id == study.id, QueryRow.state == "answered")
    statement = select(QueryRow.number, QueryRow.sha256, QueryRow.round, QueryRow.created_at).where(*answered)
    answer_rows = tx.session.execute(statement.order_by(QueryRow.number))
    return coordinator.signer.public_key, study.name, study.created_at, tuple(tuple(row) for row in answer_rows)


def _followed(synthesis: Synthesis, answers: Mapping[str, PublishedAnswer]) -> SynthesisProgress:
    try:
        return SynthesisProgress(synthesis, follow(synthesis, answers.get))
    except ValueError:
        # The answers lead nowhere, as where a count is not shown.
        return SynthesisProgress(synthesis, Chain((), (), synthesis.first_question()))


def marginal(coordinator: Coordinator, study: str, column: str, by: str | None) -> Marginal:
    """Return a column, or two of them crossed, as released and in the synthetic records.

    Raises:
        Rejected: `unknown-study`, `no-queries`, `invalid-request` (no such column, or the same one twice).
    """
    state = progress(coordinator, study)
    numbers = _numbers(state.synthesis, column, by)
    labels = [state.synthesis.columns[number].labels for number in numbers]
    if state.chain.document is not None:
        return Marginal(tuple(labels), None, 0.0, None)
    noised, cells = _records(state.synthesis, state.chain)
    table, is_grouped = _released(noised, numbers)
    groups = [noised.groups_of(number) if is_grouped else np.arange(noised.sizes[number]) for number in numbers]
    sizes = [int(group.max()) + 1 for group in groups]
    # A single column has one cell across.
    shape = (*sizes, 1)[:2]
    places = [group[cells[:, number]] for group, number in zip(groups, numbers, strict=True)]
    flat = np.ravel_multi_index(places, sizes)
    synthetic = np.bincount(flat, minlength=math.prod(shape)).reshape(shape) / len(cells)
    released, deviation = (None, 0.0) if table is None else _shares(table, shape)
    return Marginal(tuple(map(_group_labels, labels, groups)), released, deviation, synthetic)


def _numbers(synthesis: Synthesis, column: str, by: str | None) -> list[int]:
    """Return the numbers of one column, or of two different ones."""
    names = [variable.column for variable in synthesis.columns]
    selection = [name for name in (column, by) if name is not None]
    if column == by or not set(selection) <= set(names):
        raise Rejected("invalid-request", "column, by: two different columns of the section synthesis, or one")
    return [names.index(name) for name in selection]


def interval(deviation: float) -> float:
    """Return half of a 95 % interval of the noise alone."""
    return _NORMAL * deviation


def _records(synthesis: Synthesis, chain: Chain) -> tuple[Noised, Integers]:
    key = _digest(synthesis, chain.answers)
    with _MAKING:
        if key not in _CACHE:
            shortened = synthesis.model_copy(update={"rows": min(synthesis.rows, MAX_ROWS)})
            _CACHE[key] = noised_of(synthesis, chain), records_of(shortened, chain)
            while len(_CACHE) > _CACHE_SIZE:
                _CACHE.popitem(last=False)
        _CACHE.move_to_end(key)
        return _CACHE[key]


def _digest(synthesis: Synthesis, answers: tuple[PublishedAnswer, ...]) -> str:
    # The charge of each answer in the ledger is that of no other answer.
    charges = [[answer.study, answer.sha256, answer.ledger_sha256] for answer in answers]
    return hashlib.sha256(canonical_json([synthesis.model_dump(mode="json"), *charges])).hexdigest()


def _released(noised: Noised, numbers: list[int]) -> tuple[NoisedTable | None, bool]:
    """Return the released table of these columns in their order, and whether it has groups in place of cells."""
    outcome = noised.outcome
    columns = sorted(number for number in numbers if number != outcome)
    if not columns:
        # Every column was crossed with the outcome. One of them has the least noise in its sum over the column.
        table = min(noised.columns.values(), key=lambda each: each.std**2 * len(each.counts))
        return NoisedTable(table.counts.sum(axis=0), table.std * float(np.sqrt(len(table.counts)))), False
    table, is_grouped = _by_outcome(noised, columns)
    if table is None:
        return None, False
    if outcome not in numbers:
        outcomes = table.counts.shape[-1]
        table = NoisedTable(table.counts.sum(axis=-1), table.std * float(np.sqrt(outcomes)))
    # The outcome is last in every released table. The request may name it, or the higher column, first.
    is_in_order = sorted(numbers, key=lambda number: (number == outcome, number)) == numbers
    return NoisedTable(table.counts if is_in_order else table.counts.T, table.std), is_grouped


def _by_outcome(noised: Noised, columns: list[int]) -> tuple[NoisedTable | None, bool]:
    """Return one or two columns crossed with the outcome, and whether in groups. None: these two were not counted."""
    if len(columns) == 1:
        return noised.columns[columns[0]], False
    pair = (columns[0], columns[1])
    if pair in noised.edges:
        return noised.edges[pair], False
    return noised.pairs.get(pair), True


def _shares(table: NoisedTable, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], float]:
    patients = max(1.0, float(table.counts.sum()))
    return table.counts.reshape(shape) / patients, table.std / patients


def _group_labels(labels: tuple[str, ...], groups: NDArray[np.int64]) -> tuple[str, ...]:
    pairs = list(zip(labels, groups.tolist(), strict=True))
    members = [[label for label, group in pairs if group == each] for each in range(int(groups.max()) + 1)]
    return tuple(each[0] if len(each) == 1 else f"{each[0]} … {each[-1]}" for each in members)
