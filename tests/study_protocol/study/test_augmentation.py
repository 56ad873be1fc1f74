"""Several views of one record."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from study_protocol.study.augmentation import Augmentation


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({"shift": 2}, True),
        ({"flip": True}, True),
        ({"rotation": 15.0}, True),
        ({"scale": 0.1}, True),
        ({"contrast": 0.2}, False),
        ({"brightness": 0.2}, False),
        ({"noise": 0.2}, False),
    ],
)
def test_one_change_is_enough_and_some_move_what_is_in_the_record(change: dict[str, Any], moves: bool) -> None:
    assert Augmentation(views=4, **change).moves is moves


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "augmentation has no change"),
        ({"shift": 0, "noise": 0.0}, "augmentation has no change"),
        ({"views": 0, "flip": True}, "greater than or equal to 1"),
        ({"views": 65, "flip": True}, "less than or equal to 64"),
        ({"rotation": 181.0}, "less than or equal to 180"),
        ({"scale": 1.0}, "less than 1"),
        ({"contrast": -0.1}, "greater than or equal to 0"),
        ({"zoom": 0.1, "flip": True}, "Extra inputs"),
    ],
)
def test_views_without_a_change_or_beyond_its_range_are_refused(entries: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Augmentation.model_validate({"views": 4} | entries)
