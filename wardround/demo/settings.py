"""The frozen settings of the demonstration's studies: what `wardround plan --suggest` says where it says something.

Where it says nothing (images, other schemes, a limit of each definition) they were found as docs/demo.md tells.
`max_steps` is four times the rounds that fit, so that the budget ends the study. Digits are sampled in a fixed plan.
`expected_batch_size` is the mean size of a hospital, and `sum_radius` holds the largest sum of one. Both are rounded
up to tens, because exact numbers would tell who is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from accounting.accountants.calibration import calibrate_noise
from accounting.budget.accounts import LimitAccount
from accounting.budget.accounts.fixed_plan import OPENING_MARGIN
from accounting.budget.budget import Budget
from accounting.budget.enforcement import tightest
from accounting.errors import Unreachable
from accounting.plan.schemes import SCHEMES, SchemeName
from study_protocol.study import suggestion
from study_protocol.study.limits import Limit, Schedule
from study_protocol.study.masking import Masking
from study_protocol.study.plan_of import plan_of
from study_protocol.study.privacy import BayesianSettings, Privacy
from study_protocol.study.robustness import Robustness
from study_protocol.study.settings import StudySettings
from study_protocol.study.training import Averaging, ServerOptimiser, Training
from wardround.cli.lead.suggest import numbers_of
from wardround.cli.shared.settings_file import changed_settings
from wardround.demo.by_hospital import statistics
from wardround.demo.scenarios import Scenario

ORDERS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0)
DEADLINE_SECONDS = 60.0
# Its hospitals have 205 patients at most: a second would be for 1,000, and nobody wants to watch that.
SLOTS = (0.2, 1.0)
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
class DemoPrivacy:
    """The settings that differ between data sets. The noise follows: `calibrated`.

    epsilon        of the limit; with --bayesian of both
    learning_rate  None: as suggested, for the noise
    rounds         after so many the budget ends the study
    """

    epsilon: float
    delta: float
    clip_norm: float
    sampling_rate: float
    learning_rate: float | None
    rounds: int


# The rule would take 100 rounds, which nobody wants to watch.
SETTINGS_BY_SCHEME = {
    "breast-cancer": DemoPrivacy(2.0, 1e-4, suggestion.CLIP_NORM, 1.0, None, rounds=30),
    "heart-disease": DemoPrivacy(2.0, 1e-4, suggestion.CLIP_NORM, 1.0, None, rounds=30),
    "mnist": DemoPrivacy(3.0, 1e-5, 1.5, 0.2, 10.0, rounds=40),
}
# Both definitions side by side: where few gradients reach the clip norm, and the Bayesian number says something.
WITH_BAYESIAN = {
    "breast-cancer": replace(SETTINGS_BY_SCHEME["breast-cancer"], clip_norm=3.0, learning_rate=4.0),
    "heart-disease": replace(SETTINGS_BY_SCHEME["heart-disease"], clip_norm=3.0, learning_rate=2.0),
    "mnist": SETTINGS_BY_SCHEME["mnist"],
}
LAST_HALF = Averaging(name="tail", share=0.5)
# Where all records are in every round, more rounds than the budget allows: it is the budget that ends the study.
MAX_STEPS_PER_ROUND = 4


@dataclass(frozen=True)
class BothLevels:
    """Scheme joint: a noise of its own, because it has a client level to pay for, too."""

    clip_norm: float
    noise_multiplier: float
    sampling_rate: float
    learning_rate: float


JOINT = {
    "breast-cancer": BothLevels(3.0, 2.0, 0.25, 1.0),
    "heart-disease": BothLevels(2.0, 2.5, 0.25, 0.5),
    "mnist": BothLevels(1.5, 2.0, 0.2, 10.0),
}
BACKSTOP = 8.0


def settings(
    scenario: Scenario,
    scheme: SchemeName,
    epsilon: float | None = None,
    *,
    masked: bool = True,
    bayesian: bool = False,
    rounds: int | None = None,
) -> StudySettings:
    """The study of a scenario.

    epsilon   instead of the data set's own; schemes parallel and sequential take the noise that fits it
    bayesian  a Bayesian limit beside the classical one, whose log-moments are shown at the end: schemes parallel and
              sequential, at a clip norm that few gradients reach; the others always have one

    rounds    instead of the data set's own, in the same schemes: the noise follows

    Raises:
        pydantic.ValidationError: a scheme that counts on masks, without them.
        Unreachable: no noise keeps this limit.
    """
    of_scheme = OTHER_SCHEMES.get(scheme)
    study = of_scheme(scenario, epsilon) if of_scheme else _for_patients(scenario, scheme, epsilon, bayesian, rounds)
    values = study.model_dump(mode="json")
    if len(scenario.hospitals) >= LEAST_WITH_ONE_TO_SPARE:
        values["schedule"]["min_clients"] = len(scenario.hospitals) - 1
        values["privacy"]["masking"]["step_deadline_seconds"] = SHORT_STEP_SECONDS
    if not masked:
        # Without masks no share of the noise is hidden: in scheme client the coordinator adds it.
        values["privacy"] |= {"masking": None, "central_noise": None}
    return StudySettings.model_validate(values)


def calibrated(study: StudySettings, rounds: int) -> StudySettings:
    """With the least noise (to a thousandth, rounded up) at which the budget allows so many rounds.

    Every limit is kept by the study's own accounts: a classical one by the tightest rule, a Bayesian one at the order
    that needs least noise.

    Raises:
        Unreachable: no noise does.
    """
    privacy = study.privacy
    limit = privacy.limits[0]

    def by_order(order: float) -> float:
        try:
            return calibrate_noise(
                epsilon=limit.epsilon, delta=limit.delta, sampling_rate=privacy.sampling_rate, steps=rounds, order=order
            )
        except Unreachable:
            return math.inf

    order = min(ORDERS, key=by_order)
    bayesian = None if privacy.bayesian is None else _bayesian(order, "running").model_dump(mode="json")

    def with_noise(noise: float) -> StudySettings:
        return _with_privacy(study, noise_multiplier=noise, classical_order=order, bayesian=bayesian)

    def largest(noise: float) -> float:
        accounts = Budget(plan_of(with_noise(noise))).accounts
        worst = max(account.epsilon_at_worst(rounds, 0) for account in accounts if isinstance(account, LimitAccount))
        # A fixed plan is opened with a margin.
        return worst * (1 + OPENING_MARGIN)

    min_noise = calibrate_noise(
        epsilon=limit.epsilon, delta=limit.delta, sampling_rate=1.0, steps=rounds, account=largest
    )
    return with_noise(math.ceil(1000 * min_noise) / 1000)


def _for_patients(
    scenario: Scenario, scheme: SchemeName, epsilon: float | None, bayesian: bool, rounds: int | None
) -> StudySettings:
    """Local noise; or distributed noise: only the sum is seen, and it holds the noise of every honest hospital."""
    choice = (WITH_BAYESIAN if bayesian else SETTINGS_BY_SCHEME)[scenario.name]
    choice = replace(choice, rounds=rounds or choice.rounds)
    limits = _limits("instance", epsilon or choice.epsilon, choice.delta, 0.0)
    study = _instance(
        scenario,
        clip_norm=choice.clip_norm,
        sampling_rate=choice.sampling_rate,
        learning_rate=choice.learning_rate or 1.0,
        scheme=scheme,
        limits=limits if bayesian else limits[1:],
        # A fixed plan has no step to spare, and a sum of squares needs no number of steps.
        max_steps=choice.rounds * (MAX_STEPS_PER_ROUND if choice.sampling_rate == 1 else 1),
        bayesian=_bayesian(1.0, "running") if bayesian else None,
        disclosure="at-end",
    )
    if bayesian:
        questions = statistics(len(scenario.hospitals))
        study = _tightest(StudySettings.model_validate(study.as_json() | {"statistics": questions}))
    study_settings = calibrated(study, choice.rounds)
    return study_settings if choice.learning_rate is not None else _as_suggested(study_settings, choice.rounds)


def _as_suggested(study: StudySettings, rounds: int) -> StudySettings:
    """With the learning rate and the averaging that `wardround plan --suggest` takes at this noise."""
    noise = suggestion.relative_noise(numbers_of(study), study.privacy.noise_multiplier, rounds)
    optimiser = ServerOptimiser(
        name="plain", learning_rate=suggestion.learning_rate(noise, rounds), averaging=suggestion.AVERAGING
    )
    return study.model_copy(update={"training": study.training.model_copy(update={"optimiser": optimiser})})


def _joint(scenario: Scenario, epsilon: float | None) -> StudySettings:
    """Both levels from the hospitals' own noise: one patient, and one whole hospital."""
    choice, delta = JOINT[scenario.name], SETTINGS_BY_SCHEME[scenario.name].delta
    return _instance(
        scenario,
        clip_norm=choice.clip_norm,
        sampling_rate=choice.sampling_rate,
        learning_rate=choice.learning_rate,
        noise_multiplier=choice.noise_multiplier,
        scheme="joint",
        limits=(*_limits("instance", epsilon or 3.0, delta, BACKSTOP), *_limits("client", 18.0, 1e-3, 20.0)),
        bayesian=_bayesian(4.0, "running"),
        client_clip_norm=2 * choice.clip_norm,
        classical_order=2.0,
        max_steps=40,
        disclosure="plain",
    )


