"""Killed at every named place and started again: same bytes or nothing sent, no charge missing, none twice."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Registers its failpoints, which are read below.
import client_sdk.study.participation  # noqa: F401
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.hospital import Hospital
from private_learning import tasks
from private_learning.training.weights import weights_of
from study_protocol.wire import failpoints
from study_protocol.wire.tensors import TERMS, decode, encode
from tests.factories.commands import AS_WRITTEN
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import (
    coordinator,
    hospital,
    lax_toml,
    one_round_policy,
    plain_policy,
    records,
    room_when_joining,
)
from tests.factories.live_coordinator import live
from tests.factories.participations import besides_decisions
from tests.factories.settings import settings

ENROLMENT = ("hospital.after-enrolment", "hospital.before-enrolment")
REFUSAL = ("hospital.after-refusal", "hospital.before-refusal")
ROTATION = ("hospital.after-rotation", "hospital.before-rotation")
# Met in masked rounds only.
MASKED = tuple(f"hospital.after-{step}" for step in ("keys", "shares", "octets", "consistency", "unmask"))
# Met in rounds of several local steps only: tests/private_learning/training/test_checkpoint.py.
CHECKPOINT = ("hospital.after-checkpoint",)
# Met at the end of a study, and where a coordinator lies: tests/client_sdk/study/test_witnessing.py.
ENDING = ("hospital.after-witness", "hospital.before-witness")
LIED_TO = ("hospital.after-evidence",)
# Met once, before the first round: tests/client_sdk/study/test_whole_plans.py.
JOINING = ("hospital.after-terms", "hospital.after-joining")
APART = ENROLMENT + JOINING + ENDING + LIED_TO + REFUSAL + ROTATION + MASKED + CHECKPOINT
ROUND = tuple(name for name in failpoints.names("hospital.") if name not in APART)


class Killed(BaseException):
    """Stands for the process that is no more: no handler of the code under test catches it."""


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Failpoints that were hit; each raises instead of ending the tests' own process."""
    found: list[str] = []

    def die(name: str) -> None:
        found.append(name)
        raise Killed(name)

    monkeypatch.setattr(failpoints, "_die", die)
    monkeypatch.setattr(failpoints, "_passages", {})
    return found


def join(here: Hospital, policy: SitePolicy) -> None:
    here.join("sepsis", None, records(), policy=policy, dataset="icu")


def laws(other: Coordinator, directory: Path) -> None:
    """What must hold at the end, whatever happened on the way."""
    with HospitalLedger.open(ledger_path(directory, "icu")) as ledger:
        kinds = Counter((entry.kind, entry.round) for entry in besides_decisions(ledger))
        rounds = sorted(other.updates)
        assert kinds == {(kind, r): 1 for r in rounds for kind in ("reserved", "settled")} | {
            ("declared", None): 1,
            ("opened", None): 1,
            ("finished", None): 1,
        }
        for number in rounds:
            charged = ledger.charged_round("sepsis", number)
            assert charged is not None
            assert charged.sha256 == hashlib.sha256(other.updates[number]["mercy"]).hexdigest()
        # Nothing left that the log does not know, and nothing twice.
        assert [(d.round, d.what, d.answer) for d in ledger.departures()] == [(r, "update", "accepted") for r in rounds]


def test_the_list_of_failpoints_is_whole() -> None:
    assert set(ROUND) == {
        "hospital.after-seen",
        "hospital.before-charge",
        "hospital.after-charge",
        "hospital.after-training",
        "hospital.after-bytes",
        "hospital.after-settle",
        "hospital.after-send",
        "hospital.after-answer",
    }


