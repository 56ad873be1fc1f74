"""The templates parse, say everything, and are plans that a coordinator takes as they stand."""

from __future__ import annotations

import csv
import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel

from accounting.budget.budget import Budget
from accounting.budget.enforcement import account_of, tightest
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.evaluated import require_form
from private_learning.gradients import PerRecordGradients
from private_learning.records import Table
from private_learning.tasks import load
from private_learning.tasks.registry import BUILT_IN, EXAMPLES
from study_protocol.cells import Spelling
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.study.slots import with_slots
from tests.factories.commands import Run
from tests.factories.live_coordinator import Live
from tests.factories.made_up import made_up
from wardround.cli.lead.templates import study_values
from wardround.cli.shared.settings_file import read_any_settings, read_settings
from wardround.cli.shared.settings_help import SettingsEntry, entries
from wardround.demo.scenarios import data_folder

FLAGS = ("--bayesian", "--masked", "--client-level")
ALL = [chosen for n in range(4) for chosen in itertools.combinations(FLAGS, n)]
REFUSED = [chosen for chosen in ALL if "--client-level" in chosen and chosen != ("--masked", "--client-level")]
TAKEN = [chosen for chosen in ALL if chosen not in REFUSED]
DOCS = Path(__file__).parents[4] / "docs"
ABALONE = {"length": 1, "diameter": 1, "height": 0.5, "whole": 3, "shucked": 1.5, "viscera": 1, "shell": 1}
COLUMNS = {"column.sex": "M|F|I"} | {f"column.{name}": f"0..{high}" for name, high in ABALONE.items()}


