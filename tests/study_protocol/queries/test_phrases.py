"""Questions as the person reads them who decides about an answer."""

from __future__ import annotations

import pytest

from study_protocol.queries.phrases import condition_in_words, listed, variable_in_words, who_in_words
from study_protocol.queries.variables import Condition, Variable
from tests.factories.questions import (
    DOCUMENTS,
    question,
)

EDGES = [float(edge) for edge in range(1000)]


ALL = "Of a patient with several rows, the first counts."


WHO = " whose age is at least 18 and below 90 and sex is f or m, where u means missing. "


WHERE = [
    {"column": "age", "low": 18, "high": 90},
    {"column": "sex", "categories": ["f", "m"], "missing_values": ["u"]},
]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("count", "How many patients there are"),
        (
            "table",
            "How many patients there are by sex (f, m, other, missing) and age (below 40, 40 to 60, 60 to 80, 80 and "
            "above, missing), of patients",
        ),
        (
            "tables",
            "How many patients there are in 3 tables by (1) sex (f, m, other, missing); (2) age (below 40, 40 to 60, "
            "60 to 80, 80 and above, missing); (3) whether pressure is missing, of patients",
        ),
        (
            "moments",
            "How many have a value, the mean and the standard deviation of age (clipped to 0 to 100), pressure "
            "(clipped to 50 to 250) and sex (1 for f, 0 for anything else), of patients",
        ),
        (
            "covariance",
            "Means, covariances and correlations of age (clipped to 0 to 100), pressure (clipped to 50 to 250) and sex "
            "(1 for f, 0 for anything else), of patients that have all of them",
        ),
        (
            "linear-regression",
            "How pressure (clipped to 50 to 250) depends linearly on age (clipped to 0 to 100) and sex (1 for f, 0 for "
            "anything else), of patients that have all of them",
        ),
        (
            "quantiles",
            "The quantiles at 25 %, 50 % and 75 % and the distribution of pressure (clipped to 50 to 300) in 40 bins "
            "by sex (f, m, other, missing), of patients",
        ),
        (
            "survival",
            "How long it takes until sex is f: survival over age in 3 bins from 18 to 80 by pressure (below 140, 140 "
            "and above, missing), of patients",
        ),
    ],
)
def test_an_officer_reads_who_is_asked_about_what(kind: str, words: str) -> None:
    assert question(DOCUMENTS[kind]).in_words() == f"{words}. {ALL}"
    assert question(DOCUMENTS[kind], where=WHERE).in_words() == words + WHO + ALL


def test_long_lists_of_bins_are_said_by_their_ends() -> None:
    words = question({"kind": "table", "variables": [{"column": "age", "edges": EDGES}]}).in_words()
    assert "age (999 bins from 0 to 999, below, above, or missing)" in words


def test_a_list_is_joined_with_its_last_word() -> None:
    assert listed(["a"]) == "a"
    assert listed(iter(["a", "b"]), "or") == "a or b"
    assert listed(["a", "b", "c"]) == "a, b and c"


def test_half_open_conditions_say_their_one_end() -> None:
    assert condition_in_words(Condition(column="age", low=18)) == "age is at least 18"
    assert condition_in_words(Condition(column="age", high=0.5)) == "age is below 0.5"
    words = condition_in_words(Condition(column="age", high=9, missing_values=("-1", "999")))
    assert words == "age is below 9, where -1 or 999 means missing"


def test_a_long_list_of_categories_is_said_in_full() -> None:
    names = tuple(f"ward{place}" for place in range(20))
    assert variable_in_words(Variable(column="ward", categories=names)) == f"ward ({', '.join(names)}, other, missing)"


def test_which_of_several_rows_counts_is_said_for_every_rule() -> None:
    assert who_in_words((), "last") == ". Of a patient with several rows, the last counts."
    assert "the mean of each number counts" in who_in_words((), "mean")
    assert "the largest number counts" in who_in_words((), "any")
