"""Warnings about a public range that does not suit the records: in words, before round 1, and without any effect."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.study.preparation import check_data
from private_learning.records import Examples, LazyExamples, Table
from private_learning.tasks import load
from private_learning.tasks.reading import warnings_of
from private_learning.tasks.scaled import range_warning
from tests.factories.hospitals import coordinator, hospital, plain_policy
from tests.factories.hospitals import settings as study
from tests.factories.readers import Images

DRAW = np.random.default_rng(11)


def drawn(low: float, high: float, kind: Any = np.float32) -> np.ndarray:
    return DRAW.uniform(low, high, (6, 8, 8)).astype(kind)


@pytest.mark.parametrize(
    ("values", "reach", "words"),
    [
        (drawn(0, 1), (0, 255), "lie within 2 % of the study's range, 0 to 255, .* within 0 to 1[.]"),
        (drawn(-1, 1), (0, 255), "lie within 2 % .* within -1 to 1[.]"),
        (drawn(100, 104), (0, 255), "lie within 2 % .* within 0 to 255[.]"),
        (drawn(0, 4095, np.uint16), (0, 65535), "fill a small part of .* within 0 to 4,095[.]"),
        (drawn(-900, -500, np.int16), (0, 255), "lie within 2 % .* within -1,024 to 3,071[.]"),
        (drawn(2, 255, np.uint8), (0, 1), "lie within 2 % .* within 0 to 255[.]"),
        (drawn(0, 255, np.uint8), (0, 1), "lie at the ends or outside .* within 0 to 255[.]"),
        (drawn(1e6, 2e6), (0, 255), "within the reach of their type, float32[.]"),
        (np.zeros((3, 4, 4)), (0, 255), "lie within 2 % .* within 0 to 1[.]"),
    ],
    ids=map(str, count()),
)
def test_a_range_that_does_not_suit_the_values_is_told(
    values: np.ndarray, reach: tuple[float, float], words: str
) -> None:
    warning = range_warning(values, reach, "pixels", "low and high")
    assert warning is not None
    assert warning.startswith("pixels: all")
    assert re.search(words, warning)
    assert "settings low and high" in warning


@pytest.mark.parametrize(
    ("values", "reach"),
    [
        (drawn(0, 255, np.uint8), (0, 255)),
        (drawn(0, 1), (0, 1)),
        (drawn(0, 12), (0, 255)),
        (np.where(drawn(0, 1) > 0.5, 255, 0), (0, 255)),
        (drawn(0, 65535, np.uint16), (0, 65535)),
        (drawn(-1000, 3000), (-160, 240)),
    ],
    ids=["8 bits", "parts of one", "dark", "black and white", "16 bits", "window"],
)
def test_a_range_that_suits_the_values_says_nothing(values: np.ndarray, reach: tuple[float, float]) -> None:
    assert range_warning(values, reach, "pixels", "low and high") is None


def test_no_value_of_a_record_is_in_the_words() -> None:
    values = np.full((3, 4, 4), 0.123457)
    values[1, 2, 2] = 0.654321
    warning = range_warning(values, (0, 255), "pixels", "low and high")
    assert warning is not None
    assert "0.12" not in warning
    assert "0.65" not in warning


def test_every_channel_has_its_own_range() -> None:
    task = load("signal-cnn", {"channels": 2, "length": 40, "classes": 2, "range": "-5..5|0..20000", "filters": 8})
    signals = np.stack([DRAW.uniform(-5, 5, (6, 40)), DRAW.uniform(0, 1, (6, 40))], axis=1)
    # The first channel fills its range.
    assert task.warnings(Examples.of(signals, [0, 1] * 3)) == ()
    signals[:, 0] /= 1000
    (warning,) = task.warnings(Examples.of(signals, [0, 1] * 3))
    assert warning.startswith("samples: all")
    assert "whether the settings range fit" in warning


CNN = {"height": 8, "width": 8, "classes": 2}


def test_of_records_that_are_read_on_demand_some_are_looked_at() -> None:
    inputs = DRAW.uniform(0, 1, (200, 8, 8)).astype(np.float32)
    reader = Images(inputs)
    lazy = LazyExamples.of(reader, [0, 1] * 100)
    (warning,) = warnings_of(load("cnn", CNN), lazy)
    assert warning.endswith("(of 200 records 64 were looked at)")
    rows = [row for asked in reader.asked for row in asked]
    assert (len(rows), min(rows), max(rows)) == (64, 0, 199)
    assert warnings_of(load("cnn", CNN), LazyExamples.of(Images(inputs * 255), [0, 1] * 100)) == ()


def test_a_warning_decides_nothing_about_a_record_that_cannot_be_read() -> None:
    inputs = DRAW.uniform(0, 1, (9, 8, 8))
    inputs[4] = np.nan
    assert warnings_of(load("cnn", CNN), LazyExamples.of(Images(inputs), [0] * 9)) == ()


def image_study() -> Any:
    return study(training={"task": "cnn", "task_parameters": CNN}, sampling_rate=1.0, max_steps=1)


def test_the_warning_is_told_before_round_1_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patients = [f"p{row}" for row in range(12)]
    records = Examples.of(DRAW.uniform(0, 1, (12, 8, 8)), [0, 1] * 6, patients)
    check = check_data(records, plain_policy(), image_study())
    assert "pixels: all lie within 2 % of the study's range" in caplog.text
    assert check.patients == 12
    caplog.clear()
    other = coordinator(image_study())
    hospital(other, tmp_path).join("sepsis", None, records, policy=plain_policy(), dataset="icu")
    assert "pixels: all lie within 2 % of the study's range" in caplog.text
    assert list(other.updates) == [1]


def test_excluded_patients_are_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    inputs = DRAW.uniform(0, 1, (12, 8, 8))
    inputs[3] *= 255
    records = Examples.of(inputs, [0, 1] * 6, [f"p{row}" for row in range(12)])
    check_data(records, plain_policy(), image_study())
    assert "pixels: all" not in caplog.text
    check_data(records, plain_policy(excluded_patients=["p3"]), image_study())
    assert "pixels: all lie within 2 %" in caplog.text


def test_tables_have_no_such_warning() -> None:
    task = load("logistic-regression", {"column.age": "0..100; missing=50", "label": "ill"})
    assert warnings_of(task, Table.of({"age": [0.1, 0.2], "ill": [0, 1]})) == ()
