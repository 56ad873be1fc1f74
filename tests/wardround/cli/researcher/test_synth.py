"""`wardround synth verify`: what it says of good and of changed files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from client_sdk.errors import ConfigurationError
from tests.factories.signed_answers import shown
from tests.factories.synthesis import COLUMNS, answered, section
from tests.synthesis.test_file import written
from wardround.cli.main import build
from wardround.cli.researcher.synth import _make, _patients_told  # pyright: ignore[reportPrivateUsage]

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
        _make(client, "registry", section(columns=[column, COLUMNS[3]]), tmp_path / "records.csv", None)


def test_a_file_of_provenance_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    client: Any = SimpleNamespace()
    (tmp_path / "records-02.csv.json").write_text("mine")
    with pytest.raises(FileExistsError, match=r"records-02\.csv\.json exists already"):
        _make(client, "registry", section(), tmp_path / "records.csv", 3)
