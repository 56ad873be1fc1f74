"""The commands `wardround study template` and `policy template`: whole settings files with every entry described.

The chosen values stand here. The descriptions come from the models that check the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import plain_errors, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import BaseModel

Out = Annotated[Path | None, typer.Option("--output", "-o", help="new file to write. Default: standard output")]
Bayesian = Annotated[bool, typer.Option("--bayesian", help="add a Bayesian limit to the classical one")]
Masked = Annotated[
    bool, typer.Option("--masked", help="sum updates under masks, so that the coordinator sees no single update")
]
ClientLevel = Annotated[
    bool, typer.Option("--client-level", help="protect whole hospitals instead of patients. Needs --masked")
]

Evaluated = Annotated[
    bool,
    typer.Option("--evaluation", help="set a fifth of the patients aside, and evaluate models on them by queries"),
]
TaskName = Annotated[str | None, typer.Option("--task", help="built-in task to train. Default: logistic-regression")]
Statistics = Annotated[bool, typer.Option("--statistics", help="a study of questions alone, without training")]
Synthesised = Annotated[bool, typer.Option("--synthesis", help="with --statistics: and synthetic records")]

DEFAULT_TASK = "logistic-regression"
_TRAINING: Mapping[str, Any] = {
    "algorithm": "fedsgd",
    "local_steps": 1,
}
# The squared error has eight times the curvature of a logistic loss. With steps of 1 the model oscillates.
SMALLER_STEPS: Mapping[str, float] = {"regression": 0.25}
# Four hospitals with about 120 patients each. All patients take part in every step: the largest sum for one noise.
_PRIVACY: Mapping[str, Any] = {
    "scheme": "parallel",
    "limits": [
        {
            "level": "instance",
            "definition": "classical",
            "epsilon": 3.0,
            "delta": 1e-5,
            "enforcement": "gaussian-filter",
        }
    ],
    "clip_norm": 1.0,
    # The least for these rounds, rounded up.
    "noise_multiplier": 7.7,
    "sampling_rate": 1.0,
    "expected_batch_size": 120.0,
    "client_sampling_rate": 1.0,
    "expected_clients": 4.0,
    "max_steps": 30,
    "classical_order": 6.5,
    "disclosure": "at-end",
}
# A Bayesian limit needs more for as many rounds, and questions about all patients need a part of the limit.
_MORE_NOISE = 8.3
MASKING: Mapping[str, Any] = {
    "colluders": 1,
    "min_survivors": 4,
    "mask_updates": True,
    "allow_three": False,
    "step_deadline_seconds": 60.0,
    "expiry_seconds": 600.0,
}
_BAYESIAN_LIMIT: Mapping[str, Any] = {
    "level": "instance",
    "definition": "bayesian",
    "epsilon": 3.0,
    "delta": 1e-5,
    "estimator_failure_probability": 1e-6,
}
_BAYESIAN: Mapping[str, Any] = {
    "orders": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 32.0],
    "filter_order": 6.0,
    "estimator": "betting",
    "composition": "running",
    "adversary": "path",
    "conversion": "improved",
}
# Twenty hospitals, because their sum shares one noise. With four hospitals the noise would hide the model.
_CLIENT_LEVEL: Mapping[str, Any] = {
    "scheme": "client",
    "central_noise": "distributed",
    "limits": [
        {
            "level": "client",
            "definition": "classical",
            "epsilon": 5.0,
            "delta": 1e-3,
            "enforcement": "gaussian-filter",
        }
    ],
    "noise_multiplier": 3.1,
    "expected_clients": 20.0,
    "max_steps": 20,
    "classical_order": 2.5,
}
POLICY: Mapping[str, Any] = {
    "studies": ["sepsis"],
    "datasets": ["icu-2024"],
    "excluded_patients": [],
    "least_noise_multiplier": 0.8,
    "largest_epsilon": 8.0,
    "largest_delta": 1e-5,
    "needs_masking": False,
    "least_colluders": 1,
    "least_survivors": 4,
    "allow_three": False,
    "tells_lacking_columns": False,
    "plain_disclosure": False,
    "unnoised_updates": False,
    "min_witnesses": 0,
    "witness_window": 10,
    "backbone_programs": [],
    "changed_records": "stop",
    "unpinned_roster": "unmasked",
    "approval": {"people": 1},
    "statistics": {"queries": "ask", "denied_columns": [], "least_noise_multiplier": 0.8},
    "limits": {"instance": {"epsilon": 8.0, "delta": 1e-6}},
    "individual": {"epsilon": 10.0, "delta": 1e-6, "every_norm": False},
}
STUDY_HEAD = """\
# The settings of one study: wardround study create NAME --settings FILE. They never change afterwards.
# Change what is about your data first: task_parameters, expected_batch_size, expected_clients, min_clients.
# Every entry, with those of the sections that are left out here: docs/settings.md."""
STATISTICS_HEAD = """\
# The settings of one study of queries alone: wardround study create NAME --settings FILE. They never change afterwards.
# Questions are asked one by one afterwards: wardround ask NAME question.toml."""
POLICY_HEAD = """\
# The site policy of one hospital: policy.toml in the hospital's directory (WARDROUND_CLIENT_HOME).
# It is read before every study and asked before every round. No study can switch it off.
# An entry that is left out has its strict value. A misspelt entry is an error.
# Patients who are left out of everything may stand in a file beside this one, one identifier a line. A line with a
# separator is refused, and an entry that matches no patient is warned of (docs/records.md, "Who is left out"). Left
# out: objections.txt, to which `wardround objection add` adds:
# excluded_patients_file = "withdrawn-consent.txt\""""


