"""The page on running a site: its Slurm script with stand-ins for the cluster, and the codes that it names."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wardround.cli.main import build
from wardround.cli.shared.exit_codes import ExitCode

PAGE = (Path(__file__).parents[2] / "docs" / "site.md").read_text()


@pytest.mark.parametrize(
    ("code", "submitted", "ends_with"),
    [(75, ["join.sh"], 0), (5, ["--begin=now+15minutes join.sh"], 5), (0, [], 0), (3, [], 3)],
)
def test_the_slurm_script_submits_itself_while_more_is_to_come(
    tmp_path: Path, code: int, submitted: list[str], ends_with: int
) -> None:
    (script,) = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S)
    (tmp_path / "join.sh").write_text(script)
    for name, line in {"wardround": f'echo "$@" > joined; exit {code}', "sbatch": 'echo "$@" >> submitted'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SCRIPT": "join.sh", "RECORDS": "a b.csv", "HOSPITAL": "/srv/w"}
    done = subprocess.run(["bash", "join.sh"], cwd=tmp_path, env=variables)
    lines = (tmp_path / "submitted").read_text().splitlines() if (tmp_path / "submitted").exists() else []
    assert (done.returncode, lines) == (ends_with, submitted)
    options = "--data a b.csv --patient-column patient --dataset icu-2024 --home /srv/w"
    assert (tmp_path / "joined").read_text() == f"join sepsis --once --wait 3600 {options}\n"


def test_the_codes_of_single_rounds_are_those_of_the_command() -> None:
    named = [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)]
    assert named == [ExitCode.MORE_TO_COME, ExitCode.DONE, ExitCode.UNREACHABLE]


def test_every_option_of_join_on_the_page_exists() -> None:
    shown = CliRunner().invoke(build(), ["join", "--help"], env={"COLUMNS": "400", "TERM": "dumb"}).output
    lines = [line for line in PAGE.splitlines() if "join sepsis" in line]
    assert len(lines) >= 4
    options = {word for line in lines for word in shlex.split(line.partition(" #")[0]) if re.match("--[a-z]", word)}
    assert all(f"{option} " in shown for option in options), options
