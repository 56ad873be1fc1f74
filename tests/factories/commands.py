"""A study made and run through the commands, as an operator and a hospital type them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from private_learning.tasks.backbone_file import BackboneFile, ProgramFile
from tests.factories.hospitals import lax_toml, records
from tests.factories.live_coordinator import Live
from tests.factories.settings import settings
from wardround.cli.main import build

Run = Callable[..., Result]
# How `write_records` writes them.
AS_WRITTEN = ("--separator", "comma", "--decimal", "point")


def write_settings(path: Path, **study: Any) -> Path:
    chosen = {"bayesian": True, "max_steps": 2, "schedule": {"min_clients": 1}} | study
    path.write_text(json.dumps(settings(**chosen).as_json()))
    return path


def write_records(path: Path) -> Path:
    table = records()
    rows = zip(*(table.columns[name].tolist() for name in ("age", "rate", "ill")), table.patients, strict=True)
    path.write_text("\n".join(["age,rate,ill,patient", *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def run_offline(*arguments: str | Path) -> Any:
    """What a command that needs no coordinator prints as JSON."""
    app = build()
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def opened(run: Run, tmp_path: Path, backbone: BackboneFile | None = None, **study: Any) -> None:
    """A study in its enrolling state with one hospital; study: settings, as of `write_settings`."""
    path = write_settings(tmp_path / "study.json", **study)
    run("study", "create", "sepsis", "--settings", str(path), *_on(backbone), operator=True)
    token = run("invite", "sepsis", "mercy", operator=True).stdout.strip()
    assert run("enrol", "-", input=f"{token}\n").stdout == "enrolled: sepsis as mercy\n"


def _on(backbone: BackboneFile | None) -> list[str]:
    if isinstance(backbone, ProgramFile):
        return ["--backbone-program", str(backbone.path)]
    return [] if backbone is None else ["--backbone", str(backbone)]


def finished(
    run: Run,
    here: Live,
    tmp_path: Path,
    backbone: BackboneFile | None = None,
    *,
    records: Path | None = None,
    table: Path | None = None,
    policy: str = "",
    **study: Any,
) -> dict[str, Any]:
    """The same study after its hospital has taken part to the end. policy: lines before those of the lax one.

    table: a file as of `write_records`, in place of its own.
    """
    opened(run, tmp_path, backbone, **study)
    (tmp_path / "mercy" / "policy.toml").write_text(policy + lax_toml())
    run("study", "start", "sepsis", operator=True)
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    # `join` blocks until the study is finished, and only this moves it on.
    worker = threading.Thread(target=work)
    worker.start()
    try:
        written = ["--patient-column", "patient", *AS_WRITTEN]
        path = records or table or write_records(tmp_path / "records.csv")
        data = ["--data", str(path), *(written if records is None else [])]
        joined = run(
            *("join", "sepsis", *data),
            *(*_on(backbone), "--json"),
        )
    finally:
        ended.set()
        worker.join()
    return json.loads(joined.stdout)
