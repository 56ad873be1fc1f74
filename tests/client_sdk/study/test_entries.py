"""Entry by entry against what a hospital knows of itself, scheme by scheme; over HTTP in tests/e2e."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from accounting.budget.ledger import Entry, append
from accounting.plan.report import DISTANCE_BINS
from client_sdk.errors import BadAssignment, LedgerContradicted, OwnBudgetExceeded
from client_sdk.guard.ledger import OwnRound
from client_sdk.study.entries import EntryChecks
from study_protocol.study.model_info import ModelInfo
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.factories.settings import limit, settings

NOTHING = OwnRound(False, False, None)


class Book:
    """A coordinator's ledger as it is written, and a hospital that reads along."""

    def __init__(self, chosen: StudySettings, own: Mapping[int, OwnRound] | None = None, members: int = 4) -> None:
        self.settings, self.own, self.members = chosen, dict(own or {}), 0
        self.entries: list[Entry] = []
        self.checks = self.reader()
        self.add("opened", study="sepsis", settings=chosen.as_json(), plan=plan_of(chosen).to_dict())
        for _ in range(members):
            self.members += 1
            self.add("roster", change="enrolled")

    def reader(self) -> EntryChecks:
        return EntryChecks("sepsis", self.settings, lambda n: self.own.get(n, NOTHING), lambda: self.entries)

    def add(self, kind: Any, round: int | None = None, **event: Any) -> None:
        standing = {
            "settings_sha256": self.settings.digest(),
            "roster_sha256": "a" * 64,
            "members": self.members,
            "state_sha256": "b" * 64,
            "statement_sha256": "c" * 64,
            "can_continue": True,
        }
        self.entries.append(append(self.entries[-1] if self.entries else None, kind, round, standing | event))
        self.checks.check(self.entries[-1])

    def settle(self, round: int, report: Any) -> None:
        self.add("reserved", round)
        self.add("settled", round, report=report)


def told(**reported: Any) -> OwnRound:
    return OwnRound(True, True, reported)


def counts(**bins: int) -> dict[str, Any]:
    found = [0] * DISTANCE_BINS
    for place, count in bins.items():
        found[int(place[1:])] = count
    return {"counts": found}


def bounds(value: float, *, complete: bool = False) -> dict[str, Any]:
    return {"filter": value, "moments": [value] * 4, "complete": complete}


CLIENT = settings("client", bayesian=True)
PARALLEL = settings(bayesian=True)
MASKED = settings(bayesian=True, masked=True)
AT_END = settings(bayesian=True, disclosure="at-end")


def test_a_client_must_be_counted_at_its_own_distance_or_further() -> None:
    own = {1: told(distance=0.5)}
    # 0.5 of 1.0 is the upper edge of bin 31.
    Book(CLIENT, own).settle(1, counts(b0=3, b31=1))
    Book(CLIENT, own).settle(1, counts(b0=3, b63=1))
    with pytest.raises(LedgerContradicted, match="no client is counted at the distance"):
        Book(CLIENT, own).settle(1, counts(b0=3, b30=1))
    # Who was not in it knows nothing of it.
    Book(CLIENT, {1: OwnRound(False, True, {"distance": 0.5})}).settle(1, counts(b0=4))


def test_a_histogram_counts_members_only() -> None:
    with pytest.raises(LedgerContradicted, match="1000000000 clients are counted, of 4 members"):
        Book(CLIENT).settle(1, counts(b0=10**9))
    book = Book(CLIENT)
    book.members = 10**6
    with pytest.raises(LedgerContradicted, match="counts 1000000 members where 4 are left"):
        book.add("reserved", 1)


def test_whoever_leaves_in_the_middle_of_a_round_was_drawn_in_it() -> None:
    book = Book(CLIENT, members=3)
    book.add("reserved", 1)
    book.members = 2
    book.add("roster", change="withdrawn")
    book.add("settled", 1, report=counts(b0=3))