def _tightest(study: StudySettings) -> StudySettings:
    """With the rule for each classical limit that `wardround plan` chooses."""
    return changed_settings(study, tightest(plan_of(study)))[0]


def _with_privacy(study: StudySettings, **changes: Any) -> StudySettings:
    values = study.model_dump(mode="json")
    values["privacy"] |= changes
    return StudySettings.model_validate(values)


def rounded_up(patients: float) -> float:
    """A number of patients as a study announces it: the exact one would tell who is among them."""
    return 10.0 * math.ceil(patients / 10)


def _instance(
    scenario: Scenario, *, clip_norm: float, sampling_rate: float, learning_rate: float, **privacy: Any
) -> StudySettings:
    """One noised gradient a round. Sizes are public constants, announced before anybody enrols."""
    clients = len(scenario.hospitals)
    largest = max(len(records) for records in scenario.hospitals.values())
    privacy_settings: dict[str, Any] = {
        "noise_multiplier": 1.0,
        "classical_order": 1.0,
        "masking": MASKING,
        "client_clip_norm": None,
        "histogram_noise": None,
        "accounting_sample": None,
        **privacy,
    }
    # Full batches of unequal hospitals: the largest one's sum must fit, or it would count for less than its patients.
    bounds_clients = SCHEMES[privacy_settings["scheme"]].bounds_clients_too
    whole = Robustness(sum_radius=clip_norm * rounded_up(largest)) if not bounds_clients else Robustness()
    study = StudySettings(
        training=Training(
            task=scenario.task,
            task_parameters=dict(scenario.task_parameters),
            algorithm="fedsgd",
            local_steps=1,
            optimiser=ServerOptimiser(name="plain", learning_rate=learning_rate, averaging=LAST_HALF),
        ),
        privacy=Privacy(
            clip_norm=clip_norm,
            sampling_rate=sampling_rate,
            expected_batch_size=sampling_rate * rounded_up(scenario.patients / clients),
            client_sampling_rate=1.0,
            expected_clients=float(clients),
            **privacy_settings,
        ),
        schedule=Schedule(min_clients=clients, round_deadline_seconds=DEADLINE_SECONDS, slots=SLOTS),
        robustness=whole,
    )
    return _tightest(study)


def _client_level(scenario: Scenario, epsilon: float | None) -> StudySettings:
    clients = len(scenario.hospitals)
    study = StudySettings(
        training=Training(
            task=scenario.task,
            task_parameters=dict(scenario.task_parameters),
            algorithm="fedavg",
            local_steps=20,
            learning_rate=1.0 if scenario.task == "logistic-regression" else 0.1,
            optimiser=ServerOptimiser(name="plain", learning_rate=1.0, averaging=LAST_HALF),
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
        schedule=Schedule(min_clients=clients, round_deadline_seconds=DEADLINE_SECONDS, slots=SLOTS),
    )
    return _tightest(study)


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


# The noise of the other schemes follows from the limit and the rounds.
OTHER_SCHEMES = {"joint": _joint, "client": _client_level}
