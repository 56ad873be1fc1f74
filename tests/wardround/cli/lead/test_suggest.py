"""`wardround plan --suggest`: whole settings from public numbers, and what is said of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.forecast import forecast
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.factories.commands import Run, write_settings
from tests.factories.live_coordinator import Live
from tests.factories.settings import limit
from wardround.cli.lead.suggest import PLACEHOLDER
from wardround.cli.shared.settings_file import read_settings

PUBLIC = ("--patients", "120", "--hospitals", "4", "--columns", "10", "--epsilon", "2", "--delta", "1e-5")


def suggested(run: Run, tmp_path: Path, *more: str) -> StudySettings:
    path = tmp_path / "suggested.toml"
    run("plan", "--suggest", *PUBLIC, *more, "-o", str(path))
    return read_settings(path)


@pytest.mark.quick("fewer rounds of five classes")
@pytest.mark.parametrize(
    ("more", "counted"),
    [((), 1), (("--masked",), 1), (("--scheme", "sequential"), 3), (("--classes", "5", "--rounds", "30"), 1)],
    ids=["parallel", "masked", "sequential", "fewer rounds of five classes"],
)
def test_all_rounds_fit_the_limit_with_the_least_noise(
    run: Run, tmp_path: Path, more: tuple[str, ...], counted: int
) -> None:
    found = suggested(run, tmp_path, *more)
    plan = plan_of(found)
    assert plan.honest_survivors == counted
    fits = forecast(plan)
    assert fits.rounds == plan.rounds == (30 if "--rounds" in more else 100)
    assert fits.limits[0].enforced <= 2.0
    # Four digits, rounded up: 0.3 % less is too little.
    short = replace(plan, noise_multiplier=plan.noise_multiplier * 0.997)
    assert forecast(short, tight=False).rounds < plan.rounds


def test_questions_have_a_share_that_training_cannot_take(run: Run, tmp_path: Path) -> None:
    """All records in every round: squares add, so that a tenth of the budget is a tenth of the steps."""
    path = tmp_path / "asking.toml"
    said = run("plan", "--suggest", *PUBLIC, "--questions", "0.1", "-o", str(path)).output
    found, alone = read_settings(path), suggested(run, tmp_path)
    assert found.statistics is not None
    assert (found.statistics.share, found.privacy.limits[0].enforcement) == (0.1, "fixed-plan")
    ratio = found.privacy.noise_multiplier / alone.privacy.noise_multiplier
    assert ratio == pytest.approx(0.9**-0.5, rel=2e-3)
    assert f"noise multiplier {found.privacy.noise_multiplier:.4g}, and {alone.privacy.noise_multiplier:.4g}" in said
    assert forecast(plan_of(found)).rounds == 100
    for wrong in ("0", "1", "-0.1"):
        refused = run("plan", "--suggest", *PUBLIC, "--questions", wrong, code=2).output
        assert "a share above 0 and below 1" in " ".join(refused.replace("│", " ").split())


def test_a_file_that_was_suggested_before_there_was_a_choice_keeps_its_numbers(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "suggested.toml"
    run("plan", "--suggest", *PUBLIC, "-o", str(path))
    # What the same command wrote then, and what `plan` stated of it.
    old = re.sub(r'^enforcement = "gaussian-filter"\n', "", path.read_text(), flags=re.M)
    old = re.sub(r"^noise_multiplier = .*$", "noise_multiplier = 21.5", old, flags=re.M)
    path.write_text(re.sub(r"^classical_order = .*$", "classical_order = 9.2", old, flags=re.M))
    (found,) = json.loads(run("plan", str(path), "--json").stdout)["limits"]
    assert (found["rounds"], found["order"]) == (100, 9.2)
    assert found["enforced"] == pytest.approx(1.9990863394391263, rel=1e-12)
    assert found["reports"][0]["epsilon"] == pytest.approx(1.8386550805980866, rel=1e-9)


def test_every_number_of_training_is_there_and_the_public_ones_are_kept(run: Run, tmp_path: Path) -> None:
    found = suggested(run, tmp_path, "--patients", "40", "--patients", "60", "--patients", "260")
    privacy = found.privacy
    assert (privacy.expected_batch_size, privacy.expected_clients, privacy.sampling_rate) == (120.0, 4.0, 1.0)
    # The largest hospital's sum is not cut short.
    assert found.sum_radius == 260 * privacy.clip_norm
    assert found.training.optimiser.averaging is not None
    assert len([name for name in found.training.task_parameters if name.startswith("column.")]) == 10
    assert not found.beyond_bounds


def test_masks_are_added_to_a_file_as_to_numbers(run: Run, tmp_path: Path) -> None:
    numbers = suggested(run, tmp_path, "--masked")
    plain, masked = tmp_path / "plain.toml", tmp_path / "masked.toml"
    run("plan", "--suggest", *PUBLIC, "-o", str(plain))
    run("plan", str(plain), "--suggest", "--masked", "-o", str(masked))
    assert read_settings(masked) == numbers
    # Masks that a person chose stay.
    chosen = tmp_path / "chosen.toml"
    chosen.write_text(masked.read_text().replace("step_deadline_seconds = 60.0", "step_deadline_seconds = 90.0"))
    run("plan", str(chosen), "--suggest", "--masked", "-o", str(tmp_path / "kept.toml"))
    kept = read_settings(tmp_path / "kept.toml").privacy.masking
    assert kept is not None
    assert kept.step_deadline_seconds == 90.0


def test_a_settings_file_says_the_public_numbers_itself(run: Run, tmp_path: Path) -> None:
    path = write_settings(
        tmp_path / "study.json",
        bayesian=False,
        limits=[limit("instance", epsilon=2.0)],
        expected_clients=4.0,
        sampling_rate=0.5,
        expected_batch_size=60.0,
    )
    printed = json.loads(run("plan", str(path), "--suggest", "--json").stdout)
    found = StudySettings.model_validate_json(json.dumps(printed["settings"]))
    before = read_settings(path)
    assert found.training.task_parameters == before.training.task_parameters
    (kept,), (named,) = before.privacy.limits, found.privacy.limits
    assert named == kept.model_copy(update={"enforcement": "gaussian-filter"})
    assert (found.privacy.expected_batch_size, found.privacy.max_steps) == (120.0, 100)
    assert 0 < printed["accuracy"]["lost"] < printed["accuracy"]["lost_at_most"] < 1


@pytest.mark.quick("arguments0-needs a settings file")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "needs a settings file"),
        (("--patients", "100", "--hospitals", "4"), "needs a settings file"),
        ((*PUBLIC, "--scheme", "client"), "no settings are suggested for scheme client"),
        ((*PUBLIC, "--patients", "3"), "once for each hospital"),
        ((*PUBLIC, "--columns", "5000"), "from 1 to 1,000"),
        ((*PUBLIC, "--epsilon", "-1"), "limits"),
        ((*PUBLIC, "--commonest", "0.3"), "of 2 classes has at least 0.5 of the patients"),
        ((*PUBLIC, "--epsilon", "0.01"), "would be no better than guessing"),
    ],
)
def test_what_cannot_be_suggested_is_one_line(run: Run, arguments: tuple[str, ...], why: str) -> None:
    said = " ".join(run("plan", "--suggest", *arguments, code=1).stderr.split())
    assert why in said
    assert "Traceback" not in said


RANGES = {"label": "ill", "column.age": "18..90; increasing", "column.chol": "100..400; missing=240"}


@pytest.mark.parametrize(("patients", "offered"), [("500", False), ("20000", True)])
def test_curves_are_offered_where_public_numbers_say_so(run: Run, tmp_path: Path, patients: str, offered: bool) -> None:
    def asked(task: str, parameters: dict[str, Any]) -> tuple[StudySettings, str]:
        path = write_settings(
            tmp_path / f"{task}.json", training={"task": task, "task_parameters": parameters}, bayesian=False
        )
        said = run("plan", str(path), "--suggest", "--patients", patients, "-o", str(tmp_path / f"{task}.toml")).stderr
        return read_settings(tmp_path / f"{task}.toml"), " ".join(said.split())

    plain = {name: text.replace("; increasing", "") for name, text in RANGES.items()}
    linear, said_of_linear = asked("logistic-regression", plain)
    curves, said_of_curves = asked("additive", RANGES | {"bins": 20})
    assert ("task additive was as accurate or better" in said_of_linear) == offered
    assert ("task additive was measured to lose" in said_of_curves) == (not offered)
    # The same columns: the same forecast and the same noise.
    assert said_of_curves.partition("accuracy: ")[2] == said_of_linear.partition("accuracy: ")[2]
    assert curves.privacy.noise_multiplier == linear.privacy.noise_multiplier
    assert curves.training.optimiser.learning_rate != linear.training.optimiser.learning_rate
    assert curves.training.task_parameters["column.age"] == "18..90; increasing"


def test_a_study_of_another_kind_is_told_so(run: Run, tmp_path: Path) -> None:
    weighted = {"task_parameters": {"label": "ill", "column.age": "0..9", "class-weights": "1|2"}}
    for name, training in (("task", {"task": "mlp"}), ("clipping", {"clipping": "per-layer"}), ("loss", weighted)):
        path = write_settings(tmp_path / f"{name}.json", training=training)
        assert "no settings are suggested for" in run("plan", str(path), "--suggest", code=1).stderr


@pytest.mark.parametrize(
    ("more", "why"),
    [(("--epsilon", "50"), "epsilon, 50, is above"), (("--delta", "0.1"), "delta, 0.1, is above"), ((), "")],
)
def test_a_guarantee_that_says_next_to_nothing_is_not_suggested_in_silence(
    run: Run, more: tuple[str, ...], why: str
) -> None:
    said = " ".join(run("plan", "--suggest", *PUBLIC, *more).stderr.split())
    assert ("refuses these settings without --i-know" in said) == bool(why)
    assert why in said


def test_rounds_that_the_budget_does_not_allow_average_no_noise_away(run: Run, tmp_path: Path) -> None:
    whole = json.loads(json.dumps(suggested(run, tmp_path).as_json()))
    # A fifth of the noise ends the study after about a twenty-fifth of the rounds.
    whole["privacy"]["noise_multiplier"] /= 5
    path, shorter = tmp_path / "loud.json", tmp_path / "shorter.json"
    path.write_text(json.dumps(whole))
    allowed = json.loads(run("plan", str(path), "--json").stdout)["rounds"]
    assert 1 <= allowed < 10
    whole["privacy"]["max_steps"] = allowed
    shorter.write_text(json.dumps(whole))
    first, second = (
        next(line for line in _said_lines(run, each) if "expect to lose" in line) for each in (path, shorter)
    )
    assert first == second


def test_a_delta_that_gives_patients_away_is_warned_of(run: Run) -> None:
    for delta, patients, warned in (("1e-3", "300", True), ("1e-3", "200", False), ("1e-5", "300", False)):
        asked = ("--patients", patients, "--hospitals", "4", "--columns", "10", "--epsilon", "2", "--delta", delta)
        said = " ".join(run("plan", "--suggest", *asked).stderr.split())
        assert ("records of one patient in 1,000" in said) == warned


def test_a_file_that_exists_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "suggested.toml"
    path.write_text("mine")
    run("plan", "--suggest", *PUBLIC, "-o", str(path), code=1)
    assert path.read_text() == "mine"


def _said_lines(run: Run, path: Path) -> list[str]:
    return run("plan", str(path)).stderr.replace("\n  ", " ").splitlines()


def _said(run: Run, path: Path, *more: str) -> str:
    return " ".join(run("plan", str(path), *more).stderr.split())


def test_what_is_suggested_is_forecast_alike_when_it_is_planned_with(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "suggested.toml"
    first = " ".join(run("plan", "--suggest", *PUBLIC, "--commonest", "0.5", "-o", str(path)).stderr.split())
    second = _said(run, path, "--commonest", "0.5")
    assert "expect to lose" in first
    why, accuracy = first.split("accuracy:", 1)
    assert 'enforcement = "gaussian-filter", because all records are in every round' in why
    assert accuracy in second
    assert "the learning rate" not in second


@pytest.mark.slow
def test_a_guess_by_hand_is_warned_of_before_the_study_is_created(here: Live, run: Run, tmp_path: Path) -> None:
    path, guess = tmp_path / "suggested.toml", tmp_path / "guess.json"
    run("plan", "--suggest", *PUBLIC, "-o", str(path))
    values: dict[str, Any] = read_settings(path).as_json()
    values["training"]["optimiser"]["learning_rate"] = 0.05
    guess.write_text(json.dumps(values))
    planned = _said(run, guess)
    assert "the learning rate 0.05 is much smaller than" in planned
    created = run("study", "create", "guessed", "--settings", str(guess), operator=True).stderr
    assert "the learning rate 0.05 is much smaller than" in " ".join(created.split())


@pytest.mark.slow
def test_studies_that_were_not_measured_are_forecast_nothing(run: Run, tmp_path: Path) -> None:
    for training in ({"task": "mlp"}, {"optimiser": {"name": "adam"}}, {"algorithm": "fedavg", "local_steps": 2}):
        path = write_settings(tmp_path / "study.json", training=training, max_steps=4)
        assert "expect to lose" not in run("plan", str(path)).stderr


def test_placeholders_are_forecast_as_if_they_were_described_well(run: Run, tmp_path: Path) -> None:
    """What is promised for them is warned of until they are replaced, and then as for other ranges."""
    path = tmp_path / "study.toml"
    first = run("plan", "--suggest", *PUBLIC, "--commonest", "0.5", "-o", str(path)).stderr
    assert "not sure" not in first
    assert "the placeholder columns have a typical range" in " ".join(first.split())
    path.write_text(path.read_text().replace(PLACEHOLDER, PLACEHOLDER.split(";")[0]))
    second = run("plan", str(path), "--commonest", "0.5").stderr
    assert "not sure" in second
    assert "placeholder" not in second
