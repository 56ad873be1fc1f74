"""What four users write, with everything annotated that they would leave to the type checker.

Never run: tests/contract/test_wheel.py checks it strictly against the installed wheel.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wardround import (
    ApiKey,
    AsyncClient,
    BayesianAccountant,
    ClassicalAccountant,
    Client,
    Connection,
    DataError,
    Examples,
    Finding,
    Guarantee,
    Hospital,
    InvitationCreate,
    Outcome,
    Records,
    Refused,
    RoundEvent,
    SitePolicy,
    StudyCreate,
    StudySettings,
    TaskDataset,
    Unreachable,
    calibrate_noise,
    load_records,
    read_study_settings,
)
from wardround.learning import (
    Classification,
    ClippedSum,
    NoisySum,
    PerRecordGradients,
    SecureSource,
    Slots,
    add_noise,
    poisson_batch,
)


class Ward(Classification):
    """A task of one's own."""

    classes = 2

    def model(self) -> nn.Module:
        return nn.Linear(3, self.outputs)

    def dataset(self, data: Records) -> TaskDataset:
        if not isinstance(data, Examples):
            raise DataError("arrays are expected")
        inputs = torch.as_tensor(data.inputs, dtype=torch.float32)
        return TaskDataset(inputs, self.integer_labels(data.labels), data.patients)


def show(event: RoundEvent) -> None:
    for limit in event.study_budget:
        print(event.round, limit.level, limit.spent, event.local.seconds)


def data_scientist(token: str) -> str:
    hospital = Hospital.enrol("https://study.example.org", token, directory="/srv/wardround")
    try:
        outcome = hospital.join("sepsis", Ward(), load_records("records.csv", patient_column="id"), on_round=show)
    except Refused as error:
        return error.code
    assert_type(outcome, Outcome)
    return f"{outcome.reason} after {outcome.rounds_sent} rounds, {len(outcome.statement.limits)} limits"


def privacy_officer(findings: list[Finding]) -> list[str]:
    policy = SitePolicy.read(Path("policy.toml"))
    strict = SitePolicy(studies=policy.studies, needs_masking=True, least_survivors=5)
    return [finding.text for finding in findings if finding.verdict == "bad" and strict.unpinned_roster == "refused"]


def principal_investigator() -> str:
    try:
        noise = calibrate_noise(epsilon=3.0, delta=1e-5, sampling_rate=0.1, steps=200)
    except Unreachable:
        return "no noise is enough"
    settings = read_study_settings(Path("study.toml"))
    assert_type(settings, StudySettings)
    with Client(Connection(url="https://study.example.org"), ApiKey("wrk_a_b")) as client:
        study = client.create_study(StudyCreate(study="sepsis", settings=settings))
        made = client.invite(study.study, InvitationCreate(client="mercy", expires_in_seconds=86400))
        Path("model.safetensors").write_bytes(client.model("sepsis"))
    return f"{made.token} {noise}"


async def watcher() -> list[str]:
    async with AsyncClient(Connection(url="https://study.example.org"), ApiKey("wrk_a_b")) as client:
        study = await client.study("sepsis")
        assert_type(await client.model("sepsis", version=3), bytes)
        return [study.state, *(one.study for one in (await client.studies()).studies)]


def researcher(model: nn.Module, inputs: Tensor, targets: Tensor) -> Guarantee:
    account = ClassicalAccountant(delta=1e-5, order=4.0)
    account.step(noise_multiplier=2.0, sampling_rate=0.25)
    source = SecureSource()
    batch = poisson_batch(len(inputs), 0.25, source=source)
    assert_type(batch, NDArray[np.int64])
    gradients = PerRecordGradients(model, nn.functional.cross_entropy)
    slots = Slots.random(0.25 * len(inputs), source)
    clipped = gradients.clipped_sum(inputs, targets, clip_norm=1.0, slots=slots)
    assert_type(clipped, ClippedSum)
    noisy = add_noise(clipped, noise_multiplier=1.1, source=source)
    assert_type(noisy, NoisySum)
    assert_type(noisy.gradients["weight"] / noisy.noise_std, Tensor)
    print(account.epsilon(), account.certificate().observer, BayesianAccountant.__name__)
    return account.certificate()
