"""The option `wardround plan --suggest`: whole settings from public numbers, and the accuracy to expect.

The rule is a pure function in `study_protocol`. This module finds its noise with the accounts and puts it in words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accounting.plan.plan import Plan
    from study_protocol.study.settings import StudySettings
    from study_protocol.study.suggestion import AccuracyForecast, PublicNumbers

MAX_COLUMNS = 1000
PLACEHOLDER = "0..100; typical=20..60"
# Settings with a step that differs from the suggested one by more than this factor were not measured.
_FAR = 4.0
# Of a study whose settings have no section for questions yet.
_STATISTICS = {"max_queries": 200, "max_cells": 10_000}
# The schemes that were measured, and whether each needs masks.
_LINEAR, _ADDITIVE = "logistic-regression", "additive"
_SCHEMES = {"parallel": False, "sequential": True}


@dataclass(frozen=True)
class Suggested:
    """Settings with the suggested numbers, the accuracy to expect, and why their limits are kept as they are."""

    settings: StudySettings
    forecast: AccuracyForecast
    reasons: list[str]


def suggested(
    values: Mapping[str, Any],
    *,
    patients: Sequence[int] = (),
    rounds: int | None = None,
    commonest: float | None = None,
    questions: float | None = None,
    hopeless: bool = False,
) -> Suggested:
    """Return the settings `values`, given as JSON, with suggested numbers of training.

    patients   of every hospital, or one number for all. Empty: as expected_batch_size in the settings says
    rounds     None: as many as the rule takes
    commonest  share of the commonest class, if it is known
    questions  share of the budget for questions on all patients. None: as the settings say
    hopeless   suggest settings also where no better model than guessing is to be expected

    Raises:
        ConfigurationError: the rule was not measured for such a study, or the model would be no better than guessing.
        Unreachable: no noise keeps the limits.
    """
    from accounting.budget.solve import least_noise
    from study_protocol.study import suggestion
    from study_protocol.study.plan_of import plan_of
    from wardround.cli.lead.enforcement import with_tightest
    from wardround.cli.shared.settings_file import changed_settings

    before = as_settings(values)
    _require_measured(before)
    round_count = suggestion.ROUNDS if rounds is None else rounds
    numbers = _with_commonest(numbers_of(before, patients), commonest)
    whole = json.loads(json.dumps(before.as_json()))
    whole["privacy"] |= privacy_by_rule(numbers.patients, round_count)
    # The mean size of a batch is the denominator. The bound of a hospital's sum holds the largest batch.
    whole["robustness"]["sum_radius"] = suggestion.CLIP_NORM * numbers.largest if len(set(patients)) > 1 else None
    if questions is not None:
        _share(whole, questions)
    tightest_plan, reasons = with_tightest(plan_of(as_settings(whole)))
    plan = least_noise(tightest_plan)
    if questions is not None:
        reasons.append(_price_of_questions(questions, round_count, tightest_plan, plan))
    noise = suggestion.relative_noise(numbers, plan.noise_multiplier, round_count)
    noise_of_one = suggestion.relative_noise(replace(numbers, parameters=1), plan.noise_multiplier, round_count)
    rate = _rate(before, noise, noise_of_one, round_count, suggestion.CLIP_NORM)
    whole["training"]["optimiser"] = optimiser_by_rule(rate)
    expectation = suggestion.forecast_accuracy(numbers, noise)
    if not hopeless:
        _require_learnable(numbers, expectation)
    reasons += _about_curves(before, suggestion.offers_curves(numbers, noise_of_one))
    return Suggested(changed_settings(as_settings(whole), plan)[0], expectation, reasons)


def _rate(settings: StudySettings, noise: float, noise_of_one: float, rounds: int, clip_norm: float) -> float:
    """Return the learning rate of the task's own rule. noise_of_one: the relative noise of one weight."""
    from study_protocol.study import suggestion

    if settings.training.task == _ADDITIVE:
        return suggestion.additive_learning_rate(noise_of_one, rounds, clip_norm)
    return suggestion.learning_rate(noise, rounds, clip_norm)


