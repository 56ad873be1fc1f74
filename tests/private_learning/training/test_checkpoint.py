"""A round of several local steps, killed between them: it goes on at its step, and is charged once."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.hospital import Hospital
from private_learning.tasks import load
from private_learning.training import Checkpoint, Checkpoints, LocalTraining
from private_learning.training.gradients import PrivateGradients
from private_learning.training.weights import weights_of
from study_protocol.files.private import exposure
from study_protocol.randomness.source import SeededRandomness
from study_protocol.wire.tensors import decode, terms_spec
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.dying import Killed, dying_at
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.settings import ORDERS, TASK_PARAMETERS, changed, settings

STEPS = 4
FEDAVG = {
    "algorithm": "fedavg",
    "local_steps": STEPS,
    "learning_rate": 0.4,
    "local_optimiser": {"name": "momentum"},
    "learning_rate_schedule": {"name": "cosine"},
}
# Every gradient is longer than the clip norm, so what is charged does not depend on the noise.
STUDY = settings(bayesian=True, training=FEDAVG, max_steps=3 * STEPS, clip_norm=1e-3, noise_multiplier=1.0)
OWN = {"epsilon": 40.0, "delta": 1e-5, "every_norm": True}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every noised step that is computed."""
    found: list[int] = []
    compute = PrivateGradients.at

    def counted(self: PrivateGradients, step: int) -> Any:
        found.append(len(found))
        return compute(self, step)

    monkeypatch.setattr(PrivateGradients, "at", counted)
    return found


def policy() -> SitePolicy:
    return plain_policy(individual=OWN)


def join(here: Hospital, *, seconds: float = 0.0, rules: SitePolicy | None = None) -> None:
    here.join("sepsis", None, records(), policy=rules or policy(), dataset="icu", checkpoint_seconds=seconds)


def accounting(other: Coordinator, directory: Path) -> dict[str, Any]:
    """Everything that was charged: to the study, to the data set, to each patient."""
    reports = {}
    for round, bodies in other.updates.items():
        body = decode(bodies["mercy"], other._update_spec())
        reports[round] = {name: body[name].tolist() for name in terms_spec(len(ORDERS))}
    with HospitalLedger.open(ledger_path(directory, "icu"), read_only=True) as ledger:
        own = ledger.individual()
        assert own is not None
        charges = [(e.kind, e.round) for e in ledger.entries]
        filter = json.loads(own)["filter"]
    return {"reports": reports, "charges": charges, "spent": filter["spent"], "steps": filter["steps"]}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory, other = tmp_path_factory.mktemp("whole"), coordinator(STUDY)
    logging.disable(logging.ERROR)
    join(hospital(other, directory), seconds=1e9)
    logging.disable(logging.NOTSET)
    return accounting(other, directory)


@pytest.mark.quick("5")
@pytest.mark.parametrize("nth", [1, 3, 5])
def test_killed_between_steps_and_started_again(
    tmp_path: Path, nth: int, steps: list[int], uninterrupted: dict[str, Any]
) -> None:
    other = coordinator(STUDY)
    with dying_at("hospital.after-checkpoint", nth) as death, pytest.raises(Killed):
        join(hospital(other, tmp_path))
    assert death.hit
    # Three checkpoints a round: the last step is followed by the finished update.
    before = nth if nth <= 3 else nth + 1
    assert len(steps) == before
    file = tmp_path / "outbox" / "sepsis" / "checkpoint"
    assert exposure(file) is None
    join(hospital(other, tmp_path))
    assert len(steps) == 3 * STEPS
    assert accounting(other, tmp_path) == uninterrupted
    assert not file.exists()


def test_killed_before_the_charges_are_written_and_started_again(
    tmp_path: Path, steps: list[int], uninterrupted: dict[str, Any]
) -> None:
    """The update was finished but not committed: its steps since the checkpoint are done again, with fresh noise."""
    other = coordinator(STUDY)
    with dying_at("hospital.after-bytes"), pytest.raises(Killed):
        join(hospital(other, tmp_path))
    join(hospital(other, tmp_path))
    assert len(steps) == 3 * STEPS + 1
    assert accounting(other, tmp_path) == uninterrupted


def test_killed_after_the_charges_are_written_and_started_again(
    tmp_path: Path, steps: list[int], uninterrupted: dict[str, Any]
) -> None:
    other = coordinator(STUDY)
    with dying_at("hospital.after-settle"), pytest.raises(Killed):
        join(hospital(other, tmp_path))
    join(hospital(other, tmp_path))
    assert len(steps) == 3 * STEPS
    assert accounting(other, tmp_path) == uninterrupted


def test_no_checkpoint_is_written_before_it_is_due(tmp_path: Path) -> None:
    with dying_at("hospital.after-checkpoint") as death:
        join(hospital(coordinator(STUDY), tmp_path), seconds=1e9)
    assert not death.hit