def test_the_largest_bound_is_at_least_the_own_one() -> None:
    own = {1: told(filter=0.5, moments=[0.1, 0.2, 0.3, 0.4])}
    Book(PARALLEL, own).settle(1, {"filter": 0.5, "moments": [0.1, 0.2, 0.3, 0.4], "complete": False})
    for short in (bounds(0.45), {"filter": 0.5, "moments": [0.1, 0.2, 0.3, 0.399], "complete": False}):
        with pytest.raises(LedgerContradicted, match="smaller than the one that this hospital reported"):
            Book(PARALLEL, own).settle(1, short)


def test_bounds_of_all_clients_hold_those_of_whoever_ever_took_part() -> None:
    own = {1: told(filter=0.5, moments=[0.5] * 4)}
    book = Book(MASKED, own, members=5)
    book.settle(1, bounds(0.6, complete=True))
    with pytest.raises(LedgerContradicted, match="all clients, and this hospital sent none"):
        book.settle(2, bounds(0.1, complete=True))
    # It never took part: nothing of it is missing.
    Book(MASKED, members=5).settle(1, bounds(0.1, complete=True))


def test_a_round_with_a_number_of_billions_is_judged_by_the_rounds_there_were() -> None:
    """A coordinator may number as it likes; looking every number up would keep the hospital busy for days."""
    asked: list[int] = []
    book = Book(MASKED, members=5)

    def own(number: int) -> OwnRound:
        asked.append(number)
        return NOTHING

    book.checks = EntryChecks("sepsis", MASKED, own, lambda: book.entries).load(book.checks.to_json())
    book.settle(2**31 - 1, bounds(0.1, complete=True))
    assert len(asked) < 10


def test_reports_that_are_withheld_are_checked_at_the_end() -> None:
    own = {1: told(filter=0.5, moments=[0.5] * 4), 3: told(filter=0.7, moments=[0.7] * 4)}

    def until_the_end() -> Book:
        book = Book(AT_END, own)
        book.settle(1, None)
        book.add("reserved", 2)
        book.add("charged-in-full", 2, reason="x")
        book.settle(3, None)
        return book

    until_the_end().add("finished", reason="stopped", report=[bounds(0.5), None, bounds(0.7)])
    with pytest.raises(LedgerContradicted, match="the report of round 3 cannot be true: the largest of all bounds"):
        until_the_end().add("finished", reason="stopped", report=[bounds(0.5), None, bounds(0.6)])
    with pytest.raises(LedgerContradicted, match="2 reports of 3 charged rounds"):
        until_the_end().add("finished", reason="stopped", report=[bounds(0.5), bounds(0.7)])


def test_a_cancelled_round_is_believed_where_nothing_was_taken() -> None:
    book = Book(PARALLEL, {1: OwnRound(False, True, None), 2: OwnRound(True, True, None)})
    book.add("reserved", 1)
    book.add("cancelled", 1, reason="too-few-clients")
    book.add("reserved", 2)
    with pytest.raises(LedgerContradicted, match="round 2 was cancelled, which makes it free"):
        book.add("cancelled", 2, reason="too-few-clients")


def test_past_a_limit_every_later_round_is_refused_and_what_was_computed_is_kept() -> None:
    book = Book(settings(max_steps=2))
    for round in (1, 2, 3):
        book.checks.require_within_limits()
        book.settle(round, None)
    with pytest.raises(
        OwnBudgetExceeded, match="round 3 was reserved although it would pass its limit of noised steps"
    ):
        book.checks.require_within_limits()
    saved = book.checks.to_json()
    again = book.reader().load(saved)
    assert (again.exceeded, again.to_json()) == (True, saved)
    book.add("reserved", 4)
    with pytest.raises(OwnBudgetExceeded) as caught:
        book.checks.require_within_limits()
    assert caught.value.code == "max-steps-exceeded"


def test_a_classical_limit_is_followed_as_the_bayesian_one_is() -> None:
    book = Book(settings(limits=[limit("instance", epsilon=9.0)], max_steps=40))
    for round in range(1, 40):
        book.settle(round, None)
    with pytest.raises(OwnBudgetExceeded, match="the classical limit at instance level") as caught:
        book.checks.require_within_limits()
    assert caught.value.code == "study-limit-exceeded"


