"""`wardround synth verify`: what it says of good and of changed files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scipy.special import ndtr
from typer.testing import CliRunner

from client_sdk.errors import ConfigurationError
from tests.factories.settings import statistics_settings
from tests.factories.signed_answers import shown
from tests.factories.synthesis import COLUMNS, answered, section
from tests.synthesis.test_file import written
from wardround.cli.main import build
from wardround.cli.researcher.synth import _make, _paths, _patients_told  # pyright: ignore[reportPrivateUsage]

RUNNER = CliRunner()


def test_a_file_is_verified_and_a_changed_one_is_not(tmp_path: Path) -> None:
    path = written(tmp_path / "synthetic.csv")
    found = RUNNER.invoke(build(), ["synth", "verify", str(path)])
    assert found.exit_code == 0
    assert "2,000 synthetic records of study registry, made again here" in found.output
    path.write_text(path.read_text().replace("f", "m", 1))
    changed = RUNNER.invoke(build(), ["synth", "verify", str(path)])
    assert changed.exit_code == 1
    assert "not verified: synthetic.csv holds other records" in " ".join(changed.output.split())


@pytest.mark.slow
def test_a_forecast_states_what_all_questions_cost_and_that_it_is_too_much(tmp_path: Path) -> None:
    for allowance, words in ((0.04, "of at most 1 at δ 1e-05"), (4.0, "lower synthesis.allowance")):
        found = RUNNER.invoke(build(), ["synth", str(_settings(tmp_path, allowance)), "--plan", "--patients", "300"])
        assert found.exit_code == 0, found.output
        assert words in found.output
        stated = float(found.output.partition("all of them cost ε ")[2].split()[0])
        # The Gaussian mechanism with Σ 1 / noise_multiplier² = μ² (Balle and Wang 2018).
        mu = allowance**0.5
        delta = ndtr(mu / 2 - stated / mu) - math.exp(stated) * ndtr(-mu / 2 - stated / mu)
        assert 0.9e-5 < delta <= 1e-5
        assert "2 questions" in found.output


def test_wrong_arguments_are_refused_in_a_sentence_before_anything_is_asked(tmp_path: Path) -> None:
    settings = str(_settings(tmp_path, 0.04))
    for arguments, words in (
        (["verify"], "name the file to check"),
        (["verify", "absent.csv"], "there is no such file"),
        (["registry", "new.csv"], "synth registry -o new.csv"),
        ([settings, "-o", "new.csv"], "goes with --plan"),
        (["registry", "-o", str(tmp_path / "new.csv"), "--patients", "40"], "goes with --plan alone"),
        (["registry", "-o", str(tmp_path / "absent" / "new.csv")], "make it first"),
        (["registry", "-o", "new.xlsx"], "It ends in .parquet or .csv"),
    ):
        # Nothing listens there: a request would fail with exit code 5.
        found = RUNNER.invoke(build(), ["synth", *arguments, "--server", "http://127.0.0.1:9"])
        assert found.exit_code == 1
        assert words in " ".join(found.output.split())


def _settings(folder: Path, allowance: float) -> Path:
    synthesis = section(allowance=allowance, patients=300).model_dump(mode="json", exclude_none=True)
    path = folder / "study.json"
    path.write_text(json.dumps(statistics_settings(epsilon=1.0, synthesis=synthesis).as_json()))
    return path


class _Coordinator:
    """One whose first query is another one. Lists have no answers, and one query a page."""

    def __init__(self) -> None:
        document = section().first_question()
        answer: Any = SimpleNamespace(published=answered(document, 7000))
        self._whole = {1: shown(section(seed=1, allowance=0.4).first_question(), number=1)}
        self._whole[2] = shown(document, state="answered", number=2).model_copy(update={"answered": answer})

    def queries(self, study: str, state: str | None = None, after: int | None = None) -> Any:
        number = (after or 0) + 1
        listed = self._whole[number].model_copy(update={"answered": None})
        return SimpleNamespace(queries=[listed], next=number if number < len(self._whole) else None)

    def query(self, study: str, number: int) -> Any:
        return self._whole[number]


def test_a_forecast_takes_the_number_of_patients_from_the_first_answer() -> None:
    client: Any = _Coordinator()
    assert _patients_told(client, "registry", section()) == pytest.approx(7000, abs=1)
    assert _patients_told(client, "registry", section(allowance=0.4)) is None
    assert _patients_told(client, "registry", section(allowance=0.3)) is None


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "-cmd", "\uff1d1"])
@pytest.mark.parametrize("place", ["column", "category"])
def test_no_formula_is_written_for_a_spreadsheet(tmp_path: Path, text: str, place: str) -> None:
    column = {"column": text, "presence": True} if place == "column" else COLUMNS[1] | {"categories": ["f", text]}
    client: Any = SimpleNamespace()
    with pytest.raises(ConfigurationError, match=r"a spreadsheet would run .* Name a \.parquet file"):
        _make(client, "registry", section(columns=[column, COLUMNS[3]]), {None: tmp_path / "records.csv"})


def test_a_file_of_provenance_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "records-02.csv.json").write_text("mine")
    with pytest.raises(FileExistsError, match=r"records-02\.csv\.json exists already"):
        _paths(tmp_path / "records.csv", 3)