@pytest.mark.quick("rules0")
@pytest.mark.parametrize("rules", [{}, {"individual": OWN, "excluded_patients": ["p3"]}])
def test_a_checkpoint_under_other_rules_is_not_gone_on_from(
    tmp_path: Path, rules: dict[str, Any], steps: list[int]
) -> None:
    other = coordinator(STUDY)
    with dying_at("hospital.after-checkpoint", 2), pytest.raises(Killed):
        join(hospital(other, tmp_path))
    join(hospital(other, tmp_path), rules=plain_policy(**rules))
    assert len(steps) == 2 + 3 * STEPS


def test_steps_after_a_checkpoint_are_those_that_would_have_followed(tmp_path: Path) -> None:
    """Without noise to speak of: weights, momentum and learning rate stand where they stood."""
    task = load("logistic-regression", TASK_PARAMETERS)
    chosen = changed(STUDY, noise_multiplier=1e-7, sampling_rate=1.0)
    data, start = task.dataset(records()), weights_of(task.model())

    def training() -> LocalTraining:
        return LocalTraining(task, data, chosen, SeededRandomness(1, allow_insecure=True), checkpoint_seconds=0.0)

    def place() -> Checkpoints:
        return Checkpoints.open(tmp_path / "checkpoint", "round 2", every_seconds=0.0)

    whole = training().contribution(start, None, round_number=2).update
    with dying_at("hospital.after-checkpoint", 2), pytest.raises(Killed):
        training().contribution(start, None, round_number=2, checkpoints=place())
    again = place()
    assert again.start is not None
    assert again.start.step == 2
    found = training().contribution(start, None, round_number=2, checkpoints=again).update
    for name, array in whole.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("proximal", [0.0, 2.0])
@pytest.mark.parametrize("interrupted_after", [1, 2])
def test_a_seeded_round_gone_on_with_is_the_uninterrupted_one_to_the_last_bit(
    tmp_path: Path, interrupted_after: int, proximal: float
) -> None:
    """Real noise and real batches: every step draws by its number, however many were drawn before in this process."""
    task = load("logistic-regression", TASK_PARAMETERS)
    drawn_back = STUDY.model_copy(update={"training": STUDY.training.model_copy(update={"proximal": proximal})})
    chosen = changed(drawn_back, noise_multiplier=1.0, sampling_rate=0.5)
    data, start = task.dataset(records()), weights_of(task.model())

    def update(round: int, checkpoints: Checkpoints | None = None) -> dict[str, np.ndarray]:
        randomness = SeededRandomness(1, allow_insecure=True)
        training = LocalTraining(task, data, chosen, randomness, checkpoint_seconds=0.0, party="mercy")
        return training.contribution(start, None, round_number=round, checkpoints=checkpoints).update

    def place() -> Checkpoints:
        return Checkpoints.open(tmp_path / "checkpoint", "round 2", every_seconds=0.0)

    with dying_at("hospital.after-checkpoint", interrupted_after), pytest.raises(Killed):
        update(2, place())
    again = place()
    assert again.start is not None
    assert again.start.step == interrupted_after
    found, whole, other = update(2, again), update(2), update(3)
    for name, array in whole.items():
        np.testing.assert_array_equal(found[name], array)
        assert not np.array_equal(other[name], array)


def test_damaged_foreign_and_outdated_files_are_erased(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    mine = Checkpoint(3, {"w": torch.arange(3.0)}, {"state": {}, "param_groups": []}, b"{}", None)
    for spoil in (
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(path.read_bytes()[:-40]),
        lambda: path.write_bytes(b"PK\x03\x04 and so on"),
        lambda: torch.save({"round": "x"}, path),
    ):
        Checkpoints.open(path, "a", None, every_seconds=0.0).write(mine)
        kept = Checkpoints.open(path, "a", None, every_seconds=0.0).start
        assert kept is not None
        assert (kept.step, kept.log_moments, kept.individual) == (3, b"{}", None)
        assert torch.equal(kept.weights["w"], torch.arange(3.0))
        spoil()
        assert Checkpoints.open(path, "a", None, every_seconds=0.0).start is None
        assert not path.exists()
    for other in [("b", None), ("a", ""), ("a",), ("a", None, None)]:
        Checkpoints.open(path, "a", None, every_seconds=0.0).write(mine)
        assert Checkpoints.open(path, *other, every_seconds=0.0).start is None
        assert not path.exists()


def test_a_file_with_code_in_it_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "pwned"),)

    torch.save({"round": Evil()}, tmp_path / "checkpoint")
    assert Checkpoints.open(tmp_path / "checkpoint", "a", every_seconds=0.0).start is None
    assert not (tmp_path / "pwned").exists()
