"""Settings of the secure sum."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from study_protocol.study.masking import Masking, min_promise
from tests.factories.settings import MASKING


@pytest.mark.parametrize("colluders", range(1, 12))
def test_the_least_ring_that_a_refusal_names_is_accepted(colluders):
    least = colluders + 2 - colluders % 2
    values = MASKING | {"colluders": colluders, "min_survivors": colluders + 3}
    for neighbours in (least, least + 2, 1000):
        assert Masking(**values | {"neighbours": neighbours}).neighbours_among(9) == min(neighbours, 8)
    for neighbours in (least - 2, least - 1, least + 1):
        with pytest.raises(ValidationError, match=f"an even number k, at least {least}"):
            Masking(**values | {"neighbours": neighbours})


@pytest.mark.parametrize(
    ("colluders", "allow_three", "least"), [(1, False, 4), (1, True, 3), (2, True, 5), (2, False, 5), (15, True, 18)]
)
def test_sums_leave_three_honest_hospitals_or_two_of_three(colluders: int, allow_three: bool, least: int) -> None:
    assert min_promise(colluders, allow_three=allow_three) == least
    values = MASKING | {"colluders": colluders, "allow_three": allow_three}
    chosen = Masking(**values | {"min_survivors": least})
    assert chosen.honest_survivors == least - colluders
    with pytest.raises(ValidationError):
        Masking(**values | {"min_survivors": least - 1})


def test_without_neighbours_each_exchanges_masks_with_all_others() -> None:
    assert Masking(**MASKING | {"neighbours": None}).neighbours_among(50) == 49


def test_two_hospitals_are_told_what_masks_need() -> None:
    with pytest.raises(ValueError, match="masks need three hospitals at least"):
        Masking.model_validate(MASKING | {"colluders": 1, "min_survivors": 2})
