"""What must hold of a study whatever was killed on the way, checked from outside.

Read from the coordinator: its ledger, rounds and models. Read from each hospital's own disk: its ledger and egress
log. A law that does not hold is an error that says which.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from safetensors.numpy import load

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry
from client_sdk.api.client import Client
from client_sdk.errors import NotFoundError
from client_sdk.guard.ledger import Departure, HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.secure_sum.store import RoundRecord
from client_sdk.study.audit import audited
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import RoundView
from study_protocol.study.queries import Query
from tests.harness import byte_laws, charge_laws
from tests.harness.law_broken import LawBroken

__all__ = ["LawBroken", "check", "whole_history", "whole_ledger"]

ENDS = ("settled", "charged-in-full", "cancelled")
# Nats and ε are floats that both sides compute by the same code from the same events.
RELATIVE_TOLERANCE = 1e-12


def check(
    operator: Client,
    study: str,
    homes: Mapping[str, Path],
    *,
    finished: bool = True,
    sent: Mapping[str, Collection[str]] | None = None,
) -> Budget:
    """Every law of one study. Returns the budget, computed again.

    homes  client name -> the hospital's directory
    sent   where `byte_laws.keeping_finished` was in force: address of an upload -> SHA-256 of every body sent to it

    Raises:
        LawBroken, LedgerNotExtended.
    """
    entries = whole_ledger(operator, study)
    budget = audited(study, entries).budget
    views = whole_history(operator, study)
    _statement_is_the_replay(operator, study, budget, finished=finished)
    _every_round_is_reserved_once_and_ends_once(entries, finished=finished)
    _only_charged_rounds_are_released(operator, study, entries, views)
    departures = {name: _departures(home, study) for name, home in homes.items()}
    masked = operator.study(study).settings.privacy.masking is not None
    for name, home in homes.items():
        _hospital_paid_for_what_left(name, home, study, departures[name])
    _nothing_acknowledged_is_lost(views, departures, masked=masked)
    _nothing_came_from_nowhere(views, departures, masked=masked)
    if masked:
        _what_was_opened_is_charged(entries, {name: _opened(home, study) for name, home in homes.items()})
    else:
        _what_was_seen_is_charged(entries, views)
    settings = operator.study(study).settings
    charge_laws.spent_is_what_the_formula_says(settings, entries, budget)
    for name, home in homes.items():
        charge_laws.hospital_agrees(name, home, study, settings, entries, views)
    queries = whole_queries(operator, study)
    byte_laws.no_question_is_answered_twice(entries, queries, homes)
    if sent is not None:
        byte_laws.bytes_sent_again_are_the_same(sent, homes, study)
        byte_laws.released_is_what_hospitals_made(operator, study, views, homes, queries)
    return budget


def has_trained(operator: Client, study: str, settings: AnySettings) -> bool:
    """Whether as many rounds of training have ended as there may be."""
    ended = [view for view in whole_history(operator, study) if view.query is None and view.ended_at is not None]
    return len(ended) >= settings.rounds


def is_asked(operator: Client, study: str) -> bool:
    """Whether a question waits or is under way."""
    return any(query.state in ("waiting", "asked") for query in operator.queries(study).queries)


def whole_queries(operator: Client, study: str) -> list[Query]:
    """All queries with their answers, page after page."""
    queries: list[Query] = []
    after: int | None = None
    while True:
        page = operator.queries(study, after=after)
        queries += [operator.query(study, query.number) for query in page.queries]
        if page.next is None:
            return queries
        after = page.next


def whole_ledger(operator: Client, study: str) -> list[Entry]:
    """All entries, page after page."""
    entries: list[Entry] = []
    while True:
        page = operator.ledger(study, after=len(entries))
        if not page.entries:
            return entries
        entries += [Entry.from_dict(entry.model_dump()) for entry in page.entries]


def whole_history(operator: Client, study: str) -> list[RoundView]:
    """All rounds in order, page after page."""
    views: list[RoundView] = []
    after: int | None = None
    while True:
        page = operator.rounds(study, after)
        views += page.rounds
        if page.next is None:
            return sorted(views, key=lambda view: view.round)
        after = page.next


def _statement_is_the_replay(operator: Client, study: str, budget: Budget, *, finished: bool) -> None:
    statement = operator.budget(study)
    if finished and (statement.state != "finished" or statement.can_continue):
        raise LawBroken(f"the study should be finished, and says {statement.state}")
    stated = {(limit.level, limit.definition): limit.spent for limit in statement.limits}
    for limit in budget.statements():
        local_spent, theirs = limit["spent"], stated[limit["level"], limit["definition"]]
        if (local_spent is None) != (theirs is None) or (
            local_spent is not None and abs(local_spent - (theirs or 0.0)) > RELATIVE_TOLERANCE * max(1.0, local_spent)
        ):
            raise LawBroken(
                f"the budget states {theirs} at {limit['level']}/{limit['definition']}, its ledger gives {local_spent}"
            )
        if local_spent is not None and limit["epsilon"] is not None and not local_spent <= limit["epsilon"]:
            raise LawBroken(f"{limit['level']}/{limit['definition']}: {local_spent} spent of {limit['epsilon']}")


def _every_round_is_reserved_once_and_ends_once(entries: Sequence[Entry], *, finished: bool) -> None:
    kinds: dict[int, list[str]] = defaultdict(list)
    for entry in entries:
        if entry.round is not None:
            kinds[entry.round].append(entry.kind)
    last = max(kinds, default=0)
    if sorted(kinds) != list(range(1, last + 1)):
        raise LawBroken("round numbers have gaps")
    for number, bodies in kinds.items():
        open_one = not finished and number == last and bodies in (["reserved"], ["asked"])
        # Which model a settled round of training made, one entry may name.
        ended = bodies[:2] if bodies == ["reserved", "settled", "released"] else bodies
        begun_once = len(ended) == 2 and ended[0] in ("reserved", "asked") and ended[1] in ENDS
        if not open_one and not begun_once:
            raise LawBroken(f"round {number} reads {bodies}: reserved once and ended once is the law")
    closing = [entry.kind for entry in entries].count("finished")
    if closing != (1 if finished else 0):
        raise LawBroken(f"the ledger finishes {closing} times")


def _only_charged_rounds_are_released(
    operator: Client, study: str, entries: Sequence[Entry], views: Sequence[RoundView]
) -> None:
    settled = {entry.round for entry in entries if entry.kind == "settled"}
    digest_by_round = {entry.round: entry.body["sha256"] for entry in entries if entry.kind == "released"}
    digests: Counter[str] = Counter()
    for view in views:
        if view.state == "released" and view.round not in settled:
            raise LawBroken(f"round {view.round} was released without its charge")
        # What a query releases is an answer.
        makes_model = view.state == "released" and view.query is None
        if (view.model_version is not None) != makes_model:
            raise LawBroken(f"round {view.round} is {view.state} with model {view.model_version}")
        try:
            body = operator.model(study, view.round)
        except NotFoundError:
            body = None
        if (body is not None) != makes_model:
            raise LawBroken(f"round {view.round} is {view.state}, but its model is {'' if body else 'not '}there")
        if body is not None:
            if digest_by_round and hashlib.sha256(body).hexdigest() != digest_by_round.get(view.round):
                raise LawBroken(f"round {view.round} released a model that the ledger does not name")
            # Not the file's: its header names the round.
            digests[_tensors_digest(body)] += 1
    # Fresh noise in every round: the same model twice would mean that one round's noise was used again.
    if any(count > 1 for count in digests.values()):
        raise LawBroken("two rounds released the same model")


def _tensors_digest(body: bytes) -> str:
    digest = hashlib.sha256()
    for name, values in sorted(load(body).items()):
        digest.update(name.encode() + b"\0" + values.tobytes())
    return digest.hexdigest()


def _departures(home: Path, study: str) -> list[Departure]:
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        return ledger.departures(study)


def _hospital_paid_for_what_left(name: str, home: Path, study: str, departures: Sequence[Departure]) -> None:
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        entries = {entry.sequence: entry for entry in ledger.entries}
        for departure in departures:
            if departure.what != "update":
                continue
            charge = entries.get(departure.charge or 0)
            if charge is None or (charge.body.get("study"), charge.round) != (study, departure.round):
                raise LawBroken(f"{name} sent round {departure.round} without a charge of its own")
    sent = Counter(departure.round for departure in departures if departure.what == "update")
    if any(count > 1 for count in sent.values()):
        raise LawBroken(f"{name} made two different updates for one round")


def _nothing_acknowledged_is_lost(
    views: Sequence[RoundView], departures: Mapping[str, Sequence[Departure]], *, masked: bool
) -> None:
    received = {(view.round, c.client): c for view in views for c in view.clients or []}
    for name, sent in departures.items():
        for departure in sent:
            if departure.answer not in ("accepted", "recorded"):
                continue
            row = received.get((departure.round, name))
            expected_state = "received" if departure.what == "update" else "refused"
            # What arrives of a masked update is not what is written down before it is masked.
            is_same = masked or expected_state != "received" or (row is not None and row.sha256 == departure.sha256)
            if row is None or row.state != expected_state or not is_same:
                raise LawBroken(f"{name} was told that round {departure.round} has its {departure.what}; it has not")


def _nothing_came_from_nowhere(
    views: Sequence[RoundView], departures: Mapping[str, Sequence[Departure]], *, masked: bool
) -> None:
    computed = {(d.round, name, None if masked else d.sha256) for name, sent in departures.items() for d in sent}
    for view in views:
        for client in view.clients or []:
            digest = None if masked else client.sha256
            if client.state == "received" and (view.round, client.client, digest) not in computed:
                raise LawBroken(f"round {view.round} holds an update that {client.client} did not make")


def _what_was_seen_is_charged(entries: Sequence[Entry], views: Sequence[RoundView]) -> None:
    cancelled = {entry.round for entry in entries if entry.kind == "cancelled"}
    for view in views:
        if view.round in cancelled and any(client.state == "received" for client in view.clients or []):
            raise LawBroken(f"round {view.round} was given back although an update had arrived")


def _opened(home: Path, study: str) -> set[int]:
    """Rounds for which this hospital opened shares, as its own disk says."""
    # Of rounds only, whose key is a number: beside them lies what was opened, by model.
    records = (home / "outbox" / study / "secure-sum").glob(f"{study}.[0-9]*.json")
    round_records = (RoundRecord.from_bytes(path.read_bytes()) for path in records)
    return {record.round for record in round_records if record.released}


def _what_was_opened_is_charged(entries: Sequence[Entry], opened: Mapping[str, Collection[int]]) -> None:
    cancelled = {entry.round for entry in entries if entry.kind == "cancelled"}
    for name, rounds in opened.items():
        for number in cancelled.intersection(rounds):
            raise LawBroken(f"round {number} was given back although {name} had opened shares")
