"""The settings that a trial writes: a mark at each number of the records, or none of these numbers."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np

from client_sdk.study.guessed_columns import GuessedColumns
from client_sdk.study.guessed_label import GuessedTask
from private_learning.records import Table
from wardround.cli.researcher.trial_settings import TrialSettings

TASK = GuessedTask(
    "logistic-regression",
    {"label": "ill", "label-values": "no|yes"},
    ("ill",),
    np.arange(2),
    np.zeros(2),
    "ill is read",
)
LINES = {"age": "0..100", "bmi": "10..50; missing=25", "sex": "f|m"}


def trial_settings(patients: int = 400) -> TrialSettings:
    return TrialSettings.of(TASK, GuessedColumns(LINES, {}, (), Table({}, ())), 4, 2.0, patients, 1)


def test_delta_is_at_most_a_tenth_of_one_in_all_patients() -> None:
    assert trial_settings(400).delta == 1e-5
    assert trial_settings(10**6).delta <= 1 / (10 * 4 * 10**6)


def test_every_second_column_is_left_out_for_less_noise() -> None:
    whole = trial_settings()
    assert [name for name in whole.halved().parameters if name.startswith("column.")] == ["column.age", "column.sex"]
    assert whole.halved().width < whole.width


def test_a_study_that_is_no_better_than_guessing_is_simulated_all_the_same() -> None:
    """The answer of a trial is measured, and one of its two columns may be of use."""
    few = replace(trial_settings(50), epsilon=0.05)
    settings, forecast = few.with_forecast(10)
    assert settings.privacy.limits[0].epsilon == 0.05
    assert forecast is not None
    assert forecast.no_better_than_guessing
    assert forecast.lost == 0.5


def test_numbers_of_the_records_are_marked() -> None:
    text = trial_settings().text(400, TASK, names_only=False)
    marked = [line.partition(" = ")[0] for line in text.splitlines() if line.endswith("# check this")]
    assert {'"column.age"', '"column.bmi"', '"column.sex"', '"label-values"'} <= set(marked)
    assert tomllib.loads(text)["privacy"]["expected_batch_size"] == 400


def test_names_alone_hold_no_word_of_the_records() -> None:
    text = trial_settings().text(400, TASK, names_only=True)
    assert tomllib.loads(text)["training"]["task_parameters"] == {
        "label": "ill",
        "label-values": "VALUES",
        "column.age": "LOW..HIGH",
        "column.bmi": "LOW..HIGH; missing=MIDDLE",
        "column.sex": "CATEGORIES",
    }
    assert "is read" not in text


def test_names_alone_do_not_depend_on_the_number_of_patients() -> None:
    few, many = replace(trial_settings(), rows=3), replace(trial_settings(), rows=5, delta=1e-7)
    assert few.text(90, TASK, names_only=True) == many.text(70_000, TASK, names_only=True)
