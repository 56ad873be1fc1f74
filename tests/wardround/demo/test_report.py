"""What the demonstration leaves on the disk."""

from __future__ import annotations

import json
from pathlib import Path

from study_protocol.study.plan_of import plan_of
from tests.factories.demonstration import BASELINES, SCENARIO, STUDY, budget
from tests.factories.ledgers import opened
from wardround.demo.board import Accuracies
from wardround.demo.own_patients import OwnPatients
from wardround.demo.report import write


def written(folder: Path, accuracies: Accuracies) -> Path:
    entries = opened(plan_of(STUDY), STUDY.as_json(), "demo")
    return write(folder, b"model", SCENARIO, STUDY, budget(), entries, {1: 0.5}, accuracies, BASELINES)


def test_every_file_says_what_the_run_gave(tmp_path: Path) -> None:
    own = OwnPatients(0.95, 0.88, 1.0, 91.4)
    page = written(tmp_path / "report", Accuracies(0.96, 0.94, [1], "mean of its last 1 released models", 1, own))
    assert page.name == "report.md"
    assert (tmp_path / "report" / "model.safetensors").read_bytes() == b"model"
    files = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "report").glob("*.json")}
    assert set(files) == {"settings", "budget", "ledger", "accuracy"}
    assert files["settings"] == STUDY.as_json()
    assert files["budget"] == budget().model_dump(mode="json")
    assert files["ledger"][0]["kind"] == "opened"
    assert files["accuracy"]["by_round"] == {"1": 0.5}
    assert files["accuracy"]["own_patients"] == {"accuracy": 0.95, "low": 0.88, "high": 1.0, "patients": 91.4}


def test_the_page_has_every_limit_and_every_accuracy(tmp_path: Path) -> None:
    own = OwnPatients(0.95, 0.88, 1.0, 91.4)
    text = written(tmp_path, Accuracies(0.96, 0.94, [1], "the mean", 1, own)).read_text()
    for words in (
        "is better than all 4 hospitals alone WITHOUT privacy",
        "Ended after 1 rounds: budget-exhausted.",
        "| client | unbounded: this scheme does not protect it | | | | |",
        "| this study, the mean | 0.9600 |",
        f"| its last model, {own.in_words()} | 0.9500 |",
        "| pooled, no privacy | 0.9700 |",
        "| majority class | 0.6300 |",
    ):
        assert words in text
    assert text.count(" alone, same limits | 0.8000 |") == 4
    # The number of four places, rounded up.
    (limit,) = [one for one in budget().limits if one.epsilon is not None]
    assert limit.spent is not None
    row = next(line for line in text.splitlines() if line.startswith("| instance | classical |"))
    assert 0 <= float(row.split("|")[3]) - limit.spent < 1e-4


def test_without_a_released_model_nothing_is_claimed(tmp_path: Path) -> None:
    text = written(tmp_path, Accuracies(None, None, (), "none", 0)).read_text()
    assert "Taking part did not pay: no model was released." in text
    assert "| this study, none | — |" in text
