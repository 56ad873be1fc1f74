"""A study that hospitals drive to its end with `wardround join --once` in a loop, as cron and batch systems run it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.study.hospital import Hospital
from private_learning import tasks
from private_learning.training.weights import weights_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.failpoints import EXIT_CODE
from study_protocol.wire.tensors import encode
from tests.factories.commands import AS_WRITTEN, write_records
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import MASKING, settings
from wardround.cli.shared.exit_codes import ExitCode

NAMES = ("bay", "cape", "dale", "eden", "fell")
# Enough for a study of three rounds. One more start would hide a hospital that never sees the end.
MOST_STARTS = 12


class Looping(threading.Thread):
    """One hospital: a process for each round, until one says that the study has ended.

    failpoint  where its first process dies
    """

    def __init__(self, here: Live, folder: Path, name: str, failpoint: str | None) -> None:
        super().__init__(name=name, daemon=True)
        self.directory, self._here, self._failpoint = folder / name, here, failpoint
        self.codes: list[int] = []
        self.errors = ""

    def enrol(self) -> None:
        Hospital.enrol(self._here.url, self._here.invite("sepsis", self.name), directory=self.directory)
        (self.directory / "policy.toml").write_text(lax_toml())

    def run(self) -> None:
        data = write_records(self.directory / "records.csv")
        words = ["join", "sepsis", "--once", "--wait", "60", "--data", str(data), "--patient-column", "patient"]
        command = [sys.executable, "-m", "wardround.cli.main", *words, *AS_WRITTEN, "--home", str(self.directory)]
        while len(self.codes) < MOST_STARTS and (not self.codes or self.codes[-1] in (EXIT_CODE, 75)):
            dies = {"WARDROUND_FAILPOINT": self._failpoint} if self._failpoint and not self.codes else {}
            done = subprocess.run(command, env=os.environ | dies, capture_output=True, text=True, timeout=300)
            self.codes.append(done.returncode)
            self.errors = done.stderr

    def updates(self) -> list[int]:
        """Return the rounds whose update was paid for and finished, one entry for each."""
        with HospitalLedger.open(ledger_path(self.directory, "records"), read_only=True) as ledger:
            assert len(ledger.charges()) == len({charge.round for charge in ledger.departures()})
            return [departure.round for departure in ledger.departures() if departure.what == "update"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "coordinator") as running:
        yield running


def driven(here: Live, tmp_path: Path, chosen: StudySettings, failpoint: str) -> list[Looping]:
    """A study that all hospitals drive to its end. The first one is killed at the failpoint."""
    here.open_study("sepsis", chosen, model=False)
    initial = encode(weights_of(tasks.load(chosen.training.task, chosen.training.task_parameters).model()))
    assert here.operator("PUT", "/v1/studies/sepsis/models/0", content=initial).status_code == 201
    hospitals = [Looping(here, tmp_path, name, failpoint if name == NAMES[0] else None) for name in NAMES]
    for each in hospitals:
        each.enrol()
    assert here.operator("POST", "/v1/studies/sepsis/start").status_code == 200
    for each in hospitals:
        each.start()
    while any(each.is_alive() for each in hospitals):
        here.work()
        hospitals[0].join(0.05)
    return hospitals


@pytest.mark.slow
@pytest.mark.parametrize(("masked", "failpoint"), [(False, "hospital.after-charge"), (True, "hospital.after-unmask")])
def test_a_loop_of_single_rounds_ends_the_study_and_spends_once(
    here: Live, tmp_path: Path, masked: bool, failpoint: str
) -> None:
    # Long enough for a process that starts anew on a slow machine.
    slow: dict[str, Any] = {"masking": MASKING | {"step_deadline_seconds": 120}} if masked else {}
    chosen = settings(masked=masked, max_steps=3, schedule={"min_clients": 4, "round_deadline_seconds": 600}, **slow)
    hospitals = driven(here, tmp_path, chosen, failpoint)
    assert hospitals[0].codes[0] == EXIT_CODE, hospitals[0].errors
    for each in hospitals:
        assert each.codes[-1] == ExitCode.DONE, (each.name, each.codes, each.errors)
        assert set(each.codes[:-1]) <= {ExitCode.MORE_TO_COME, EXIT_CODE}
        assert each.updates() == [1, 2, 3], each.name
