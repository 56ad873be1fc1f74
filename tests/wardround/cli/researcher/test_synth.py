"""`wardround synth verify`: what it says of good and of changed files."""

from __future__ import annotations

import json
import math
from pathlib import Path

from scipy.special import ndtr
from typer.testing import CliRunner

from tests.factories.settings import statistics_settings
from tests.factories.synthesis import section
from tests.synthesis.test_file import written
from wardround.cli.main import build

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
