"""Errors of private learning: one base, and the place where training stopped."""

from __future__ import annotations

import pytest

from private_learning.errors import ConfigurationError, TrainingStopped, WardroundError


def test_every_error_is_one_of_wardround_and_has_no_request_at_first() -> None:
    for error in (ConfigurationError("set x"), TrainingStopped("the update")):
        assert isinstance(error, WardroundError)
        assert error.request_id is None


def test_the_place_is_named_and_nothing_was_sent() -> None:
    with pytest.raises(TrainingStopped, match=r"^the update: NaN.*nothing was sent$") as stopped:
        raise TrainingStopped("the update")
    assert stopped.value.where == "the update"
