"""Records from which nothing can be learnt are said so, and others are not."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import numpy as np
import pytest

from client_sdk.study.hopeless import remarks
from client_sdk.study.preparation import check_data
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.participations import join
from tests.factories.settings import settings

BALANCED = {"0": 500, "1": 500}


def test_good_records_are_left_alone() -> None:
    assert remarks(settings(max_steps=100, noise_multiplier=1.0), 1000, BALANCED, 1000, 3) == []
    assert remarks(settings(max_steps=100, noise_multiplier=1.0), 1000, {}, 1000, 3) == []


def test_one_class_and_a_rare_class_are_said() -> None:
    study = settings(max_steps=100, noise_multiplier=1.0)
    (one,) = remarks(study, 1000, {"0": 1000}, 1000, 3)
    assert one.startswith("all rows have one class (0)")
    (rare,) = remarks(study, 1000, {"0": 995, "1": 5}, 1000, 3)
    assert rare.startswith("class 1 has 5 of 1000 rows")


@pytest.mark.parametrize("parameters", [4, 4000])
def test_few_patients_are_those_below_the_noise(parameters: int) -> None:
    """By a simulated sum: the noise of all steps against patients who all pull one way."""
    study = settings(max_steps=50, noise_multiplier=3.0)
    rate, sigma, steps = study.privacy.sampling_rate, 3.0, study.privacy.max_steps
    draw = np.random.default_rng(0)
    noise = float(np.linalg.norm(draw.normal(0, sigma * math.sqrt(steps), parameters)))
    equal = noise / (rate * steps)
    labels = dict(BALANCED)
    assert any("patients are few" in said for said in remarks(study, math.floor(equal * 0.4), labels, 1000, parameters))
    assert remarks(study, math.ceil(equal * 2.5), labels, 1000, parameters) == []


def test_data_check_and_join_say_it_here_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = records(200)
    well = table.take(np.flatnonzero(table.numbers("ill") == 0))
    checked = check_data(well, plain_policy(), settings(), device="cpu")
    assert any("all rows have one class" in said for said in checked.hopeless)
    other = coordinator()
    with caplog.at_level(logging.WARNING):
        hospital(other, tmp_path).join("sepsis", None, well, policy=plain_policy(), dataset="icu")
    assert "all rows have one class" in caplog.text
    assert "one class" not in repr(other.updates) + repr(other.entries) + repr(other.refusals)


def test_a_usual_hospital_reads_nothing_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        join(hospital(coordinator(), tmp_path))
    assert "one class" not in caplog.text


def test_five_rows_are_one_sentence() -> None:
    study = settings(max_steps=100, noise_multiplier=0.1)
    assert remarks(study, 5, {"0": 4, "1": 1}, 5, 1) == ["5 rows are too few to learn from"]
