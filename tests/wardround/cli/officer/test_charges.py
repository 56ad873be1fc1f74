"""What each round and each query has charged."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from study_protocol.study.limit_statement import LimitProgress, PlannedSteps, SumOfSquares
from study_protocol.study.messages import RoundView
from study_protocol.study.queries import Query
from tests.factories.signed_answers import document, shown
from wardround.cli.officer.charges import NEWEST, LimitCharged, read_charges, show_charges

ASKED = document("count", noise_multiplier=5.0, title="How many?")


def view(number: int, spent: float | None, *, query: int | None = None, **fields: Any) -> RoundView:
    limit = {"level": "instance", "definition": "classical", "epsilon": 8.0, "spent": spent}
    values: dict[str, Any] = {
        "round": number,
        "state": "released",
        "model_version": None,
        "started_at": datetime(2026, 1, 2, tzinfo=UTC),
        "deadline": None,
        "ended_at": datetime(2026, 1, 3, tzinfo=UTC),
        "reason": None,
        "query": query,
        "metrics": None,
        "spent": None if spent is None else [limit],
        "clients": None,
    }
    return RoundView.model_validate(values | fields)


def client(views: list[RoundView], queries: list[Query] | None = None) -> Any:
    """Three rounds a page."""

    def rounds(study: str, after: int) -> Any:
        page = [one for one in views if after < one.round][:3]
        more = bool(page) and page[-1].round < views[-1].round
        return SimpleNamespace(rounds=page, next=page[-1].round if more else None)

    listed = SimpleNamespace(queries=queries or [], next=None)
    return SimpleNamespace(rounds=rounds, queries=lambda study, after: listed)


def statement(round_number: int, counted: LimitProgress | None = None) -> Any:
    limit = SimpleNamespace(epsilon=8.0, counted=counted)
    return SimpleNamespace(round=round_number, limits=[limit, SimpleNamespace(epsilon=None, counted=None)])


def counted(*, steps: bool, squares: bool) -> LimitProgress:
    """A plan of 5 steps, or μ² = 0.2."""
    planned = PlannedSteps(used=3, reserved=0, allowed=5) if steps else None
    of_squares = SumOfSquares(used=0.05, reserved=0.0, allowed=0.2) if squares else None
    return LimitProgress(enforcement="fixed-plan" if steps else "gaussian-filter", steps=planned, squares=of_squares)


def after(number: int, *, query: int | None = None, state: str = "released", **used: Any) -> RoundView:
    """A round, and what it left steps and squares at."""
    plain = view(number, 2.0, query=query, state=state)
    assert plain.spent is not None
    spent = plain.spent[0].model_copy(update=used)
    return plain.model_copy(update={"spent": [spent]})


@pytest.mark.parametrize(
    ("steps", "squares", "expected"),
    [
        (True, False, ["step 1", "not charged", "step 2", "step 2"]),
        (False, True, ["2.5 % so far", "not charged", "10.0 % so far", "25.0 % so far"]),
        (
            True,
            True,
            [
                "step 1, share for questions 2.5 %",
                "not charged",
                "step 2, share for questions 10.0 %",
                "step 2, share for questions 25.0 %",
            ],
        ),
    ],
)
def test_counted_charges_say_how_far_the_limit_is_used_up(steps: bool, squares: bool, expected: list[str]) -> None:
    """A cancelled round leaves both as they were, also where it is the first that is shown."""

    def at(number: int, step: int, square: float, **fields: Any) -> RoundView:
        # A question of patients who are set aside moves neither.
        used = ({"steps": step} if steps else {}) | ({"squares": square} if squares else {})
        return after(number, **used, **fields)

    views = [at(1, 1, 0.005), at(2, 1, 0.005, state="abandoned"), at(3, 2, 0.02), at(4, 2, 0.05, query=1)]
    told = statement(4, counted(steps=steps, squares=squares))
    charges = read_charges(client(views), "s", told, everything=True)
    assert [charge.cells() for charge in charges] == [[cell] for cell in expected]
    first = read_charges(client([at(1, 0, 0.0, spent=0.0, state="abandoned")]), "s", told, everything=True)
    assert [charge.cells() for charge in first] == [["not charged"]]


def test_an_abandoned_round_of_a_limit_in_epsilon_says_whether_it_was_charged() -> None:
    views = [view(1, 1.0), view(2, 1.0, state="abandoned"), view(3, 1.5, state="abandoned")]
    charges = read_charges(client(views), "s", statement(3), everything=True)
    assert [charge.cells() for charge in charges] == [["1.000 (+1.000)"], ["not charged"], ["1.500 (+0.500)"]]


def test_every_round_adds_to_what_was_spent_before_it() -> None:
    views = [view(1, 1.0), view(2, 1.25), view(3, None), view(4, 1.50001)]
    charges = read_charges(client(views), "s", statement(4), everything=True)
    assert [charge.view.round for charge in charges] == [1, 2, 4]
    # Both numbers are rounded up.
    assert [charge.cells() for charge in charges] == [["1.000 (+1.000)"], ["1.250 (+0.250)"], ["1.501 (+0.251)"]]
    assert [charge.title_in_words for charge in charges] == ["round of training"] * 3


def test_of_many_charges_the_newest_are_read_with_the_one_before_them() -> None:
    views = [view(number, number / 10) for number in range(1, 41)]
    charges = read_charges(client(views), "s", statement(40), everything=False)
    assert [charge.view.round for charge in charges] == list(range(41 - NEWEST, 41))
    assert charges[0].before == (LimitCharged(2.0),)
    assert len(read_charges(client(views), "s", statement(40), everything=True)) == 40


def test_a_query_is_named_and_charged_as_a_share_of_all_that_is_allowed() -> None:
    """Noise of 5 patients' effects costs 1/25 of μ² = 0.2: a fifth."""
    views = [view(1, 8.0, query=1), view(2, 8.0, query=2)]
    charges = read_charges(
        client(views, [shown(ASKED)]), "s", statement(2, counted(steps=False, squares=True)), everything=True
    )
    assert [charge.title_in_words for charge in charges] == ["query 1: How many?", "query 2"]
    (share,) = charges[0].used
    assert share == pytest.approx(0.2, rel=1e-9)
    assert share is not None
    assert share <= 0.2
    assert charges[1].used == (math.inf,)
    assert [charge.cells() for charge in charges] == [["20.0 %"], ["unknown"]]


def test_charges_are_json_with_their_limits() -> None:
    (charge,) = read_charges(client([view(1, 1.0)]), "s", statement(1), everything=True)
    assert charge.as_json() == {
        "round": 1,
        "query": None,
        "title": None,
        "state": "released",
        "ended_at": "2026-01-03T00:00:00Z",
        "spent": [{"level": "instance", "definition": "classical", "epsilon": 8.0, "spent": 1.0}],
    }


def test_the_table_says_where_more_charges_are(capsys: pytest.CaptureFixture[str]) -> None:
    charges = read_charges(
        client([view(1, 1.0, state="abandoned", reason="expired")]), "s", statement(1), everything=True
    )
    show_charges(charges, everything=False, rounds=5)
    out = " ".join(capsys.readouterr().out.split())
    assert "abandoned: expired" in out
    assert "these are the newest 1 charges. --all shows every charge" in out
    show_charges(charges, everything=True, rounds=5)
    assert "--all" not in capsys.readouterr().out
    show_charges([], everything=False, rounds=5)
    assert capsys.readouterr().out == ""