def _about_curves(settings: StudySettings, offered: bool) -> list[str]:
    """Return a word on task additive where the other task is the better choice by public numbers."""
    if settings.training.task == _ADDITIVE:
        warning = (
            "warning: task additive was measured to lose against logistic-regression with fewer patients, a smaller ε, "
            "or columns that mostly have typical ranges: compare both with `wardround simulate`"
        )
        return [] if offered else [warning]
    note = (
        "note: with these numbers task additive was as accurate or better on the tables of docs/tasks.md, and shows a "
        "curve for each column. Where no column has a curve, it was up to 2 points worse: compare both with `wardround "
        "simulate`"
    )
    return [note] if offered else []


def privacy_by_rule(patients: float, rounds: int) -> dict[str, Any]:
    """Return entries of `privacy` for so many patients of one hospital."""
    from study_protocol.study.suggestion import CLIP_NORM

    return {"clip_norm": CLIP_NORM, "sampling_rate": 1.0, "expected_batch_size": patients, "max_steps": rounds}


def optimiser_by_rule(learning_rate: float) -> dict[str, Any]:
    """Return the entry `training.optimiser`."""
    from study_protocol.study.suggestion import AVERAGING

    return {"name": "plain", "learning_rate": learning_rate, "averaging": AVERAGING.model_dump(mode="json")}


def _price_of_questions(share: float, round_count: int, candidate: Plan, plan: Plan) -> str:
    from accounting.budget.solve import least_noise

    unshared = least_noise(replace(candidate, queries=None)).noise_multiplier
    return (
        f"note: questions have {share:g} of the budget, which training cannot take: {round_count} rounds need "
        f"noise multiplier {plan.noise_multiplier:.4g}, and {unshared:.4g} without questions"
    )


def _require_learnable(numbers: PublicNumbers, forecast: AccuracyForecast) -> None:
    """Raises ConfigurationError: not even half of such studies are expected to be better than guessing."""
    from client_sdk.errors import ConfigurationError

    if forecast.lost >= 1 - 1 / numbers.classes:
        raise ConfigurationError(
            f"no settings are suggested: with {numbers.hospitals * numbers.patients:,.0f} patients the model would be "
            "no better than guessing at these limits. It takes more patients, a larger ε or fewer columns"
        )


def _share(whole: dict[str, Any], share: float) -> None:
    """Give questions a share of the budget: the steps of training become a fixed plan, which has the rest."""
    whole["statistics"] = {**_STATISTICS, **(whole.get("statistics") or {}), "share": share}
    for limit in whole["privacy"]["limits"]:
        if limit["definition"] == "classical":
            limit["enforcement"] = "fixed-plan"


def begun(
    *,
    patients: Sequence[int],
    hospitals: int,
    columns: int,
    classes: int,
    epsilon: float,
    delta: float,
    scheme: str,
    masked: bool,
) -> dict[str, Any]:
    """Return first settings of a study, as JSON. The columns are placeholders to be renamed.

    Raises:
        ConfigurationError: no such study can have these numbers.
    """
    from client_sdk.errors import ConfigurationError
    from wardround.cli.lead.templates import study_values

    if not 1 <= columns <= MAX_COLUMNS:
        raise ConfigurationError(f"--columns: from 1 to {MAX_COLUMNS:,}, not {columns}")
    if scheme not in _SCHEMES:
        raise ConfigurationError(_unmeasured(f"scheme {scheme}"))
    if len(patients) not in (1, hospitals):
        raise ConfigurationError("--patients: give it once, or once for each hospital")
    values = study_values()
    digits = len(str(columns))
    names = {f"column.input-{number:0{digits}}": PLACEHOLDER for number in range(1, columns + 1)}
    values["training"]["task_parameters"] = {"label": "outcome", "classes": classes, **names}
    limit = {"level": "instance", "definition": "classical", "epsilon": epsilon, "delta": delta}
    mean = sum(patients) / len(patients)
    values["privacy"] |= {
        "scheme": scheme,
        "limits": [limit],
        "expected_clients": float(hospitals),
        "sampling_rate": 1.0,
        "expected_batch_size": mean,
    }
    values["schedule"]["min_clients"] = hospitals
    return with_masks(values) if masked or _SCHEMES[scheme] else values


