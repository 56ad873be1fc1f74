"""What the file of limits may say, and what a measured figure does to it."""

from __future__ import annotations

import pytest

from research.quality.limits import (
    LimitsError,
    broken_limits,
    loosened_without_reason,
    read_limits,
    tightened,
)

TEXT = """\
# Kept by hand.
[lines]
ceiling = 100  # today
target = 80

[tested]
floor = 59.5
"""


def test_a_limit_is_a_ceiling_or_a_floor() -> None:
    limits = read_limits(TEXT, ["tested", "lines"])
    assert (limits["lines"].bound, limits["lines"].value, limits["lines"].target) == ("ceiling", 100, 80)
    assert (limits["tested"].bound, limits["tested"].value, limits["tested"].target) == ("floor", 59.5, None)


def _on_one_line(text: str) -> str:
    """The name of a case may hold no control character."""
    return text.replace("\n", ", ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[lines", "not valid TOML"),
        ("[lines]\nceiling = 1\n[words]\nceiling = 1", "unknown figure words"),
        ("", "no limit for lines"),
        ("lines = 3", "lines must be a table"),
        ("[lines]\nceilling = 3", "lines must be a table with the keys"),
        ("[lines]\ntarget = 3", "lines needs either"),
        ("[lines]\nceiling = 3\nfloor = 3", "lines needs either"),
        ("[lines]\nceiling = nan", "lines.ceiling is nan"),
        ("[lines]\nfloor = -inf", "lines.floor is -inf"),
        ("[lines]\nceiling = '3'", "lines.ceiling is '3'"),
        ("[lines]\nceiling = true", "lines.ceiling is True"),
        ("[lines]\nceiling = 3\ntarget = [1]", "lines.target is"),
        ("[lines]\nceiling = 3\nwhy = ' '", "lines.why must be a sentence"),
        ("[lines]\nceiling = 3\nwhy = 4", "lines.why must be a sentence"),
    ],
    ids=_on_one_line,
)
def test_a_bad_file_says_what_to_correct(text: str, message: str) -> None:
    with pytest.raises(LimitsError) as error:
        read_limits(text, ["lines"])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("lines", "tested", "over"),
    [(100, 59.5, []), (101, 59.5, ["lines"]), (100, 59.4, ["tested"]), (2000, 0, ["lines", "tested"]), (1, 99, [])],
)
def test_a_figure_breaks_its_limit_beyond_it_only(lines: float, tested: float, over: list[str]) -> None:
    limits = read_limits(TEXT, ["tested", "lines"])
    assert [text.split()[0] for text in broken_limits(limits, {"lines": lines, "tested": tested})] == over


def test_a_broken_limit_is_told_with_both_numbers() -> None:
    (sentence,) = broken_limits(read_limits(TEXT, ["tested", "lines"]), {"lines": 1234.0})
    assert sentence.startswith("lines is 1,234, which is over its ceiling of 100.")


def loosened(before: str, now: str) -> list[str]:
    return list(loosened_without_reason(read_limits(now, ["x"]), read_limits(before, ["x"])))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("[x]\nceiling = 3", "[x]\nceiling = 4"),
        ("[x]\nfloor = 3", "[x]\nfloor = 2.9"),
        ("[x]\nceiling = 3\nwhy = 'Once.'", "[x]\nceiling = 4\nwhy = 'Once.'"),
        ("[x]\nceiling = 3\nwhy = 'Once.'", "[x]\nceiling = 4"),
        ("[x]\nceiling = 3", "[x]\nfloor = 3"),
    ],
    ids=_on_one_line,
)
def test_a_looser_limit_needs_a_new_reason(before: str, now: str) -> None:
    (sentence,) = loosened(before, now)
    assert sentence.startswith("x had the ")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("[x]\nceiling = 3", "[x]\nceiling = 3"),
        ("[x]\nceiling = 3\nwhy = 'Once.'", "[x]\nceiling = 2"),
        ("[x]\nfloor = 3", "[x]\nfloor = 4"),
        ("[x]\nceiling = 3", "[x]\nceiling = 4\nwhy = 'A new query.'"),
        ("[x]\nceiling = 3\nwhy = 'Once.'", "[x]\nceiling = 4\nwhy = 'Twice.'"),
    ],
    ids=_on_one_line,
)
def test_a_tighter_limit_and_a_reason_are_enough(before: str, now: str) -> None:
    assert loosened(before, now) == []


def test_a_limit_that_is_new_needs_no_reason() -> None:
    assert list(loosened_without_reason(read_limits("[x]\nceiling = 3", ["x"]), {})) == []


def test_limits_are_tightened_and_never_loosened() -> None:
    limits = read_limits(TEXT, ["tested", "lines"])
    assert tightened(TEXT, limits, {"lines": 90, "tested": 60.0}) == TEXT.replace("100", "90").replace("59.5", "60")
    assert tightened(TEXT, limits, {"lines": 101, "tested": 59.4}) == TEXT
    assert tightened(TEXT, limits, {"lines": 100, "tested": 59.5}) == TEXT
