"""The model that the demonstration reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from study_protocol.wire.tensor_files import encode_model
from tests.factories.settings import settings as study_settings
from wardround.demo.averaged import accuracy_of, in_words, shares_of


def test_what_is_reported_is_the_mean_that_the_settings_name() -> None:
    tail = study_settings("parallel", training={"optimiser": {"averaging": {"name": "tail", "share": 0.5}}})
    falling = study_settings("parallel", training={"optimiser": {"averaging": {"name": "exponential", "decay": 0.9}}})
    assert list(shares_of(tail, range(1, 6))) == [3, 4, 5]
    assert shares_of(falling, [1, 2]) == {1: pytest.approx(0.9 / 1.9), 2: pytest.approx(1 / 1.9)}
    assert shares_of(study_settings("parallel"), [1, 2]) == {2: 1.0}
    assert in_words(tail, [3, 4, 5]) == "mean of its last 3 released models"
    assert in_words(falling, [1, 2]) == "mean of its last 2 released models, newer ones counting more"


def test_without_a_round_the_first_model_stands() -> None:
    assert shares_of(study_settings("parallel"), []) == {0: 1.0}


def test_the_accuracy_is_that_of_the_file_s_weights(tmp_path: Path) -> None:
    """Ill from age 50 on, by weights that are known: 1·scaled age, which is positive above 50."""
    chosen = study_settings("parallel")
    ages = [10.0, 40.0, 60.0, 90.0]
    path = tmp_path / "held.csv"
    rows = zip(ages, (0, 1, 1, 1), "abcd", strict=True)
    path.write_text("age,rate,ill,who\n" + "".join(f"{age},5.0,{ill},{who}\n" for age, ill, who in rows))
    model = encode_model({"weight": np.array([[1.0, 0.0]], np.float32), "bias": np.zeros(1, np.float32)}, {})
    assert accuracy_of(model, chosen, path, "who") == 0.75
