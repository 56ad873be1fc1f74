"""Synthetic records beside the released answers that they are made of. They are post-processing and cost nothing."""

from __future__ import annotations

import hashlib
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
from server.services.queries.synthesis import earlier_answers
from study_protocol.study.queries import PublishedAnswer
from study_protocol.study.synthesis import Synthesis
from study_protocol.wire.signing import canonical_json
from synthesis.chain import Chain, follow
from synthesis.model.arithmetic import Integers
from synthesis.model.noised import Noised, Table
from synthesis.released import noised_of, records_of

# A picture needs no more, and a file is made where it is read.
MOST_ROWS = 100_000
# Records that a process keeps, by their answers, and the lock under which they are made.
_KEPT = 4
# A coordinator's key, a study's name and time, and number, digest, round and time of each of its answered questions.
_Answers = tuple[str, str, float, tuple[tuple[object, ...], ...]]
_MADE: OrderedDict[str, tuple[Noised, Integers]] = OrderedDict()
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

    released  from the answers, None where they do not hold it. deviation: of the noise in one of its shares
    made      of the synthetic records, None before there are any
    """

    labels: tuple[tuple[str, ...], ...]
    released: NDArray[np.float64] | None
    deviation: float
    made: NDArray[np.float64] | None


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
                _FOLLOWED[key] = _followed(synthesis, earlier_answers(tx, row, synthesis.first_question()) or {})
                while len(_FOLLOWED) > _KEPT:
                    _FOLLOWED.popitem(last=False)
            _FOLLOWED.move_to_end(key)
            return _FOLLOWED[key]

    return coordinator.database.read("read-synthesis", work)


def _answers(tx: Transaction, coordinator: Coordinator, study: StudyRow) -> _Answers:
    """Return what an answer cannot change without, and what is read without the answers themselves."""
    answered = (QueryRow.study_id == study.id, QueryRow.state == "answered")
    statement = select(QueryRow.number, QueryRow.sha256, QueryRow.round, QueryRow.created_at).where(*answered)
    found = tx.session.execute(statement.order_by(QueryRow.number))
    return coordinator.signer.public_key, study.name, study.created_at, tuple(tuple(row) for row in found)


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
    names = [variable.column for variable in state.synthesis.columns]
    if column not in names or (by is not None and by not in names) or column == by:
        raise Rejected("invalid-request", "column, by: two different columns of the section synthesis, or one")
    numbers = [names.index(name) for name in (column, by) if name is not None]
    labels = [variable.labels for variable in state.synthesis.columns]
    if state.chain.document is not None:
        return Marginal(tuple(tuple(labels[number]) for number in numbers), None, 0.0, None)
    noised, cells = _made(state.synthesis, state.chain)
    found = _released(noised, numbers)
    groups = [np.arange(noised.sizes[number]) for number in numbers]
    if found is not None and found[1]:
        groups = [noised.groups_of(number) for number in numbers]
    shape = [int(each.max()) + 1 for each in groups] + [1] * (2 - len(groups))
    places = [group[cells[:, number]] for group, number in zip(groups, numbers, strict=True)]
    flat = np.ravel_multi_index(places, shape[: len(places)])
    made = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape) / len(cells)
    released, deviation = (None, 0.0) if found is None else _shares(found[0], shape)
    named = tuple(_named(labels[number], group) for number, group in zip(numbers, groups, strict=True))
    return Marginal(named, released, deviation, made)


def interval(deviation: float) -> float:
    """Return half of a 95 % interval of the noise alone."""
    return _NORMAL * deviation


def _made(synthesis: Synthesis, chain: Chain) -> tuple[Noised, Integers]:
    key = _digest(synthesis, chain.answers)
    with _MAKING:
        if key not in _MADE:
            drawn = synthesis.model_copy(update={"rows": min(synthesis.rows, MOST_ROWS)})
            _MADE[key] = noised_of(synthesis, chain), records_of(drawn, chain)
            while len(_MADE) > _KEPT:
                _MADE.popitem(last=False)
        _MADE.move_to_end(key)
        return _MADE[key]


def _digest(synthesis: Synthesis, answers: tuple[PublishedAnswer, ...]) -> str:
    # The charge of each answer in the ledger is that of no other answer.
    named = [[answer.study, answer.sha256, answer.ledger_sha256] for answer in answers]
    return hashlib.sha256(canonical_json([synthesis.model_dump(mode="json"), *named])).hexdigest()


def _released(noised: Noised, numbers: list[int]) -> tuple[Table, bool] | None:
    """Return the released table of these columns in their order, and whether it has groups in place of cells."""
    outcome = noised.outcome
    others = tuple(sorted(number for number in numbers if number != outcome))
    if not others:
        # Every column was crossed with the outcome. One of them has the least noise in its sum over the column.
        table = min(noised.columns.values(), key=lambda each: each.std**2 * len(each.counts))
        return Table(table.counts.sum(axis=0), table.std * float(np.sqrt(len(table.counts)))), False
    table = noised.columns[others[0]] if len(others) == 1 else noised.edges.get((others[0], others[1]))
    grouped = len(others) == 2 and table is None
    table = noised.pairs.get((others[0], others[1])) if table is None and len(others) == 2 else table
    if table is None:
        return None
    if outcome not in numbers:
        outcomes = table.counts.shape[-1]
        table = Table(table.counts.sum(axis=-1), table.std * float(np.sqrt(outcomes)))
    # As asked: rows of the first column.
    asked = sorted(numbers, key=lambda number: (number == outcome, number))
    turned = asked != numbers
    return Table(table.counts.T if turned else table.counts, table.std), grouped


def _shares(table: Table, shape: list[int]) -> tuple[NDArray[np.float64], float]:
    patients = max(1.0, float(table.counts.sum()))
    return table.counts.reshape(shape) / patients, table.std / patients


def _named(labels: tuple[str, ...], groups: NDArray[np.int64]) -> tuple[str, ...]:
    pairs = list(zip(labels, groups.tolist(), strict=True))
    members = [[label for label, group in pairs if group == each] for each in range(int(groups.max()) + 1)]
    return tuple(each[0] if len(each) == 1 else f"{each[0]} … {each[-1]}" for each in members)
