"""The section of a study from whose questions synthetic records are made."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.study.any_settings import settings_from
from study_protocol.study.synthesis import Synthesis
from study_protocol.versions import MARGINALS, min_protocol
from tests.factories.settings import settings_json, statistics_settings

COLUMNS = [
    {"column": "age", "edges": [30, 50, 70]},
    {"column": "sex", "categories": ["f", "m"]},
    {"column": "ill", "categories": ["0", "1"]},
]
SECTION: dict[str, Any] = {"columns": COLUMNS, "outcome": "ill", "allowance": 0.05, "shares": [10, 50, 40]}


def section(**entries: Any) -> Synthesis:
    return Synthesis.model_validate(SECTION | entries)


def wide(columns: int, edges: int) -> list[dict[str, Any]]:
    return [{"column": f"x{number}", "edges": list(range(edges))} for number in range(columns)]


def statistics_json(**entries: Any) -> dict[str, Any]:
    return statistics_settings(**entries).as_json()


def with_synthesis(settings: dict[str, Any], **entries: Any) -> dict[str, Any]:
    return settings | {"synthesis": SECTION | entries}


def test_a_study_without_it_keeps_its_text() -> None:
    assert "synthesis" not in settings_from(statistics_json()).as_json()
    assert "synthesis" not in settings_from(settings_json()).as_json()


def test_a_study_with_it_needs_programs_that_know_it() -> None:
    settings = settings_from(with_synthesis(statistics_json()))
    assert min_protocol(settings.as_json()) == MARGINALS


@pytest.mark.parametrize("allowance", [1e-9, 0.0317, 0.05, 1.0, 4.0, 1 / 3])
@pytest.mark.parametrize("shares", [(10, 50, 40), (1, 1, 98), (33, 33, 34)])
def test_its_questions_cost_the_allowance_at_most_and_hardly_less(
    allowance: float, shares: tuple[int, int, int]
) -> None:
    asked = section(allowance=allowance, shares=shares)
    costs = [1 / Fraction(asked.noise_multiplier(percent)) ** 2 for percent in shares]
    assert sum(costs) <= Fraction(allowance)
    assert float(sum(costs)) == pytest.approx(allowance, rel=1e-3 if allowance >= 1 else 1e-4)


@pytest.mark.parametrize("shares", [(10, 50, 40), (50, 25, 25), (1, 1, 98)])
def test_all_that_is_not_asked_yet_is_kept(shares: tuple[int, int, int]) -> None:
    """Also where one question has the noise of another."""
    asked = section(shares=shares)
    kept = asked.kept_after(asked.first_question())
    costs = [(Fraction(cost.sensitivity) / Fraction(cost.noise_std)) ** 2 for cost in kept]
    later = sum(1 / Fraction(asked.noise_multiplier(percent)) ** 2 for percent in shares[1:])
    assert len(costs) == 2
    assert later <= sum(costs) <= Fraction(asked.allowance)
    again = asked.document(sum(shares[1:]), [(0, 2), (1, 2)], title="", stage=2)
    assert asked.kept_after(again) == ()
    assert len(asked.kept_after(asked.document(shares[1], [(0, 1, 2)], title="", stage=2))) == 1


def test_the_first_question_crosses_each_column_with_the_outcome() -> None:
    first = section(columns=[COLUMNS[0], COLUMNS[2], COLUMNS[1]], of_several="last", data_version="7").first_question()
    question = first.question
    assert isinstance(question, Marginals)
    assert (question.cliques, question.groups, question.rows, first.data_version) == (((0, 1), (1, 2)), (), "last", "7")
    assert question.noise_multiplier == section().noise_multiplier(10)
    assert question.cells <= section().most_cells() == 5 * 4 * 4


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"columns": [COLUMNS[0], COLUMNS[0]]}, "age stands twice"),
        ({"columns": [{"column": "age"}, COLUMNS[2]]}, "has edges .* categories or presence"),
        ({"outcome": "dead"}, "dead is none of synthesis.columns"),
        ({"shares": [50, 50, 1]}, "add up to 101"),
        ({"allowance": 1e-14}, "noise that cannot be drawn"),
        ({"allowance": 0.0}, "greater than 0"),
        ({"rows": 0}, "greater than or equal to 1"),
        ({"max_cells": 35}, "synthesis.max_cells must be at least 36"),
        pytest.param(
            {"columns": [COLUMNS[2], *wide(100, 327)]},
            "a question would have 131600 numbers, and at most 131072",
            id="too many numbers",
        ),
    ],
    ids=str,
)
def test_what_is_no_such_section_is_refused_in_words(entries: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        section(**entries)


def test_a_study_that_cannot_ask_so_is_refused_in_words() -> None:
    def refused(settings: dict[str, Any], words: str) -> None:
        with pytest.raises(ValidationError, match=words):
            settings_from(with_synthesis(settings))

    refused(settings_json(), "needs the section statistics")
    asked = {"max_queries": 9, "max_cells": 100}
    refused(settings_json(statistics=asked), 'set enforcement = "fixed-plan"')
    refused(settings_json(statistics=asked, bayesian=True), "no Bayesian limit counts that")
    for entries, words in [
        ({"max_queries": 2}, "max_queries must be at least 3"),
        ({"max_cells": 79}, "may have 80 numbers: raise it, or set synthesis.max_cells to 79"),
        ({"max_cells": 35}, "max_cells must be at least 36, as the first questions"),
        ({"suppress_below": 5}, "suppress_below must be 0"),
    ]:
        refused(statistics_json(**asked | entries), words)
    limit = settings_json()["privacy"]["limits"][0]
    fixed = settings_json(statistics=asked | {"share": 0.5}, limits=[limit | {"enforcement": "fixed-plan"}])
    assert settings_from(with_synthesis(fixed)).as_json()["synthesis"]["outcome"] == "ill"


def test_a_limit_on_cells_makes_groups_coarser() -> None:
    columns = [COLUMNS[2], *wide(3, 20)]
    # A column of 22 cells. Its three pairs of columns in g groups have 3·g² cells, by 4 of the outcome.
    for cells, groups in ((None, 8), (768, 8), (767, 7), (588, 7), (300, 5), (264, 4)):
        asked = section(columns=columns) if cells is None else section(columns=columns, max_cells=cells)
        assert asked.most_groups == groups
        # Without a limit the largest question is a star of two full pairs.
        assert asked.most_cells() == (2 * 22 * 22 * 4 if cells is None else cells)


def test_a_section_without_a_limit_keeps_its_text() -> None:
    assert "max_cells" not in section().model_dump(mode="json")


def test_one_column_beside_the_outcome_has_no_pairs() -> None:
    asked = section(columns=[COLUMNS[2], *wide(1, 20)])
    assert asked.most_cells() == asked.least_cells() == 22 * 4
    assert asked.first_question().question.cells == 22 * 4