def with_masks(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with masks for their number of hospitals. Masks that they have stay."""
    from wardround.cli.lead.templates import MASKING

    privacy = values["privacy"]
    if privacy.get("masking"):
        return dict(values)
    hospitals = round(privacy["expected_clients"] / privacy["client_sampling_rate"])
    # With five or more hospitals, one may be missing.
    fewest = hospitals if hospitals <= 4 else hospitals - 1
    masking = {**MASKING, "min_survivors": fewest, "allow_three": hospitals == 3}
    return {
        **values,
        "privacy": {**privacy, "masking": masking},
        "schedule": {**values["schedule"], "min_clients": fewest},
    }


def expected(
    settings: StudySettings, commonest: float | None = None, rounds: int | None = None
) -> tuple[AccuracyForecast, list[str]] | None:
    """Return the accuracy to expect of the settings, and remarks where they are far from the measured ones.

    Returns None if the rule was not measured for them. rounds: those that the limits allow. None: computed here.
    """
    from client_sdk.errors import WardroundError
    from private_learning.tasks import TaskError
    from study_protocol.study import suggestion

    privacy, optimiser = settings.privacy, settings.training.optimiser
    try:
        _require_measured(settings)
        numbers = numbers_of(settings)
    except (WardroundError, TaskError):
        return None
    numbers = _with_commonest(numbers, commonest)
    if settings.training.algorithm != "fedsgd" or optimiser.name != "plain":
        return None
    rounds = _allowed_rounds(settings) if rounds is None else rounds
    if rounds == 0:
        return None
    noise = suggestion.relative_noise(numbers, privacy.noise_multiplier, rounds, privacy.sampling_rate)
    forecast = suggestion.forecast_accuracy(numbers, noise)
    # The largest move of the model in one step is learning rate × clip norm, so this product is compared.
    of_one_weight = replace(numbers, parameters=1)
    noise_of_one = suggestion.relative_noise(of_one_weight, privacy.noise_multiplier, rounds, privacy.sampling_rate)
    suggested_rate = _rate(settings, noise, noise_of_one, rounds, privacy.clip_norm)
    ratio = optimiser.learning_rate / suggested_rate
    remarks: list[str] = []
    if not 1 / _FAR <= ratio <= _FAR:
        far = "larger" if ratio > 1 else "smaller"
        remarks.append(
            f"the learning rate {optimiser.learning_rate:g} is much {far} than {suggested_rate:g}, which is suggested "
            "at this noise and clip norm: expect worse than the forecast"
        )
    if privacy.clip_norm > 2.0:
        remarks.append(
            f"the clip norm {privacy.clip_norm:g} is above 2, where few gradients are clipped and all noise grows: "
            "expect worse than the forecast"
        )
    return forecast, remarks


def _allowed_rounds(settings: StudySettings) -> int:
    """Return the number of rounds that surely fit the limits, or 0 if no budget can be kept."""
    from accounting.budget.forecast import forecast
    from accounting.errors import AccountingError
    from study_protocol.study.plan_of import plan_of

    try:
        return forecast(plan_of(settings)).rounds
    except AccountingError:
        return 0


def as_json(suggestion: Suggested) -> dict[str, Any]:
    return {
        "settings": suggestion.settings.as_json(),
        "accuracy": {
            **asdict(suggestion.forecast),
            "may_be_below_commonest": suggestion.forecast.may_be_below_commonest,
        },
    }


def as_settings(values: Mapping[str, Any]) -> StudySettings:
    """Return settings given as JSON, without null for what is left out. Raises ConfigurationError: they are none."""
    from pydantic import ValidationError

    from client_sdk.errors import ConfigurationError
    from study_protocol.study.settings import StudySettings
    from study_protocol.wire.wrong_entries import wrong_entries
    from wardround.cli.shared.settings_file import filled

    try:
        return StudySettings.model_validate_json(json.dumps(filled(json.loads(json.dumps(values)), StudySettings)))
    except ValidationError as error:
        wrong = "; ".join(wrong_entries(error, StudySettings))
        raise ConfigurationError(f"no study can have these numbers: {wrong}") from error


def _require_measured(settings: StudySettings) -> None:
    """Require settings of the kind that the rule was measured for: logistic regression of patients' records.

    Raises:
        ConfigurationError: they are of another kind.
    """
    from client_sdk.errors import ConfigurationError

    if settings.training.task not in (_LINEAR, _ADDITIVE):
        raise ConfigurationError(_unmeasured(f"task {settings.training.task}"))
    parameters = settings.training.task_parameters
    if parameters.get("loss", "cross-entropy") != "cross-entropy" or "class-weights" in parameters:
        raise ConfigurationError(_unmeasured("another loss than the plain one (task_parameters)"))
    if settings.privacy.scheme not in _SCHEMES:
        raise ConfigurationError(_unmeasured(f"scheme {settings.privacy.scheme}"))
    if settings.training.clipping != "flat" or settings.training.clipping_centre != "zero":
        raise ConfigurationError(_unmeasured("another clipping than flat around zero"))
    if settings.privacy.adaptive_clip is not None:
        raise ConfigurationError(_unmeasured("an adaptive clip norm"))
    if settings.privacy.noise_schedule is not None:
        raise ConfigurationError(_unmeasured("a noise schedule"))


def _unmeasured(case: str) -> str:
    return (
        f"no settings are suggested for {case}: the rule was measured with tasks logistic-regression and additive in "
        "the schemes parallel and sequential. Take a template, and try it with `wardround simulate` on records of your "
        "own"
    )


def numbers_of(settings: StudySettings, patients: Sequence[int] = ()) -> PublicNumbers:
    """Return the public numbers in the settings of a logistic regression. Arguments are as in `suggested`.

    An additive model counts as a logistic regression of the same columns, whose accuracy is what was measured.

    Raises:
        ConfigurationError: patients of another number of hospitals.
        TaskError: the description of the columns is not valid.
    """
    from client_sdk.errors import ConfigurationError
    from private_learning import tasks
    from private_learning.tasks.declared_columns import NumberColumn
    from study_protocol.study.suggestion import PublicNumbers

    privacy, training = settings.privacy, settings.training
    hospitals = round(privacy.expected_clients)
    if len(patients) not in (0, 1, hospitals):
        raise ConfigurationError("--patients: give it once, or once for each hospital")
    task: Any = tasks.load(*_as_linear(training.task, training.task_parameters))
    ranges = sum(isinstance(column, NumberColumn) and not (column.typical or column.log) for column in task.columns)
    mean = sum(patients) / len(patients) if patients else privacy.expected_batch_size / privacy.sampling_rate
    return PublicNumbers(
        hospitals=hospitals,
        patients=mean,
        largest=max(patients, default=mean),
        parameters=(task.features + 1) * (1 if task.classes == 2 else task.classes),
        classes=task.classes,
        ranges=ranges / len(task.columns),
    )


def _as_linear(task: str, parameters: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return a task and its parameters, of an additive model as a logistic regression of the same columns."""
    from private_learning.tasks.columns import PREFIX, TRENDS

    if task != _ADDITIVE:
        return task, parameters

    def plain(text: str) -> str:
        return ";".join(part for part in text.split(";") if part.strip() not in TRENDS)

    return _LINEAR, {
        name: plain(value) if name.startswith(PREFIX) and isinstance(value, str) else value
        for name, value in parameters.items()
        if name != "bins"
    }


def _with_commonest(numbers: PublicNumbers, commonest: float | None) -> PublicNumbers:
    """Raises ConfigurationError: no class of so few can be that rare and the commonest."""
    from client_sdk.errors import ConfigurationError

    # Less a hundredth, by which a person may have rounded it.
    if commonest is not None and commonest < 1 / numbers.classes - 0.01:
        raise ConfigurationError(
            f"--commonest {commonest:g}: the commonest of {numbers.classes} classes has at least "
            f"{1 / numbers.classes:.2g} of the patients. Name its share"
        )
    return replace(numbers, commonest=commonest)