_STATISTICS: Mapping[str, Any] = {"max_queries": 200, "max_cells": 10_000}
# Three evaluations of 30 rounds keep a limit of 3, and leave budget for questions about all patients.
_EVALUATION: Mapping[str, Any] = {
    "share": 0.2,
    "every": 10,
    "question": {"prediction": "binary", "noise_multiplier": 4.0},
}


# Three columns to be replaced, and about half of the limit.
_SYNTHESIS: Mapping[str, Any] = {
    "columns": [
        {"column": "age", "edges": [40.0, 60.0, 80.0]},
        {"column": "sex", "categories": ["female", "male"]},
        {"column": "died", "categories": ["no", "yes"]},
    ],
    "outcome": "died",
    "allowance": 0.2,
}


def statistics_values(*, masked: bool = False, synthesis: bool = False) -> dict[str, Any]:
    """Return the values in the template of a study of queries alone, as JSON."""
    # Of questions alone it is the only rule.
    limits = [{name: value for name, value in limit.items() if name != "enforcement"} for limit in _PRIVACY["limits"]]
    privacy = {"scheme": "statistics", "limits": limits}
    return {
        "statistics": dict(_STATISTICS),
        "privacy": privacy | ({"masking": dict(MASKING)} if masked else {}),
        "schedule": {"min_clients": 4, "round_deadline_seconds": 60.0},
        **({"synthesis": dict(_SYNTHESIS)} if synthesis else {}),
    }


def study_values(
    *,
    task: str = DEFAULT_TASK,
    bayesian: bool = False,
    masked: bool = False,
    client_level: bool = False,
    evaluation: bool = False,
) -> dict[str, Any]:
    """Return the values in a template of a study, as JSON.

    Raises:
        ConfigurationError: there is no such task, or the options do not fit together. The message says which do.
    """
    from client_sdk.errors import ConfigurationError
    from private_learning.tasks.registry import BUILT_IN, example_of, names

    if task not in names():
        raise ConfigurationError(f"--task {task}: the built-in tasks are {', '.join(BUILT_IN)}")
    parameters = example_of(task)
    _require_together(bayesian=bayesian, masked=masked, client_level=client_level, evaluation=evaluation)
    rate = SMALLER_STEPS.get(task, 1.0)
    training = {"task": task, "task_parameters": parameters, **_TRAINING}
    training["optimiser"] = {"name": "plain", "learning_rate": 1.0 if client_level else rate}
    privacy, clients = dict(_PRIVACY), 4
    if masked:
        privacy["masking"] = dict(MASKING)
    if client_level:
        training |= {"algorithm": "fedavg", "local_steps": 5, "learning_rate": 0.5 * rate}
        privacy |= _CLIENT_LEVEL
        clients = 16
        privacy["masking"] |= {"colluders": 3, "min_survivors": clients}
    if bayesian or evaluation:
        privacy["noise_multiplier"] = _MORE_NOISE
    if bayesian:
        privacy |= {"limits": [*privacy["limits"], dict(_BAYESIAN_LIMIT)], "bayesian": dict(_BAYESIAN)}
    schedule = {"min_clients": clients, "round_deadline_seconds": 60.0}
    queries = {"statistics": dict(_STATISTICS), "evaluation": _evaluation_of(task, parameters)} if evaluation else {}
    return {"training": training, "privacy": privacy, "schedule": schedule, **queries}


