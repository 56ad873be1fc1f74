"""The option `wardround simulate --search`: a few changes of the settings under the same limits, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from client_sdk.errors import ConfigurationError
from wardround.cli.shared.shared import print_json, say, table

if TYPE_CHECKING:
    from simulation.results.report import SeedSpread, SimulationReport
    from simulation.runs import Simulation
    from study_protocol.study.settings import StudySettings

AS_WRITTEN, TOGETHER = "as written", "the best of each"
PROMISE = (
    "these records show the order of settings. Other records can order close ones otherwise, and a difference within "
    "the spread of the seeds says nothing"
)
_HIGHER_IS_WORSE = ("rmse", "loss")
# Of the clip norm, the learning rate, the number of steps and the batch.
_CLIPS, _RATES, _STEPS, _BATCHES = (0.5, 2.0), (1 / 3, 3.0), (0.5, 2.0), (0.5, 2.0)
_Change = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class SearchTrial:
    """One choice of settings. value: the metric over the seeds, None where a seed released no model."""

    name: str
    settings: StudySettings
    metric: str | None
    value: SeedSpread | None


def search(simulation: Simulation, run: Callable[[Simulation], SimulationReport], *, as_json: bool) -> None:
    """Try the settings and single changes of them, then the best change of each kind together, and print the order.

    Raises:
        ConfigurationError: no choice released a model with a metric.
    """
    from wardround.cli.lead.templates import study_text

    trials = sorted(_trials(simulation, run), key=_rank)
    best = trials[0]
    if best.value is None:
        raise ConfigurationError("no settings of the search released a model that could be measured")
    if as_json:
        order = [_to_dict(trial) for trial in trials]
        print_json({"order": order, "best": best.settings.as_json(), "remark": PROMISE})
        return
    rows = [[str(place), trial.name, _spread(trial.value)] for place, trial in enumerate(trials, start=1)]
    table(f"Settings in order, by {best.metric}", ["", "settings", best.metric or ""], rows)
    say(PROMISE)
    say(f"# Best of the search: {best.name}. {PROMISE[0].upper()}{PROMISE[1:]}.")
    say(study_text(best.settings.as_json()))


def _trials(simulation: Simulation, run: Callable[[Simulation], SimulationReport]) -> list[SearchTrial]:
    """Try the settings as written first, then each change alone, and the best change of each kind together last."""
    as_written = _trial(simulation, run, AS_WRITTEN, simulation.settings)
    trials, best_changes = [as_written], list[_Change]()
    for changes in _changes(simulation.settings):
        best, best_change = as_written, None
        for name, change in changes:
            trial = _changed(simulation, run, name, [change])
            if trial is None:
                continue
            trials.append(trial)
            if _rank(trial) < _rank(best):
                best, best_change = trial, change
        best_changes += [] if best_change is None else [best_change]
    if len(best_changes) > 1 and (together := _changed(simulation, run, TOGETHER, best_changes)) is not None:
        trials.append(together)
    return trials


def _trial(
    simulation: Simulation, run: Callable[[Simulation], SimulationReport], name: str, settings: StudySettings
) -> SearchTrial:
    say(f"tried: {name}", err=True)
    report = run(replace(simulation, settings=settings, compares=False, checkpoints=None))
    return SearchTrial(name, settings, report.metric, report.reached)


def _changed(
    simulation: Simulation, run: Callable[[Simulation], SimulationReport], name: str, changes: list[_Change]
) -> SearchTrial | None:
    """Return the settings after these changes, with the least noise for their limits. None: no study can have them."""
    from accounting.budget.solve import least_noise
    from accounting.errors import AccountingError
    from client_sdk.errors import WardroundError
    from study_protocol.study.plan_of import plan_of
    from wardround.cli.lead.suggest import as_settings
    from wardround.cli.shared.settings_file import changed_settings

    values = simulation.settings.as_json()
    for change in changes:
        change(values)
    try:
        settings = as_settings(values)
        settings = changed_settings(settings, least_noise(plan_of(settings)))[0]
    except (AccountingError, WardroundError) as error:
        say(f"left out: {name}, {error}", err=True)
        return None
    return _trial(simulation, run, name, settings)


def _changes(settings: StudySettings) -> Iterator[list[tuple[str, _Change]]]:
    """Yield the changes of one kind, each with its name."""
    privacy, optimiser = settings.privacy, settings.training.optimiser
    if privacy.adaptive_clip is None:
        yield [(f"clip norm {privacy.clip_norm * factor:.3g}", _clip(factor)) for factor in _CLIPS]
    yield [(f"learning rate {optimiser.learning_rate * factor:.3g}", _rate(factor)) for factor in _RATES]
    yield [
        (f"{steps} steps", _put("max_steps", steps))
        for factor in _STEPS
        if (steps := max(round(privacy.max_steps * factor), 1)) != privacy.max_steps
    ]
    yield [
        (f"batches of {100 * rate:.3g} % of the patients", _batch(factor))
        for factor in _BATCHES
        if (rate := privacy.sampling_rate * factor) <= 1
    ]


def _put(name: str, value: float) -> _Change:
    def change(values: dict[str, Any]) -> None:
        values["privacy"][name] = value

    return change


def _clip(factor: float) -> _Change:
    def change(values: dict[str, Any]) -> None:
        values["privacy"]["clip_norm"] *= factor
        robustness: dict[str, Any] = values.get("robustness") or {}
        if robustness.get("sum_radius") is not None:
            robustness["sum_radius"] *= factor

    return change


def _rate(factor: float) -> _Change:
    def change(values: dict[str, Any]) -> None:
        values["training"]["optimiser"]["learning_rate"] *= factor

    return change


def _batch(factor: float) -> _Change:
    def change(values: dict[str, Any]) -> None:
        for name in ("sampling_rate", "expected_batch_size"):
            values["privacy"][name] *= factor

    return change


def _rank(trial: SearchTrial) -> float:
    """Return a number that is smallest for the best settings."""
    if trial.value is None:
        return float("inf")
    return trial.value.mean if trial.metric in _HIGHER_IS_WORSE else -trial.value.mean


def _to_dict(trial: SearchTrial) -> dict[str, Any]:
    reached = None if trial.value is None else trial.value.to_dict()
    return {"name": trial.name, "metric": trial.metric, "reached": reached}


def _spread(value: SeedSpread | None) -> str:
    if value is None:
        return "no model"
    return f"{value.mean:.3f}" if value.deviation is None else f"{value.mean:.3f} ± {value.deviation:.3f}"