@pytest.mark.quick("hospital.after-charge-2")
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("name", ROUND)
def test_killed_in_a_round_and_started_again(
    tmp_path: Path, name: str, nth: int, hits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = coordinator(settings(bayesian=True))
    here = hospital(other, tmp_path)
    monkeypatch.setenv("WARDROUND_FAILPOINT", f"{name}:{nth}")
    with pytest.raises(Killed):
        join(here, plain_policy())
    assert hits == [name]
    sent_before = dict(other.updates[nth])
    monkeypatch.delenv("WARDROUND_FAILPOINT")
    join(hospital(other, tmp_path), plain_policy())
    assert sent_before.items() <= other.updates[nth].items()
    laws(other, tmp_path)
    reports = [decode(other.updates[r]["mercy"], other._update_spec())[TERMS + "filter"][0] for r in (1, 2, 3)]
    # Neither lost nor counted twice: each round adds at most its worst case to the running sums.
    assert 0 < reports[0] < reports[1] < reports[2] <= 3 * _worst_round()


def _worst_round() -> float:
    from accounting.mechanisms.divergence import log_moment

    return float(log_moment(4.0, 1.0, noise_std=1.0, sampling_rate=0.5)) * (1 + 1e-9)


@pytest.mark.quick("hospital.before-refusal")
@pytest.mark.parametrize("name", REFUSAL)
def test_killed_while_refusing_and_started_again(
    tmp_path: Path, name: str, hits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = coordinator()
    refusing = one_round_policy()
    monkeypatch.setenv("WARDROUND_FAILPOINT", f"{name}:2")
    with room_when_joining(), pytest.raises(Killed):
        join(hospital(other, tmp_path), refusing)
    assert hits == [name]
    monkeypatch.delenv("WARDROUND_FAILPOINT")
    join(hospital(other, tmp_path), refusing)
    assert [sorted(r) for r in other.refusals.values()] == [[], ["mercy"], ["mercy"]]
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        assert len(ledger.charges()) == 1
        departed = {(d.round, d.what) for d in ledger.departures()}
        assert departed == {(1, "update"), (2, "refusal"), (3, "refusal")}


@pytest.mark.quick("hospital.after-enrolment")
@pytest.mark.parametrize("name", ENROLMENT)
def test_killed_while_enrolling_and_started_again(
    tmp_path: Path, name: str, hits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = coordinator()
    monkeypatch.setenv("WARDROUND_FAILPOINT", name)
    with pytest.raises(Killed):
        hospital(other, tmp_path)
    assert hits == [name]
    monkeypatch.delenv("WARDROUND_FAILPOINT")
    # The coordinator may know the key already; the token is good for the same key once more.
    other.members.clear()
    other.entries = other.entries[:1]
    again = hospital(other, tmp_path)
    join(again, plain_policy())
    laws(other, tmp_path)
    assert other.members == {"mercy": again.identity.public_key}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROTATION)
def test_killed_while_the_key_changes_and_started_again(
    tmp_path: Path, name: str, hits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with live(tmp_path / "coordinator") as here:
        for study in ("sepsis", "stroke"):
            here.open_study(study, model=False)
            Hospital.enrol(here.url, here.invite(study, "mercy"), directory=tmp_path / "mercy")
        before = Hospital.open(tmp_path / "mercy").identity.public_key
        monkeypatch.setenv("WARDROUND_FAILPOINT", name)
        with pytest.raises(Killed):
            Hospital.open(tmp_path / "mercy").rotate_key()
        assert hits == [name]
        monkeypatch.delenv("WARDROUND_FAILPOINT")
        again = Hospital.open(tmp_path / "mercy")
        # Killed before the replacement, the coordinators have the new key and the disk the old one.
        assert (again.identity.public_key == before) == (name == "hospital.before-rotation")
        assert again.rotate_key() == ["sepsis", "stroke"]
        assert again.identity.public_key != before
        with Hospital.open(tmp_path / "mercy").client("stroke") as client:
            assert [m.public_key for m in client.roster("stroke").members] == [again.identity.public_key]
        assert not (tmp_path / "mercy" / "identity.key.next").exists()


@pytest.mark.slow
def test_a_study_that_was_left_does_not_hold_the_key_up(tmp_path: Path) -> None:
    with live(tmp_path / "coordinator") as here:
        for study in ("sepsis", "stroke"):
            here.open_study(study, model=False)
            Hospital.enrol(here.url, here.invite(study, "mercy"), directory=tmp_path / "mercy")
        mercy = Hospital.open(tmp_path / "mercy")
        with mercy.client("sepsis") as client:
            client.leave("sepsis", "mercy", "withdrawn")
        assert mercy.rotate_key() == ["stroke"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hospital.after-bytes", "hospital.after-send"])
def test_a_process_really_killed_leaves_a_study_that_ends_well(tmp_path: Path, name: str) -> None:
    """The power goes: os._exit in a process of its own, against the real coordinator."""
    chosen = settings(bayesian=True, max_steps=2, schedule={"min_clients": 1})
    log = tmp_path / "hit"
    with live(tmp_path / "coordinator") as here:
        here.open_study("sepsis", chosen, model=False)
        model = tasks.load(chosen.training.task, chosen.training.task_parameters).model()
        assert here.operator("PUT", "/v1/studies/sepsis/models/0", content=encode(weights_of(model))).is_success
        home = tmp_path / "mercy"
        Hospital.enrol(here.url, here.invite("sepsis", "mercy"), directory=home)
        (home / "policy.toml").write_text(lax_toml())
        _write_csv(tmp_path / "records.csv")
        assert here.operator("POST", "/v1/studies/sepsis/start").is_success
        here.work()
        arguments = [
            "join",
            "sepsis",
            "--data",
            str(tmp_path / "records.csv"),
            "--patient-column",
            "patient",
            *AS_WRITTEN,
            "--json",
        ]
        killed = command(arguments, server=here.url, home=home, failpoint=name, log=log)
        assert (killed.returncode, log.read_text()) == (failpoints.EXIT_CODE, f"{name}\n")
        outcome = _joined(here, arguments, home)
        assert outcome["reason"] == "max-steps-reached"
        ledger = here.operator("GET", "/v1/studies/sepsis/ledger").json()["entries"]
        assert [e["kind"] for e in ledger if e["kind"] != "operated"] == [
            *("opened", "released", "roster"),
            *["reserved", "settled", "released"] * 2,
            "finished",
        ]
        with HospitalLedger.open(ledger_path(home, "records")) as own:
            assert [(e.kind, e.round) for e in own.entries if e.round] == [
                (kind, r) for r in (1, 2) for kind in ("reserved", "settled")
            ]


def _joined(here: Any, arguments: list[str], home: Path) -> Any:
    """Let the hospital join while the coordinator's worker moves on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wardround.cli.main", *arguments],
        env=_environment(here.url, home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None:
        here.work()
        time.sleep(0.1)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out)


def command(
    arguments: list[str], *, server: str, home: Path, failpoint: str | None = None, log: Path | None = None
) -> subprocess.CompletedProcess[str]:
    extra = {} if failpoint is None else {"WARDROUND_FAILPOINT": failpoint, "WARDROUND_FAILPOINT_LOG": str(log)}
    return subprocess.run(
        [sys.executable, "-m", "wardround.cli.main", *arguments],
        env=_environment(server, home) | extra,
        capture_output=True,
        text=True,
        check=False,
    )


def _environment(server: str, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WARDROUND_")}
    own = {"WARDROUND_SERVER": server, "WARDROUND_CLIENT_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return kept | own


def _write_csv(path: Path) -> None:
    table = records()
    rows = np.column_stack([table.columns["age"], table.columns["rate"], table.columns["ill"]]).tolist()
    lines = [",".join([*map(str, row), patient]) for row, patient in zip(rows, table.patients, strict=True)]
    path.write_text("\n".join(["age,rate,ill,patient", *lines]) + "\n")
