"""Comparison of the rows with what was signed: a change by a person without the key must be noticed.

The newest ledger entry says how the study stood after it, and its hash is in the head that the coordinator's key
signed. Values outside it are not checked here: see the threat model. A database that was set back as a whole to an
older state, ledger and all, is consistent as well. Only hospitals remember the head they saw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import bindparam, func, select

from accounting.budget.bodies import Standing
from accounting.budget.ledger import GENESIS, Entry, LedgerError, digest, verify_chain
from server.db.query_tables import QueryRow
from server.db.rows import active_members
from server.db.session import Transaction
from server.db.tables import BudgetRow, LedgerRow, RoundRow, StudyRow
from server.signing_key import SigningKey
from study_protocol.study.messages import LedgerHead
from study_protocol.versions import UNNUMBERED, study_protocol
from study_protocol.wire.signing import (
    LEDGER_HEAD,
    SigningError,
    decode_public_key,
    roster_fingerprint,
    verify_document,
)

_PAGE = 500
_LAST = select(LedgerRow).where(LedgerRow.study_id == bindparam("study")).order_by(LedgerRow.sequence.desc()).limit(1)


class DatabaseDiffers(Exception):
    """A row of this study is not what the coordinator signed. The text names it, and the study must not go on."""

    def __init__(self, study: str, difference: str) -> None:
        super().__init__(f"study {study}: {difference}")
        self.study = study
        self.difference = difference


def entry_of(row: LedgerRow) -> Entry:
    """Return the entry as it was hashed.

    Raises:
        LedgerError: it is none any more.
    """
    try:
        body = json.loads(row.body)
    except (ValueError, RecursionError) as error:
        raise LedgerError(row.sequence, "its body is no JSON") from error
    content = {"sequence": row.sequence, "kind": row.kind, "round": row.round, "body": body}
    return Entry.from_dict({**content, "previous": row.previous, "sha256": row.sha256})


def require_as_signed(tx: Transaction, signer: SigningKey, study: StudyRow, budget: BudgetRow) -> Entry:
    """Return the newest ledger entry, if settings, roster and budget are what it says they were after it.

    Raises:
        DatabaseDiffers: names the first that is not.
    """
    newest = _newest(tx, signer, study, budget)
    try:
        standing = Standing.within(newest)
    except LedgerError as error:
        raise DatabaseDiffers(study.name, f"the ledger's newest entry is none: {error.reason}") from error
    # A member that leaves or rotates its key after the last entry is in no ledger any more. No client is sampled then.
    for subject, is_equal in _compared(tx, study, budget, standing, ended=newest.kind == "finished"):
        if not is_equal:
            raise DatabaseDiffers(study.name, f"{subject} in the database is not what the signed ledger says")
    return newest


def _compared(
    tx: Transaction, study: StudyRow, budget: BudgetRow, standing: Standing, *, ended: bool
) -> Iterator[tuple[str, bool]]:
    # One after another: what is inside of a document is looked at only once its digest is the signed one.
    settings_sha256 = standing.settings_sha256
    yield "its settings", _is(study.settings, settings_sha256) and study.settings_sha256 == settings_sha256
    # Of a study that an older program created it may be lower than its settings would need today.
    yield "its protocol", UNNUMBERED <= study.protocol <= study_protocol(study.settings, names_models=True)
    yield "its quorum", study.quorum == max(1, study.settings["schedule"]["min_clients"])
    if not ended:
        active = active_members(tx, study.id)
        fingerprints = {roster_fingerprint(study.name, active), study.roster_sha256}
        yield "the names or keys of its members", fingerprints == {standing.roster_sha256}
        yield "the number of its members", len(active) == standing.members
    yield "the state of its budget", _is(budget.state, standing.state_sha256)
    yield "whether it can continue", budget.can_continue == standing.can_continue
    yield "the newest round of its budget", budget.round == budget.state["last_round"]
    yield "its max_steps", budget.max_steps == study.settings["privacy"].get("max_steps", 0)
    statement = {"limits": budget.limits, "percentiles": budget.percentiles}
    yield "the statement of its budget", _is(statement, standing.statement_sha256)


def _is(value: object, sha256: str) -> bool:
    try:
        return digest(value) == sha256
    except (TypeError, ValueError):
        # Not even JSON, such as a text that lacks a bracket.
        return False


def require_whole(tx: Transaction, study: StudyRow, budget: BudgetRow) -> None:
    """Check that every entry hangs on the one before, from the first to the newest: slow, so once for every lease.

    Raises:
        DatabaseDiffers: names the first entry that does not.
    """
    reached = (0, GENESIS)
    while True:
        statement = select(LedgerRow).where(LedgerRow.study_id == study.id, LedgerRow.sequence > reached[0])
        page = tx.session.scalars(statement.order_by(LedgerRow.sequence).limit(_PAGE)).all()
        if not page:
            break
        try:
            reached = verify_chain(map(entry_of, page), after=reached)
        except LedgerError as error:
            raise DatabaseDiffers(study.name, str(error)) from error
        for row in page:
            if row.kind == "asked" and row.round is not None:
                require_asked(tx, study, row.round)
    require_queries_as_charged(tx, study)
    if reached != (budget.entries, budget.head_sha256):
        raise DatabaseDiffers(study.name, "its ledger does not lead to the head that was signed")


def require_asked(tx: Transaction, study: StudyRow, round_number: int) -> None:
    """Check that a round asks the query which the ledger charged.

    Raises:
        DatabaseDiffers: it asks another one, or none.
    """
    charged = (LedgerRow.study_id == study.id, LedgerRow.round == round_number, LedgerRow.kind == "asked")
    entry = tx.session.scalars(select(LedgerRow).where(*charged)).one_or_none()
    asks = (RoundRow.study_id == study.id, RoundRow.number == round_number, QueryRow.study_id == study.id)
    sha256 = tx.session.scalar(select(QueryRow.sha256).where(*asks, QueryRow.number == RoundRow.query))
    if entry is None or sha256 is None or json.loads(entry.body).get("query") != sha256:
        raise DatabaseDiffers(study.name, "a round asks another query than the one that the ledger charges")


def round_that_opened(tx: Transaction, study: StudyRow, sha256: str) -> int | None:
    """Return the round whose sum of this query the ledger has settled, or None. Hospitals answer it no more."""
    charged = [round for round, digest in _query_digests(tx, study).items() if digest == sha256]
    settled = (LedgerRow.study_id == study.id, LedgerRow.kind == "settled", LedgerRow.round.in_(charged))
    return tx.session.scalar(select(func.min(LedgerRow.round)).where(*settled))


def require_queries_as_charged(tx: Transaction, study: StudyRow, sha256: str | None = None) -> None:
    """Check that every query has the state that the ledger's entries of its rounds imply. sha256: this query alone.

    A row that is set back would have an answered question asked anew, and an open one asked twice.

    Raises:
        DatabaseDiffers: names the first that does not.
    """
    # Of each query the newest round.
    newest = {query: round for round, query in _query_digests(tx, study).items()}
    ended = (LedgerRow.study_id == study.id, LedgerRow.round.in_(newest.values()), LedgerRow.kind != "asked")
    kinds: dict[int | None, str | None] = {None: None, **dict.fromkeys(newest.values(), "asked")}
    kinds |= {row.round: row.kind for row in tx.session.scalars(select(LedgerRow).where(*ended))}
    # By columns: of rows that are no queries any more others speak.
    columns = select(QueryRow.number, QueryRow.sha256, QueryRow.state, QueryRow.round)
    rows = tx.session.execute(columns.where(QueryRow.study_id == study.id).order_by(QueryRow.number)).all()
    for query in newest.keys() - {row.sha256 for row in rows}:
        if sha256 in (None, query):
            raise DatabaseDiffers(study.name, "a query that the ledger charges is missing in the database")
    for row in rows:
        if sha256 not in (None, row.sha256):
            continue
        round = newest.get(row.sha256)
        states = (row.state, _round_state(tx, study, round))
        if row.round != round or states not in _STATES_AFTER[kinds[round]]:
            difference = f"query {row.number} stands in the database where the ledger's entries have not left it"
            raise DatabaseDiffers(study.name, difference)


def _round_state(tx: Transaction, study: StudyRow, round_number: int | None) -> str | None:
    if round_number is None:
        return None
    of_round = (RoundRow.study_id == study.id, RoundRow.number == round_number)
    return tx.session.scalar(select(RoundRow.state).where(*of_round))


_WITHOUT_ANSWER: set[tuple[str, str | None]] = {
    (query, end) for query in ("failed", "waiting") for end in ("abandoned", "stopped")
}
# By the newest entry of the newest round that asked a query: in which states the query and that round may be.
_STATES_AFTER: dict[str | None, set[tuple[str, str | None]]] = {
    None: {("waiting", None), ("failed", None)},
    "asked": {("asked", "collecting")},
    "settled": {("asked", "settled"), ("answered", "released"), ("failed", "abandoned"), ("failed", "stopped")},
    "cancelled": _WITHOUT_ANSWER,
    "charged-in-full": _WITHOUT_ANSWER,
}


def _query_digests(tx: Transaction, study: StudyRow) -> dict[int, str]:
    """Return the digest of each round's query, in the order of the ledger."""
    statement = select(LedgerRow).where(LedgerRow.study_id == study.id, LedgerRow.kind == "asked")
    entries = tx.session.scalars(statement.order_by(LedgerRow.sequence))
    return {row.round: json.loads(row.body).get("query") for row in entries if row.round is not None}


def _newest(tx: Transaction, signer: SigningKey, study: StudyRow, budget: BudgetRow) -> Entry:
    row = tx.session.scalars(_LAST, {"study": study.id}).one_or_none()
    if row is None or row.sequence != budget.entries:
        raise DatabaseDiffers(study.name, "its ledger is longer or shorter than the head that was signed")
    try:
        entry = entry_of(row)
        verify_chain([entry], after=(entry.sequence - 1, entry.previous))
    except LedgerError as error:
        raise DatabaseDiffers(study.name, f"the ledger's newest entry was changed: {error.reason}") from error
    if entry.sha256 != budget.head_sha256:
        raise DatabaseDiffers(study.name, "the ledger's newest entry is not the head that was signed")
    head = LedgerHead(study=study.name, entries=entry.sequence, sha256=entry.sha256)
    try:
        key = decode_public_key(signer.public_key)
        verify_document(key, LEDGER_HEAD, head.model_dump(mode="json"), budget.signature)
    except SigningError as error:
        raise DatabaseDiffers(study.name, "the ledger's head does not carry this coordinator's signature") from error
    return entry
