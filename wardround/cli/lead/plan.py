"""The command `wardround plan`: show how a study will run, or find numbers for it, before training starts.

It needs a settings file, or public numbers for `--suggest`. It needs no data, no network and no torch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.lead.enforcement import hint, with_tightest
from wardround.cli.lead.plan_report import (
    note_bounds,
    show_forecast,
    show_notes,
    show_replaced,
    show_signals,
    why_no_round,
    why_unchanged,
)
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.settings_file import changed_settings, read_settings, write_settings
from wardround.cli.shared.shared import AsJson, plain_errors, print_json, say

if TYPE_CHECKING:
    from accounting.budget.forecast import Forecast
    from accounting.plan.signal import SignalToNoise
    from accounting.units import Definition
    from study_protocol.study.settings import StudySettings
    from wardround.cli.lead.suggest import Suggested


class Solve(StrEnum):
    """The number to find. The other numbers stay as they are."""

    NOISE = "noise"
    ROUNDS = "rounds"
    EPSILON = "epsilon"
    ORDER = "order"


class By(StrEnum):
    """The limits that the solution must keep in the worst case."""

    ALL = "all"
    CLASSICAL = "classical"
    BAYESIAN = "bayesian"


SIZES = (100, 300, 1_000, 3_000, 10_000)
SettingsFile = Annotated[
    Path | None, typer.Argument(help="the study's settings, TOML or JSON. Optional with --suggest")
]
SolveFor = Annotated[
    Solve | None,
    typer.Option(
        "--solve",
        help="noise: the least noise that allows all steps of max_steps. rounds: the most rounds at this noise. "
        "epsilon: the least epsilon that allows all steps at this noise. order: the best orders for these settings. "
        "The first three also choose the tightest enforcement and the best orders",
    ),
]
DefinitionChoice = Annotated[
    By, typer.Option("--by", help="with --solve: which limits must allow every round in the worst case")
]
RecordCounts = Annotated[
    list[int] | None, typer.Option("--records", help="records of a hospital, for noise against signal. Repeatable")
]
ParameterCount = Annotated[
    int | None, typer.Option("--parameters", help="parameters of the model, for noise against signal as norms", min=1)
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="write the settings with the solution to this file. An existing file is kept"),
]
Suggest = Annotated[
    bool,
    typer.Option(
        "--suggest",
        help="suggest settings and show the accuracy to expect. Takes the public numbers of a settings file, or "
        "--patients, --hospitals, --columns, --epsilon and --delta",
    ),
]
Patients = Annotated[
    list[int] | None,
    typer.Option(
        "--patients", help="with --suggest: patients of a hospital. Give it once for all, or once for each", min=1
    ),
]
Hospitals = Annotated[int | None, typer.Option(help="with --suggest: number of hospitals that take part", min=2)]
Columns = Annotated[
    int | None,
    typer.Option(help="with --suggest: inputs of the model. A category counts once for each of its values", min=1),
]
Classes = Annotated[int, typer.Option(help="with --suggest: number of values of the label", min=2)]
Epsilon = Annotated[float | None, typer.Option(help="with --suggest: epsilon of the classical limit of a patient")]
Delta = Annotated[float | None, typer.Option(help="with --suggest: delta of the limit")]
SchemeChoice = Annotated[str, typer.Option("--scheme", help="with --suggest: parallel or sequential")]
Masked = Annotated[bool, typer.Option("--masked", help="with --suggest: the coordinator sees only sums")]
Rounds = Annotated[
    int | None, typer.Option(help="with --suggest: use fewer rounds than 100, if each takes long", min=5, max=100)
]
Questions = Annotated[
    float | None,
    typer.Option(help="with --suggest: share of the budget for questions, such as 0.1, which training cannot take"),
]
Commonest = Annotated[
    float | None,
    typer.Option(help="share of the commonest class, if it is known from elsewhere, such as 0.9", min=0.0, max=1.0),
]


def plan(
    settings: SettingsFile = None,
    solve: SolveFor = None,
    by: DefinitionChoice = By.ALL,
    records: RecordCounts = None,
    parameters: ParameterCount = None,
    output: Output = None,
    suggest: Suggest = False,
    patients: Patients = None,
    hospitals: Hospitals = None,
    columns: Columns = None,
    classes: Classes = 2,
    epsilon: Epsilon = None,
    delta: Delta = None,
    scheme: SchemeChoice = "parallel",
    masked: Masked = False,
    rounds: Rounds = None,
    commonest: Commonest = None,
    questions: Questions = None,
    as_json: AsJson = False,
) -> None:
    """Show how many rounds a study's limits allow, what they cost, and how large the noise is.

    --solve finds the noise, rounds, epsilon or orders. --suggest writes whole settings from public numbers, and shows
    the accuracy to expect.
    """
    if suggest:
        numbers = SuggestOptions(patients or [], hospitals, columns, classes, epsilon, delta, scheme, masked)
        if solve is not None:
            raise typer.BadParameter("--suggest finds the noise itself: leave --solve out")
        if output is not None and output.suffix == ".json":
            raise typer.BadParameter("--suggest writes TOML: name a .toml file")
        if questions is not None and not 0 < questions < 1:
            raise typer.BadParameter("--questions: a share above 0 and below 1, such as 0.1")
        with plain_errors():
            require_writable(output)
            suggestion = _suggested(settings, numbers, rounds=rounds, commonest=commonest, questions=questions)
            _show_suggested(suggestion, output, as_json)
    else:
        _plan(settings, solve, by, tuple(records or SIZES), parameters, output, commonest, as_json)


def _plan(
    settings: Path | None,
    solve: Solve | None,
    by: By,
    sizes: tuple[int, ...],
    parameters: int | None,
    output: Path | None,
    commonest: float | None,
    as_json: bool,
) -> None:
    from accounting.budget.forecast import forecast
    from study_protocol.documents.kept_windows import kept_for_windows, kept_in_words
    from study_protocol.study.plan_of import plan_of
    from study_protocol.study.setting_names import naming_settings

    path = _settings_path(settings, solve, sizes, output)
    with plain_errors(), naming_settings():
        require_writable(output)
        study_settings, replaced, reasons = _solved(read_settings(path), solve, by)
        sample = study_settings.privacy.accounting_sample
        outlook = forecast(plan_of(study_settings), records=None if sample is None else sample.records)
        reasons += filter(None, [hint(outlook.plan, outlook)])
        if solve is not None and not replaced:
            reasons.append(why_unchanged(solve, outlook))
        signals, kept_windows = _signals(study_settings, outlook, sizes), kept_for_windows(study_settings)
        if output is not None:
            write_settings(path, output, study_settings, replaced)
    if as_json:
        values = outlook.to_dict() | {"noise_against_signal": [signal.to_dict() for signal in signals]}
        print_json(values | {"settings": replaced, "kept_for_windows": [asdict(window) for window in kept_windows]})
    else:
        show_forecast(outlook)
        for line in kept_in_words(study_settings):
            say(line)
        show_signals(signals, parameters, study_settings, outlook)
        show_replaced(replaced, output)
    show_notes(study_settings, outlook, reasons)
    _accuracy(study_settings, commonest, outlook.rounds)
    if outlook.rounds == 0:
        say(f"no round can begin: {why_no_round(outlook)}", err=True)
        raise typer.Exit(1)


def _settings_path(settings: Path | None, solve: Solve | None, sizes: tuple[int, ...], output: Path | None) -> Path:
    """Return the settings file, of options that fit together."""
    if settings is None:
        raise typer.BadParameter("name the settings file, or use --suggest, which needs only public numbers")
    if output is not None and solve is None:
        raise typer.BadParameter("-o writes what --solve finds: say what to solve for")
    if min(sizes) < 1:
        raise typer.BadParameter("a hospital has at least one record", param_hint="--records")
    return settings


@dataclass(frozen=True)
class SuggestOptions:
    """The options that --suggest takes instead of a settings file, with their defaults."""

    patients: list[int] = field(default_factory=list[int])
    hospitals: int | None = None
    columns: int | None = None
    classes: int = 2
    epsilon: float | None = None
    delta: float | None = None
    scheme: str = "parallel"
    masked: bool = False


def _suggested(settings: Path | None, numbers: SuggestOptions, **chosen: Any) -> Suggested:
    """Return the suggestion from the file or from the numbers. Raises ConfigurationError: too few numbers."""
    from client_sdk.errors import ConfigurationError
    from wardround.cli.lead.suggest import begun, suggested, with_masks

    if settings is None:
        if not numbers.patients or None in asdict(numbers).values():
            raise ConfigurationError(
                "--suggest needs a settings file, or --patients, --hospitals, --columns, --epsilon and --delta"
            )
        values = begun(**asdict(numbers))
    elif replace(numbers, patients=[], masked=False) == SuggestOptions():
        values = read_settings(settings).as_json()
        values = with_masks(values) if numbers.masked else values
    else:
        raise ConfigurationError(
            "beside a settings file --suggest takes only --patients, --masked, --rounds, --commonest and --questions: "
            "write the other numbers into the file"
        )
    return suggested(values, patients=numbers.patients, **chosen)


def _show_suggested(suggestion: Suggested, output: Path | None, as_json: bool) -> None:
    from wardround.cli.lead.forecast_in_words import in_words, loose_delta, placeholders, warnings
    from wardround.cli.lead.suggest import as_json as as_values
    from wardround.cli.lead.templates import hand_out, study_text

    if as_json:
        print_json(as_values(suggestion))
    if output is not None or not as_json:
        hand_out(study_text(suggestion.settings.as_json()), output)
    accuracy = (*in_words(suggestion.forecast), *placeholders(suggestion.settings), *warnings(suggestion.forecast))
    for line in (*suggestion.reasons, *loose_delta(suggestion.settings), *accuracy):
        say(line, err=True)
    note_bounds(suggestion.settings)


def _accuracy(settings: StudySettings, commonest: float | None, rounds: int) -> None:
    """Print the accuracy to expect of the settings, if it is known."""
    from wardround.cli.lead.forecast_in_words import in_words, loose_delta, placeholders, warnings
    from wardround.cli.lead.suggest import expected

    for line in loose_delta(settings):
        say(line, err=True)
    outlook = expected(settings, commonest, rounds)
    if outlook is not None:
        remarks = (f"warning: {remark}" for remark in outlook[1])
        for line in (*in_words(outlook[0]), *placeholders(settings), *remarks, *warnings(outlook[0])):
            say(line, err=True)


def _solved(settings: StudySettings, solve: Solve | None, by: By) -> tuple[StudySettings, dict[str, Any], list[str]]:
    """Return the settings with the solution, what it replaces, and why limits are kept so. None: not solved."""
    from accounting.budget import solve as search
    from accounting.units import Definition
    from client_sdk.errors import ConfigurationError
    from study_protocol.study.plan_of import plan_of

    if solve is None:
        return settings, {}, []
    before = plan_of(settings)
    present = {limit.definition for limit in before.limits}
    definitions: set[Definition] = present if by is By.ALL else {Definition(by.value)}
    if not definitions <= present:
        raise ConfigurationError(f"--by {by}: the settings have no {by} limit")
    searches = {Solve.NOISE: search.least_noise, Solve.ROUNDS: search.most_rounds, Solve.EPSILON: search.least_epsilon}
    if solve is Solve.ORDER:
        return *changed_settings(settings, search.best_orders(before)), []
    # Limits without a rule get the tightest one. Their orders alone are looked for where the rule is to stay.
    tightest_plan, reasons = with_tightest(before)
    return *changed_settings(settings, searches[solve](tightest_plan, definitions)), reasons


def _signals(settings: StudySettings, outlook: Forecast, sizes: tuple[int, ...]) -> list[SignalToNoise]:
    from accounting.plan.signal import signal_to_noise

    privacy = settings.privacy
    # If hospitals are sampled, as many as the study expects. One row is enough if their size does not matter.
    expected = privacy.expected_clients
    return [
        signal_to_noise(outlook.plan, size, hospitals=expected, rounds=outlook.rounds, sum_radius=settings.sum_radius)
        for size in (sizes[:1] if privacy.rules.clips_updates else sizes)
    ]