@pytest.mark.parametrize("kind", ["opened", "reserved", "settled", "cancelled"])
def test_an_entry_out_of_order_cannot_be(kind: str) -> None:
    book = Book(PARALLEL)
    event: dict[str, Any] = {"settled": {"report": None}, "cancelled": {"reason": "x"}}.get(kind, {})
    if kind == "opened":
        event = {"study": "sepsis", "settings": PARALLEL.as_json(), "plan": plan_of(PARALLEL).to_dict()}
    if kind == "reserved":
        book.add("reserved", 1)
    with pytest.raises(LedgerContradicted):
        book.add(kind, None if kind == "opened" else 1, **event)


def test_a_ledger_begins_with_its_opening() -> None:
    book = Book(PARALLEL, members=0)
    book.entries, book.checks = [], book.reader()
    with pytest.raises(LedgerContradicted, match="opens no study"):
        book.add("reserved", 1)


@pytest.mark.parametrize("field", ["study", "settings", "plan"])
def test_the_first_entry_opens_the_study_that_was_joined(field: str) -> None:
    other = settings(bayesian=True, noise_multiplier=9.0)
    wrong = {"study": "stroke", "settings": other.as_json(), "plan": plan_of(other).to_dict()}
    event = {"study": "sepsis", "settings": PARALLEL.as_json(), "plan": plan_of(PARALLEL).to_dict()}
    book = Book.__new__(Book)
    book.settings, book.own, book.members, book.entries = PARALLEL, {}, 0, []
    book.checks = book.reader()
    with pytest.raises(LedgerContradicted):
        book.add("opened", **event | {field: wrong[field]})


MOVING = settings(adaptive_clip={"quantile": 0.5, "rate": 0.2}, noise_multiplier=0.5, max_steps=9)


def released(book: Book, round: int | None, **norm: float) -> None:
    if round is not None:
        book.settle(round, None)
    book.add("released", round, sha256=f"{round or 0}" * 64, bytes=160, **norm)


def test_an_adaptive_clip_norm_moves_by_a_public_factor_from_model_to_model() -> None:
    book = Book(MOVING)
    released(book, None, clip_norm=1.0)
    released(book, 1, clip_norm=1.1)
    # A round that came to nothing moves nothing.
    book.settle(2, None)
    released(book, 3, clip_norm=1.0)
    for norm, words in (
        (1.2, "more than a factor of 1.105 from 1"),
        (0.9, "more than a factor"),
        (None, "no clip norm"),
    ):
        wrong = Book(MOVING)
        released(wrong, None, clip_norm=1.0)
        with pytest.raises(LedgerContradicted, match=words):
            released(wrong, 1, **({} if norm is None else {"clip_norm": norm}))
    with pytest.raises(LedgerContradicted, match="begins with clip norm 1, not 3"):
        released(Book(MOVING), None, clip_norm=3.0)


def test_a_constant_clip_norm_is_named_by_no_model() -> None:
    book = Book(settings())
    released(book, None)
    with pytest.raises(LedgerContradicted, match="names a clip norm, and the study's is constant"):
        released(book, 1, clip_norm=1.0)


def test_an_assignment_has_the_clip_norm_that_the_ledger_names() -> None:
    book = Book(MOVING)
    released(book, None, clip_norm=1.0)
    model = ModelInfo(version=0, sha256="0" * 64, bytes=160, clip_norm=1.0)
    book.checks.require_models(model, None)
    # As after a restart.
    again = book.reader().load(json.loads(json.dumps(book.checks.to_json())))
    again.require_models(model, None)
    for other in (1.05, None):
        with pytest.raises(BadAssignment, match="another file or clip norm"):
            again.require_models(model.model_copy(update={"clip_norm": other}), None)
    with pytest.raises(BadAssignment, match="no clip norm of the study's adaptive one"):
        Book(MOVING).checks.require_models(model, None)


@pytest.mark.parametrize("norm", [0.001, 1.0, 3.0])
def test_a_coordinator_whose_ledger_names_no_models_moves_no_constant_clip_norm(norm: float) -> None:
    checks = Book(settings()).checks
    model = ModelInfo(version=0, sha256="0" * 64, bytes=160)
    checks.require_models(model, None)
    with pytest.raises(BadAssignment, match="names a clip norm, and the study's is constant"):
        checks.require_models(model.model_copy(update={"clip_norm": norm}), None)
