"""The frozen settings of the demonstration's studies. How they were found: docs/demo.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from accounting.plan.schemes import SchemeName
from client_sdk.protocol.study.settings import (
    BayesianSettings,
    Limit,
    Masking,
    Privacy,
    Schedule,
    StudySettings,
)
from client_sdk.protocol.study.training import ServerOptimiser, Training
from experiments.demo.scenarios import Scenario

ORDERS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0)
DEADLINE_SECONDS = 60.0
# With this many hospitals a round goes on without one of them, and does not wait long for it.
LEAST_WITH_ONE_TO_SPARE = 5
SHORT_STEP_SECONDS = 10.0
# One colluder; with four hospitals every one of them is needed, five bear one drop-out.
MASKING = Masking(
    colluders=1,
    neighbours=None,
    min_survivors=4,
    mask_updates=True,
    allow_three=False,
    step_deadline_seconds=DEADLINE_SECONDS,
    expiry_seconds=10 * DEADLINE_SECONDS,
)


@dataclass(frozen=True)
class Mechanism:
    """What differs from one data set to the other; see `choose_settings`."""

    epsilon: float
    delta: float
    clip_norm: float
    noise_multiplier: float
    sampling_rate: float
    filter_order: float
    learning_rate: float
    max_steps: int
    backstop: float


PARALLEL = {
    "breast-cancer": Mechanism(3.0, 1e-4, 3.0, 2.0, 0.25, 6.0, 1.0, max_steps=100, backstop=8.0),
    "heart-disease": Mechanism(3.0, 1e-4, 2.0, 2.5, 0.25, 6.0, 0.5, max_steps=100, backstop=8.0),
    "mnist": Mechanism(3.0, 1e-5, 1.5, 2.0, 0.2, 6.0, 10.0, max_steps=100, backstop=8.0),
}


def settings(
    scenario: Scenario, scheme: SchemeName, epsilon: float | None = None, *, masked: bool = True
) -> StudySettings:
    """The study of a scenario; `epsilon` replaces the Bayesian limit.

    Raises:
        pydantic.ValidationError: a scheme that counts on masks, without them.
    """
    make: Callable[[Scenario, float | None], StudySettings]
    make = {"parallel": _parallel, "sequential": _sequential, "joint": _joint, "client": _client_level}[scheme]
    values = make(scenario, epsilon).model_dump(mode="json")
    if len(scenario.hospitals) >= LEAST_WITH_ONE_TO_SPARE:
        values["schedule"]["min_clients"] = len(scenario.hospitals) - 1
        values["privacy"]["masking"]["step_deadline_seconds"] = SHORT_STEP_SECONDS
    if not masked:
        values["privacy"]["masking"] = None
    return StudySettings.model_validate(values)


def _sequential(scenario: Scenario, epsilon: float | None) -> StudySettings:
    """As parallel, but only the sum is seen, and it holds the noise of every honest hospital."""
    return _with_privacy(_parallel(scenario, epsilon), scheme="sequential", noise_multiplier=1.25)


def _joint(scenario: Scenario, epsilon: float | None) -> StudySettings:
    """Both levels from the hospitals' own noise: one patient, and one whole hospital."""
    chosen = PARALLEL[scenario.name]
    instance = _limits("instance", epsilon or chosen.epsilon, chosen.delta, chosen.backstop)
    return _with_privacy(
        _parallel(scenario, epsilon),
        scheme="joint",
        limits=[limit.model_dump() for limit in (*instance, *_limits("client", 18.0, 1e-3, 20.0))],
        bayesian=_bayesian(4.0, "running").model_dump(mode="json"),
        client_clip_norm=2 * chosen.clip_norm,
        classical_order=2.0,
        max_steps=40,
    )


def _with_privacy(study: StudySettings, **changes: Any) -> StudySettings:
    values = study.model_dump(mode="json")
    values["privacy"] |= changes
    return StudySettings.model_validate(values)


def _parallel(scenario: Scenario, epsilon: float | None) -> StudySettings:
    chosen = PARALLEL[scenario.name]
    clients = len(scenario.hospitals)
    return StudySettings(
        training=Training(
            task=scenario.task,
            task_parameters=dict(scenario.task_parameters),
            algorithm="fedsgd",
            local_steps=1,
            optimiser=ServerOptimiser(name="plain", learning_rate=chosen.learning_rate),
        ),
        privacy=Privacy(
            scheme="parallel",
            limits=_limits("instance", epsilon or chosen.epsilon, chosen.delta, chosen.backstop),
            clip_norm=chosen.clip_norm,
            noise_multiplier=chosen.noise_multiplier,
            sampling_rate=chosen.sampling_rate,
            expected_batch_size=chosen.sampling_rate * scenario.patients / clients,
            client_sampling_rate=1.0,
            expected_clients=float(clients),
            max_steps=chosen.max_steps,
            # The order at which Gaussian noise without sampling would reach the backstop.
            classical_order=4.0,
            bayesian=_bayesian(chosen.filter_order, "running"),
            disclosure="plain",
            masking=MASKING,
            client_clip_norm=None,
            histogram_noise=None,
            accounting_sample=None,
        ),
        schedule=Schedule(min_clients=clients, round_deadline_seconds=DEADLINE_SECONDS),
    )


def _client_level(scenario: Scenario, epsilon: float | None) -> StudySettings:
    clients = len(scenario.hospitals)
    return StudySettings(
        training=Training(
            task=scenario.task,
            task_parameters=dict(scenario.task_parameters),
            algorithm="fedavg",
            local_steps=20,
            learning_rate=1.0 if scenario.task == "logistic-regression" else 0.1,
            optimiser=ServerOptimiser(name="plain", learning_rate=1.0),
        ),
        privacy=Privacy(
            scheme="client",
            limits=_limits("client", epsilon or 10.0, 1e-3, 20.0),
            clip_norm=3.0,
            noise_multiplier=1.0,
            sampling_rate=1.0 if scenario.task == "logistic-regression" else 0.1,
            expected_batch_size=(1.0 if scenario.task == "logistic-regression" else 0.1) * scenario.patients / clients,
            client_sampling_rate=1.0,
            expected_clients=float(clients),
            max_steps=20,
            classical_order=1.5,
            bayesian=_bayesian(1.5, "holder"),
            disclosure="plain",
            masking=MASKING,
            client_clip_norm=None,
            histogram_noise=None,
            accounting_sample=None,
        ),
        schedule=Schedule(min_clients=clients, round_deadline_seconds=DEADLINE_SECONDS),
    )


def _limits(level: Literal["client", "instance"], epsilon: float, delta: float, backstop: float) -> tuple[Limit, ...]:
    return (
        Limit(
            level=level, definition="bayesian", epsilon=epsilon, delta=delta, estimator_failure_probability=delta / 10
        ),
        Limit(level=level, definition="classical", epsilon=max(backstop, epsilon), delta=delta),
    )


def _bayesian(filter_order: float, composition: Literal["running", "holder"]) -> BayesianSettings:
    return BayesianSettings(
        orders=tuple(sorted({*ORDERS, filter_order})),
        filter_order=filter_order,
        estimator="student-t",
        composition=composition,
        adversary="path",
        conversion="improved",
    )
