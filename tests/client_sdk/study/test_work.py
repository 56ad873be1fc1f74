"""Each place of a noise schedule lies in it, and is used once and in order."""

import pytest

from client_sdk.errors import OwnBudgetExceeded, Refused
from client_sdk.study.work import _require_next
from tests.client_sdk.study.test_noise_schedule import PLAN


@pytest.mark.parametrize(("used", "place"), [({4}, 5), (set(), 5), ({1, 2, 3, 4}, 1000)])
def test_no_place_lies_past_the_end_of_the_schedule(used: set[int], place: int) -> None:
    with pytest.raises(OwnBudgetExceeded, match="past the end of the study's noise schedule"):
        _require_next(PLAN, used, place)


@pytest.mark.parametrize(("used", "place"), [({2}, 2), ({3}, 2), ({1, 4}, 4)])
def test_a_place_is_used_once_and_in_order(used: set[int], place: int) -> None:
    with pytest.raises(Refused, match=f"this hospital has used place {max(used)} already"):
        _require_next(PLAN, used, place)


def test_a_study_without_a_schedule_has_no_places() -> None:
    _require_next(PLAN, {1, 2}, None)
