"""Arrays and frozen values come back from JSON as they were."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from accounting import BayesianSpec
from accounting.encoding import array_from_json, array_to_json, fields_to_json


def test_arrays_come_back_bit_for_bit() -> None:
    array = np.array([[0.1, math.inf, 5e-324], [1e308, -0.0, 1 / 3]])
    again = array_from_json(array_to_json(array))
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()
    # A restored array is the caller's own, not a view of the message.
    again += 1


def test_equal_values_give_equal_text_whatever_sequence_they_were_given_as() -> None:
    one = BayesianSpec(orders=[2, 4], delta=1e-5, estimator_failure_probability=1e-6)
    other = BayesianSpec(orders=np.array([2.0, 4.0]), delta=1e-5, estimator_failure_probability=1e-6)  # type: ignore
    assert one == other
    assert json.loads(json.dumps(fields_to_json(one))) == fields_to_json(other)
    assert fields_to_json(one)["orders"] == [2.0, 4.0]
    assert fields_to_json(one)["level"] == "instance"


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(ValueError, match="reshape"):
        array_from_json({"shape": [3], "float64": array_to_json(np.ones(2))["float64"]})
