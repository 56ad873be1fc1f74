"""Every block of docs/using-the-model.md runs, in its order, after a study that really ran."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.factories.commands import Run, finished, write_records
from tests.factories.live_coordinator import Live
from tests.factories.released import TASKS, write_model
from tests.factories.settings import settings
from wardround.cli.lead.templates import study_text

PAGE = Path(__file__).parents[3] / "docs" / "using-the-model.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.mark.slow
def test_every_block_of_the_page_runs(here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(run, here, tmp_path)
    monkeypatch.setenv("WARDROUND_API_KEY_FILE", str(tmp_path / "administrator.key"))
    monkeypatch.chdir(tmp_path)
    for name in ("known.csv", "public.csv"):
        write_records(tmp_path / name)
    # Local patients, of whom most are ill, whatever the model says.
    rows = [f"{18 + number % 70},{number % 200},{int(number % 10 < 8)},p{number}" for number in range(400)]
    (tmp_path / "local.csv").write_text("\n".join(["age,rate,ill,patient", *rows]) + "\n")
    # The section on curves is of another task's model.
    write_model(tmp_path / "additive.safetensors", "additive", TASKS["additive"])
    chosen = settings(training={"task": "additive", "task_parameters": dict(TASKS["additive"])})
    (tmp_path / "additive.toml").write_text(study_text(chosen.as_json()))
    shared: dict[str, Any] = {"__name__": "page"}
    for language, text in BLOCKS:
        match language:
            case "csv":
                (tmp_path / "new.csv").write_text(text)
            case "console":
                for line in text.splitlines():
                    run(*shlex.split(line.removeprefix("$ wardround ")))
            case "python":
                exec(compile(text, str(PAGE), "exec"), shared)
            case _:
                pytest.fail(f"nobody runs {language}")
    assert (tmp_path / "curves.svg").exists()
    assert (tmp_path / "model.json").exists()
    rows = list(csv.DictReader((tmp_path / "predictions.csv").read_text().splitlines()))
    assert [row["patient"] for row in rows] == ["p1", "p2", "p3"]
    assert [float(row["probability_1"]) for row in rows] == shared["probabilities"][:, 1].tolist()