@pytest.mark.slow
@pytest.mark.parametrize("flags", TAKEN, ids=" ".join)
def test_a_template_of_a_study_is_taken_by_the_coordinator(
    here: Live, run: Run, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    path = tmp_path / "study.toml"
    run("study", "template", *flags, "-o", str(path))
    run("study", "create", "sepsis", "--settings", str(path), operator=True)
    settings, privacy = read_settings(path), read_settings(path).privacy
    assert (privacy.masking is not None, privacy.bayesian is not None) == ("--masked" in flags, "--bayesian" in flags)
    assert privacy.rules.levels[0] == ("client" if "--client-level" in flags else "instance")
    assert settings.beyond_bounds is False
    # Every limit lasts for the whole plan, and one of them little longer, by the tightest rule.
    plan = plan_of(settings)
    shares = [account_of(plan, limit).epsilon_at_worst(plan.rounds, 0) / limit.epsilon for limit in plan.limits]
    assert 0.95 < max(shares) <= 1, shares
    unnamed = replace(plan, limits=tuple(replace(limit, enforcement=None) for limit in plan.limits))
    assert tightest(unnamed) == plan
    # As in the file, but for the slots, which the command fills in.
    assert here.operator("GET", "/v1/studies/sepsis").json()["settings_sha256"] == with_slots(settings).digest()
    task = load(settings.training.task, settings.training.task_parameters)
    assert task.model() is not None


@pytest.mark.quick("bayesian-logistic-regression")
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_task_has_a_template(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "study.toml"
    run("study", "template", "--task", name, "-o", str(path))
    training = read_settings(path).training
    assert (training.task, training.task_parameters) == (name, EXAMPLES[name])
    load(name, training.task_parameters)


@pytest.mark.quick("discrete-survival")
@pytest.mark.parametrize("name", BUILT_IN)
def test_an_evaluation_asks_for_what_the_task_predicts(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "study.toml"
    if load(name, EXAMPLES[name]).predicts not in ("classes", "number"):
        said = run("study", "template", "--task", name, "--evaluation", "-o", str(path), code=1).stderr
        assert "no question evaluates" in said
        return
    run("study", "template", "--task", name, "--evaluation", "-o", str(path))
    settings = read_settings(path)
    assert settings.evaluation is not None
    assert settings.evaluation.question is not None
    question = settings.evaluation.question
    require_form(load(name, EXAMPLES[name]), question.of(1))
    assert question.centred == (question.prediction == "number")


def test_a_template_with_synthetic_records_is_a_study_whose_questions_fit(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    run("study", "template", "--statistics", "--masked", "--synthesis", "-o", str(path))
    chosen = read_any_settings(path)
    assert chosen.synthesis is not None
    first = chosen.synthesis.first_question()
    budget = Budget(plan_of(chosen)).supposing(chosen.synthesis.kept_after(first))
    assert budget.authorise_query(first.cost()).is_allowed
    assert "--synthesis goes with --statistics" in run("study", "template", "--synthesis", code=1).stderr


def test_a_template_of_an_unknown_task_names_those_that_there_are(run: Run) -> None:
    said = run("study", "template", "--task", "deep", code=1).stderr
    assert "--task deep" in said
    assert all(name in said.replace("\n", "") for name in ("mlp", "last-layer"))
    assert "--statistics goes with" in run("study", "template", "--task", "mlp", "--statistics", code=1).stderr


@pytest.mark.quick("--client-level")
@pytest.mark.parametrize("flags", REFUSED, ids=" ".join)
def test_what_does_not_go_together_is_refused_with_the_reason(run: Run, tmp_path: Path, flags: tuple[str, ...]) -> None:
    said = run("study", "template", *flags, "-o", str(tmp_path / "study.toml"), code=1).stderr
    assert "--client-level with" in said
    assert not (tmp_path / "study.toml").exists()


@pytest.mark.parametrize("noun", ["study", "policy"])
def test_a_file_that_exists_is_not_overwritten(run: Run, tmp_path: Path, noun: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    assert "mine.toml exists already" in run(noun, "template", "-o", str(path), code=1).stderr
    assert path.read_text() == "mine"


@pytest.mark.parametrize(("noun", "model"), [("study", StudySettings), ("policy", SitePolicy)])
def test_every_entry_is_named_and_described(run: Run, noun: str, model: type[BaseModel]) -> None:
    text, found = run(noun, "template").stdout, entries(model)
    lines = {line.removeprefix("# ").partition(" ")[0].strip("[]:").rpartition(".")[2] for line in text.splitlines()}
    assert {entry.name for entry in found} <= lines
    assert [entry.name for entry in _all(found) if not entry.about] == []
    assert max(len(line) for line in text.splitlines()) <= 120


def _all(found: tuple[SettingsEntry, ...]) -> Iterator[SettingsEntry]:
    for entry in found:
        yield entry
        yield from _all(entry.inner)


def test_the_policy_s_template_is_read_as_it_stands(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    run("policy", "template", "-o", str(path))
    policy = SitePolicy.read(path)
    assert [(limit.level, limit.epsilon) for limit in policy.own_limits()] == [("instance", 8.0)]
    written: dict[str, Any] = tomllib.loads(path.read_text())
    assert set(written) == set(SitePolicy.model_fields)
    # Nothing in it is laxer than a policy without a file.
    assert policy.least_noise_multiplier >= SitePolicy().least_noise_multiplier
    assert policy.largest_epsilon <= SitePolicy().largest_epsilon
    assert {policy.plain_disclosure, policy.unnoised_updates, policy.allow_three} == {False}


def test_the_documents_hold_what_the_commands_print(run: Run) -> None:
    assert (DOCS / "study.toml").read_text() == run("study", "template", "--masked").stdout
    assert (DOCS / "site-policy.toml").read_text() == run("policy", "template").stdout


def abalone() -> Table:
    path = data_folder() / "abalone" / "abalone.data"
    if not path.is_file():
        pytest.skip(f"{path} is missing: set WARDROUND_DATA")
    with path.open() as file:
        rows = list(csv.reader(file))
    names = ("sex", *ABALONE, "los")
    return Table.of({name: [row[k] for row in rows] for k, name in enumerate(names)}, spelling=Spelling("point"))


@pytest.mark.quick("made up-huber", "made up-squared")
@pytest.mark.parametrize("loss", [{"loss": "squared", "delta": None}, {}], ids=["squared", "huber"])
@pytest.mark.parametrize("made", [True, False], ids=["made up", "abalone"])
def test_a_regression_finds_its_numbers_and_does_not_swing(made: bool, loss: dict[str, Any]) -> None:
    """The template's steps with noise of one seed: after twenty every model has half of what least squares explain."""
    values = study_values(task="regression")
    training, privacy = values["training"], values["privacy"]
    parameters = training["task_parameters"] | loss
    own = {name: value for name, value in parameters.items() if not name.startswith("column.")}
    task = load("regression", parameters if made else own | COLUMNS)
    records = made_up(task, 480) if made else abalone()
    x, y = task.inputs(records), task.targets(records)
    patients = privacy["expected_batch_size"] * privacy["expected_clients"] if made else len(x)
    inputs, truth = np.c_[x.numpy(), np.ones(len(x))], y.numpy()
    best = 1 - np.square(truth - inputs @ np.linalg.lstsq(inputs, truth)[0]).mean() / truth.var()
    model, generator = task.model(), torch.Generator().manual_seed(1)
    gradients = PerRecordGradients(model, task.loss)
    # Every hospital adds noise of its own.
    deviation = privacy["noise_multiplier"] * privacy["clip_norm"] * privacy["expected_clients"] ** 0.5
    found: list[float] = []
    for _ in range(privacy["max_steps"]):
        sums = gradients.clipped_sum(x, y, clip_norm=privacy["clip_norm"]).gradients
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = deviation * torch.randn(parameter.shape, generator=generator)
                parameter -= training["optimiser"]["learning_rate"] * (sums[name].to(parameter) + noise) / patients
            found.append(task.metrics(model(x), y)["r2"])
    assert best > 0.5
    assert min(found[20:]) > best / 2, found
