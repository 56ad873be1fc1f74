"""docs/budget-by-curl.md: every command of the page, in a shell, against a coordinator that really answers."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from study_protocol.study.limit_statement import LimitProgress, LimitStatement, PlannedSteps, SumOfSquares
from tests.factories.commands import Run, finished
from tests.factories.live_coordinator import Live

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
PAGE = (Path(__file__).parents[3] / "docs" / "budget-by-curl.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```console\n(.*?)```", PAGE, re.S) for line in re.findall(r"^\$ (.*)", block, re.M)
]
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.slow
def test_every_command_of_the_page_does_what_it_says(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "viewer.key").write_text(f"{here.viewer_key}\n")
    (folder / "recompute").write_text(SCRIPTS[0])
    # `wardround` and `python3` are those of this environment.
    programs = Path(sys.executable).parent
    given = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "WARDROUND_API_KEY": here.viewer_key,
        "no_proxy": "127.0.0.1",
    }
    script = "\n".join(["set -e", *(f"echo '== {place}'\n{line}" for place, line in enumerate(COMMANDS))])
    script = script.replace("https://study.example.org", here.url)
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = dict(zip(COMMANDS, re.split(r"^== \d+\n", done.stdout, flags=re.M)[1:], strict=True))

    budget = json.loads(printed["python3 -m json.tool budget.json"])
    limits = {(one["level"], one["definition"]): one for one in budget["limits"]}
    spent = limits["instance", "classical"]["spent"]
    again = float(printed["python3 recompute"])
    assert again <= spent <= again * (1 + 1e-6)
    named = set(re.findall(r"`(\w+)`", PAGE.partition("| field | what |")[2].partition("\n\n")[0]))
    states = set(get_args(LimitStatement.model_fields["state"].annotation))
    assert states < named
    # What is counted has fields that no limit kept in ε has.
    counted = {"progress"}.union(*(part.model_fields for part in (LimitProgress, PlannedSteps, SumOfSquares)))
    assert named - states < set(limits["instance", "classical"]) | (counted - {"enforcement"})

    (study,) = [text for command, text in printed.items() if '/studies/sepsis"' in command]
    (shown,) = [text for command, text in printed.items() if "hashlib" in command]
    model = (folder / "model.safetensors").read_bytes()
    assert json.loads(study)["model"]["sha256"] == shown.strip() == hashlib.sha256(model).hexdigest()
    (rounds,) = [text for command, text in printed.items() if "/rounds" in command]
    assert json.loads(rounds)["rounds"][-1]["spent"][1]["spent"] == spent
    assert oct((folder / "key.header").stat().st_mode & 0o777) == "0o600"

    def told_by(script: str) -> str:
        done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=given, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    one_order, any_accountant = SCRIPTS
    bears, tight = told_by(any_accountant).split()
    (report,) = limits["instance", "classical"]["reports"]
    # Grids of losses differ: ours is finer, and both are rounded up.
    assert (bears, float(tight)) == ("all", pytest.approx(report["epsilon"], rel=1e-3, abs=1e-3))
    # A round that is charged in full costs as much, here as there.
    ledger = (folder / "ledger.json").read_text()
    (folder / "ledger.json").write_text(ledger.replace('"settled"', '"charged-in-full"', 1))
    assert float(told_by(one_order)) == pytest.approx(spent, rel=1e-6)


def test_a_wrong_key_is_said_in_json(here: Live, tmp_path: Path) -> None:
    (tmp_path / "key.header").write_text("Authorization: Bearer wrong\n")
    command = next(line for line in COMMANDS if "/budget" in line).replace("-o budget.json", "")
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=os.environ | {"no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 22
    assert json.loads(done.stdout)["code"]