def _require_together(*, bayesian: bool, masked: bool, client_level: bool, evaluation: bool) -> None:
    from client_sdk.errors import ConfigurationError

    if client_level and not masked:
        raise ConfigurationError(
            "--client-level without --masked: the coordinator would see every hospital's update without noise. "
            'Add --masked. To allow it nevertheless, set central_noise = "coordinator" and leave out the section '
            "[privacy.masking]"
        )
    if client_level and bayesian:
        raise ConfigurationError(
            "--client-level with --bayesian: a Bayesian limit of hospitals is estimated from as many values as there "
            "are hospitals, too few to be below the classical one. Leave one of the two out"
        )
    if evaluation and (client_level or bayesian):
        raise ConfigurationError(
            "--evaluation goes with --masked alone: queries count patients, not hospitals, and beside a Bayesian limit "
            "they draw on statistics.allowance, which you have to choose (docs/statistics.md)"
        )


def _evaluation_of(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the evaluation with the question that fits the task's example. Raises ConfigurationError: none fits."""
    from client_sdk.errors import ConfigurationError
    from private_learning.tasks import load

    task = load(name, parameters)
    entries = task.evaluation()
    if entries is None:
        raise ConfigurationError(f"--evaluation with --task {name}: no question evaluates {task.predicts} yet")
    return {**_EVALUATION, "question": {**_EVALUATION["question"], **entries}}


def study_text(values: Mapping[str, Any]) -> str:
    """Return the settings file with these values and every entry described."""
    from study_protocol.study.any_settings import StatisticsSettings, trains
    from study_protocol.study.settings import StudySettings

    if not trains(values):
        return _text(STATISTICS_HEAD, StatisticsSettings, values)
    return _text(STUDY_HEAD, StudySettings, values)


def policy_text() -> str:
    """Return a whole site policy with every entry described."""
    from client_sdk.guard.policy import SitePolicy

    return _text(POLICY_HEAD, SitePolicy, POLICY)


def _text(head: str, model: type[BaseModel], values: Mapping[str, Any]) -> str:
    from wardround.cli.shared.settings_help import entries, template

    def lines() -> Iterator[str]:
        yield head
        yield ""
        yield from template(entries(model), dict(values))

    return "\n".join(lines()) + "\n"


def study_template(
    task: TaskName = None,
    bayesian: Bayesian = False,
    masked: Masked = False,
    client_level: ClientLevel = False,
    evaluation: Evaluated = False,
    statistics: Statistics = False,
    synthesis: Synthesised = False,
    output: Out = None,
) -> None:
    """Write a settings file for a study in which every entry is described. Edit it for `study create`."""
    from client_sdk.errors import ConfigurationError

    with plain_errors():
        if statistics:
            if bayesian or client_level or evaluation or task is not None:
                raise ConfigurationError(
                    "--statistics goes with --masked alone: the cost of a query is public and known beforehand, and a "
                    "query counts patients, not hospitals"
                )
            hand_out(study_text(statistics_values(masked=masked, synthesis=synthesis)), output)
            return
        if synthesis:
            raise ConfigurationError("--synthesis goes with --statistics: add it, or write [synthesis] into the file")
        values = study_values(
            task=task or DEFAULT_TASK,
            bayesian=bayesian,
            masked=masked,
            client_level=client_level,
            evaluation=evaluation,
        )
        hand_out(study_text(values), output)


def policy_template(output: Out = None) -> None:
    """Write a site policy in which every entry is described. Save it as policy.toml in the hospital's directory."""
    with plain_errors():
        hand_out(policy_text(), output)


def hand_out(text: str, output: Path | None) -> None:
    """Print the text, or write it to a new file. Raises OSError: the file exists or cannot be written."""
    if output is None:
        typer.echo(text, nl=False)
        return
    require_writable(output)
    # Only a new one: an edited file is never lost.
    with output.open("x", encoding="utf-8") as file:
        file.write(text)
    say(f"{output} is written")
