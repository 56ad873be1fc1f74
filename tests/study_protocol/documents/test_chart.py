"""The curve of ε as shares of a drawing."""

from __future__ import annotations

import pytest

from study_protocol.documents.chart import chart_of
from study_protocol.study.certificate import Certificate, SpentAfterRound
from tests.factories.certificates import ONE


def changed(spent: list[tuple[int, list[float | None]]], most: int) -> Certificate:
    """The certificate with these rounds. Its limits are 40 and 50."""
    points = [SpentAfterRound(round=round, spent=values) for round, values in spent]
    rounds = ONE.certificate.rounds.model_copy(update={"most": most})
    return ONE.certificate.model_copy(update={"spent_after": points, "rounds": rounds})


def test_before_the_first_round_there_is_no_curve() -> None:
    assert chart_of(changed([], 6)) is None


def test_rounds_and_losses_are_shares_of_the_axes() -> None:
    """The height is 6 % above the largest of 50, 40 and what was spent, the width all rounds that may be charged."""
    chart = chart_of(changed([(1, [5.3, 10.6]), (4, [None, 53.0])], 8))
    assert chart is not None
    bayesian, classical = chart["series"]
    top = 53 * 1.06
    assert (bayesian["label"], classical["label"]) == ("patient, bayesian", "patient, classical")
    assert (bayesian["limit"], classical["limit"]) == pytest.approx((40 / top, 50 / top))
    # What no finite ε covers is no point.
    assert bayesian["points"] == [pytest.approx([1 / 8, 5.3 / top])]
    assert classical["points"] == [pytest.approx([1 / 8, 10.6 / top]), pytest.approx([4 / 8, 53 / top])]
    assert [tick["label"] for tick in chart["y"]] == ["0", "20", "40"]
    assert [tick["at"] for tick in chart["y"]] == pytest.approx([0, 20 / top, 40 / top])


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (1, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (8, ["0", "2", "4", "6", "8"]),
        (240, ["0", "50", "100", "150", "200"]),
    ],
)
def test_ticks_of_rounds_are_round_whole_numbers(most: int, labels: list[str]) -> None:
    chart = chart_of(changed([(1, [1.0, 1.0])], most))
    assert chart is not None
    assert [tick["label"] for tick in chart["x"]] == labels
