"""The command `wardround try`: from a hospital's table to the accuracy that a study would reach."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.hospital.columns import (
    WARNING,
    Force,
    LeaveOut,
    NamesOnly,
    Patient,
    RecordsFile,
    known_column,
    read_table,
    require_inputs,
    show_remarks,
    write_whole,
)
from wardround.cli.hospital.hospital import Dates, Decimal, Encoding, Separator
from wardround.cli.hospital.mapping import ColumnsFile
from wardround.cli.hospital.named_records import named_records
from wardround.cli.hospital.table_format import FormatOptions
from wardround.cli.researcher.rehearsal import format_of, say_if_synthetic
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import AsJson, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from client_sdk.study.guessed_columns import GuessedColumns
    from client_sdk.study.guessed_label import GuessedTask
    from private_learning.records import Table
    from simulation.results.report import SeedSpread
    from simulation.trial import Trial, TrialResult
    from wardround.cli.researcher.trial_settings import TrialSettings

Label = Annotated[
    list[str], typer.Option("--label", help="column to be predicted. Several: labels that are each yes or no")
]
Event = Annotated[
    str | None, typer.Option("--event", help="column that says whether the time in --label ended with the event")
]
Keep = Annotated[
    list[str], typer.Option("--keep", help="column that stays although it nearly tells the label. Repeatable")
]
TaskName = Annotated[
    str | None, typer.Option("--task", help="logistic-regression, mlp, regression, discrete-survival or multi-label")
]
Hospitals = Annotated[int, typer.Option(help="hospitals of the study", min=3, max=50)]
Epsilon = Annotated[float, typer.Option(help="ε of the study for every patient", min=0.05, max=50.0)]
Seconds = Annotated[float, typer.Option(help="no further seed begins when it would end later than this", min=1.0)]
Output = Annotated[Path, typer.Option("--output", "-o", help="settings file to write")]

_MIN_SEEDS, _MAX_SEEDS, _TEST_SHARE, _MAX_ROWS_PER_PATIENT = 3, 10, 0.2, 5
# Patients of a simulation, at least where the table has more. Numbers of the encoded table, at most before it is timed.
_FEW_PATIENTS, _MAX_CELLS = 1_000, 2_000_000
_INTERRUPTED = 130
_HIGHER_IS_WORSE = ("rmse",)


def try_study(
    records: RecordsFile,
    label: Label,
    event: Event = None,
    task: TaskName = None,
    patient: Patient = None,
    leave_out: LeaveOut = [],  # noqa: B006 (typer reads the default and copies it)
    keep: Keep = [],  # noqa: B006
    hospitals: Hospitals = 4,
    epsilon: Epsilon = 2.0,
    seconds: Seconds = 80.0,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    columns: ColumnsFile = None,
    output: Output = Path("study.toml"),
    names_only: NamesOnly = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Try a study on this hospital's table: guess settings, simulate several hospitals, show the accuracy to expect.

    All data stays on this machine. The settings are written to a file for the study lead.
    """
    begun = time.monotonic()
    with plain_errors():
        require_writable(output, replaces=force)
        source = named_records(records, patient)
        options = format_of([source.path], FormatOptions(separator, encoding, decimal, dates))
        read = read_table(source.path, options, source.patient_column, leave_out, columns)
        say_if_synthetic([source.path])
        guessed, guessed_task = _guess(read, label, event, task, leave_out, keep)
        if not as_json:
            say(f"assumed: {guessed_task.words}")
            show_remarks(guessed)
        people = len(set(guessed.table.patients))
        rows = _rows_per_patient(guessed.table)
        settings = _settings(guessed, guessed_task, hospitals, epsilon, people, rows)
        trial, seeds = _run(guessed.table, settings, begun + seconds)
        write_whole(output, settings.text(_two_digits(people), guessed_task, names_only=names_only))
        helps = _what_helps(settings, people)
        if as_json:
            print_json(_as_json(trial, seeds, guessed, guessed_task, helps, output))
        else:
            _show(trial, seeds, epsilon, helps)
            _show_file(output, names_only=names_only)


def _guess(
    read: Table, label: list[str], event: str | None, task: str | None, leave_out: list[str], keep: list[str]
) -> tuple[GuessedColumns, GuessedTask]:
    """Return inputs and task, with the records that have a label. Raises ConfigurationError: they are hopeless."""
    from dataclasses import replace

    from client_sdk.errors import ConfigurationError
    from client_sdk.study.guessed_columns import guess_columns
    from client_sdk.study.guessed_label import giveaways, guess_task

    guessed_task = guess_task(read, label, event, task)
    left_out, inputs = _named_columns(read, guessed_task, leave_out, keep)
    usable = read.take(guessed_task.rows)
    if len(usable) < len(read):
        say(f"note: {len(read) - len(usable):,} of {len(read):,} rows have no usable label and are left out", err=True)
    guessed = guess_columns(usable, guessed_task.targets, left_out, inputs)
    for name in inputs:
        if name in guessed.left_out:
            raise ConfigurationError(f"--keep {name}: it cannot be an input ({guessed.left_out[name]})")
    candidates = {name: text for name, text in guessed.lines.items() if name not in inputs}
    leaks = giveaways(candidates, guessed.table, guessed_task)
    lines = {name: text for name, text in guessed.lines.items() if name not in leaks}
    guessed = replace(guessed, lines=lines, left_out={**guessed.left_out, **leaks})
    require_inputs(guessed.lines, guessed.left_out)
    return guessed, guessed_task


def _named_columns(
    read: Table, guessed_task: GuessedTask, leave_out: list[str], keep: list[str]
) -> tuple[list[str], list[str]]:
    """Return columns that a person leaves out and keeps. Raises ConfigurationError: a column lacks or stands twice."""
    from client_sdk.errors import ConfigurationError

    left_out = [known_column(read, name) for name in leave_out]
    inputs = [known_column(read, name) for name in keep]
    if clashes := sorted({*inputs} & {*left_out, *guessed_task.targets}):
        raise ConfigurationError(f"--keep {clashes[0]}: the column is also left out or predicted. Name it once")
    return left_out, inputs


def _rows_per_patient(records: Table) -> int:
    """Return how many rows of a patient are used: as many as 95 % of the patients have, at most 5."""
    import numpy as np

    from client_sdk.study.guessed_columns import people_of

    counts = np.bincount(people_of(records))
    has_several = int(counts.max()) > 1
    return min(max(int(np.quantile(counts, 0.95)), 2), _MAX_ROWS_PER_PATIENT) if has_several else 1


def _settings(
    guessed: GuessedColumns, task: GuessedTask, hospitals: int, epsilon: float, people: int, rows: int
) -> TrialSettings:
    from client_sdk.errors import ConfigurationError
    from wardround.cli.researcher.trial_settings import TrialSettings

    if people * (1 - _TEST_SHARE) < 5 * hospitals:
        raise ConfigurationError(f"{people} patients cannot be dealt out to {hospitals} hospitals: ask for fewer")
    return TrialSettings.of(task, guessed, hospitals, epsilon, people, rows)


def _run(records: Table, settings: TrialSettings, end: float) -> tuple[Trial, int]:
    """Run seeds until the time is over, with a progress bar. After Ctrl-C, return what is done.

    Raises:
        Exit: it was stopped in the first seed.
    """
    import logging

    from rich.console import Console
    from rich.progress import Progress

    for name in ("study_protocol.randomness.source", "private_learning.tasks.dataset"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        trial, seeds = _planned(records, settings, end)
    except KeyboardInterrupt:
        raise _stopped() from None
    seed, longest, spare = 0, 0.0, 0.35 * (end - time.monotonic())
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("simulated", total=None)
        # A seed that takes longer than it seemed may still be needed for a spread.
        while seed < seeds and (seed == 0 or time.monotonic() + longest <= end + (spare if seed < _MIN_SEEDS else 0)):
            before = time.monotonic()
            description = f"seed {seed + 1} of {seeds}"
            progress.update(bar, description=description, completed=0, total=2 * settings.of_size(1000).rounds)
            try:
                trial.run(seed, lambda _: progress.update(bar, advance=1))
            except KeyboardInterrupt:
                if seed:
                    break
                raise _stopped() from None
            seed, longest = seed + 1, max(longest, time.monotonic() - before)
    return trial, seed


def _stopped() -> typer.Exit:
    say("stopped: nothing was written", err=True)
    return typer.Exit(_INTERRUPTED)


def _planned(records: Table, settings: TrialSettings, end: float) -> tuple[Trial, int]:
    """Return a trial and its number of seeds, so that 3 end in time: of fewer patients if need be."""
    people = len(set(records.patients))
    limit = min(people, max(_MAX_CELLS // settings.width, _FEW_PATIENTS))
    while True:
        trial = _trial_of(_narrowed(records, limit), settings)
        each = trial.seconds()
        affordable = int((end - time.monotonic()) / each)
        if affordable >= _MIN_SEEDS or limit <= _FEW_PATIENTS:
            break
        # Rather too few than to time a third size.
        limit = max(int(0.8 * limit * max(affordable, 0.5) / _MIN_SEEDS), _FEW_PATIENTS)
    if limit < people:
        say(f"note: {limit:,} of {people:,} patients are simulated, so noise weighs more than in the study", err=True)
    if settings.rows > 1:
        more = f"In the study it is up to {settings.rows}, which is no worse"
        say(f"note: of each patient one row is trained on. {more}", err=True)
    return trial, min(max(affordable, 1), _MAX_SEEDS)


def _trial_of(records: Table, settings: TrialSettings) -> Trial:
    from dataclasses import replace
    from functools import cache

    from simulation.backends.choice import quickest
    from simulation.records import Dealer, HowSplit, Source
    from simulation.trial import Trial

    dealer = Dealer(Source((records,), None, None), HowSplit("iid"), settings.hospitals, _TEST_SHARE)
    return Trial(dealer, cache(replace(settings, rows=1).of_size), quickest, settings.rows)


def _narrowed(records: Table, limit: int) -> Table:
    import numpy as np

    patients = list(dict.fromkeys(records.patients))
    if len(patients) <= limit:
        return records
    places: list[int] = np.random.default_rng(1).permutation(len(patients))[:limit].tolist()
    sample = {patients[place] for place in places}
    return records.take([row for row, name in enumerate(records.patients) if name in sample])


def _what_helps(settings: TrialSettings, patients: int) -> list[str]:
    """Return what would lose less, by the forecast of `plan --suggest`. Empty where it was not measured."""
    now = settings.with_forecast(patients)[1]
    if now is None:
        return []
    hospitals, epsilon = 2 * settings.hospitals, 2 * settings.epsilon
    changes = {
        f"{hospitals} hospitals": settings.with_forecast(patients, hospitals=hospitals)[1],
        f"ε {epsilon:g}": settings.with_forecast(patients, epsilon=epsilon)[1],
    }
    if (halved := settings.halved()) != settings:
        changes["half of the columns, if they say as much"] = halved.with_forecast(patients)[1]
    lost = ", ".join(f"with {name} {100 * each.lost:.1f}" for name, each in changes.items() if each is not None)
    return [f"forecast for hospitals of your size: noise costs {100 * now.lost:.1f} points of accuracy, {lost}"]


def _show(trial: Trial, seeds: int, epsilon: float, helps: list[str]) -> None:
    from simulation.trial import STUDY

    dealt, whole = trial.dealt_out, trial.of_this_size
    assert dealt is not None
    assert whole is not None
    if not whole.metrics:
        say(f"no model was released, or it has no metric ({', '.join(whole.measured[STUDY][0]) or 'none'})")
        return
    heads = ["", *(f"{each.hospitals} hospitals of {each.patients:,} patients" for each in (dealt, whole))]
    seed_count = f"{seeds} seeds" if seeds > 1 else "1 seed"
    for metric in whole.metrics:
        table(f"{metric} on held-out patients, {seed_count}", heads, list(_rows(dealt, whole, metric, epsilon)))
    say(
        f"first column: your records dealt out to {dealt.hospitals} hospitals. Second: every hospital as large as yours"
        ", with the same patients. What other hospitals' patients would add cannot be seen in it"
    )
    say(_sentence(whole, epsilon))
    for line in [*_verdict(dealt, whole), *helps]:
        say(line)


def _rows(dealt: TrialResult, whole: TrialResult, metric: str, epsilon: float) -> Iterator[list[str]]:
    from simulation.trial import ALONE, CONSTANT, POOLED, STUDY

    names = {
        STUDY: f"with ε {epsilon:g}",
        POOLED: "without privacy, together",
        ALONE: "one hospital alone",
        CONSTANT: _constant_in_words(metric),
    }
    for row, words in names.items():
        yield [words, *(_spread(each.spread(row, metric)) for each in (dealt, whole))]


def _constant_in_words(metric: str) -> str:
    return {"accuracy": "most frequent class", "rmse": "the mean for everyone"}.get(metric, "without any column")


def _sentence(whole: TrialResult, epsilon: float) -> str:
    from simulation.trial import ALONE, CONSTANT, POOLED, STUDY

    metric = whole.metrics[0]
    rows = (STUDY, POOLED, ALONE, CONSTANT)
    study, pooled, one_hospital, constant = (_spread(whole.spread(row, metric)) for row in rows)
    return (
        f"{whole.hospitals} hospitals of your size: {metric} with ε {epsilon:g}: {study}; without privacy {pooled}; "
        f"your hospital alone {one_hospital}; {_constant_in_words(metric)} {constant}"
    )


def _verdict(dealt: TrialResult, whole: TrialResult) -> Iterator[str]:
    from simulation.trial import ALONE, CONSTANT, POOLED, STUDY

    metric = whole.metrics[0]
    sign = -1 if metric in _HIGHER_IS_WORSE else 1
    reached, constant = whole.spread(STUDY, metric), whole.spread(CONSTANT, metric)
    pooled = whole.spread(POOLED, metric)
    small, large = dealt.spread(ALONE, metric), whole.spread(ALONE, metric)
    if reached and constant and pooled and not _is_clear(whole, STUDY, metric, sign):
        yield _of_no_use(whole, metric, sign, gain=sign * (reached.mean - constant.mean))
    if small and large:
        is_better = sign * (large.mean - small.mean) > 0
        change = f"goes from {small.mean:.3g} to {large.mean:.3g}" if is_better else "was not seen to get better"
        yield (
            f"more patients: without privacy, {metric} {change} when a hospital has {whole.patients:,} patients and "
            f"not {dealt.patients:,} (measured)"
        )


def _of_no_use(whole: TrialResult, metric: str, sign: int, *, gain: float) -> str:
    from simulation.trial import POOLED

    is_learnable = _is_clear(whole, POOLED, metric, sign)
    cure = "more hospitals, a higher ε or fewer columns" if is_learnable else "other columns"
    degree, constant = "no" if gain <= 0 else "not clearly", _constant_in_words(metric)
    return f'warning: the model is {degree} better than "{constant}". What would help: {cure}'


def _is_clear(whole: TrialResult, row: str, metric: str, sign: int) -> bool:
    """Return whether a row is better than a constant by more than two standard errors over the seeds, if several."""
    from simulation.trial import CONSTANT

    pairs = zip(whole.measured[row], whole.measured[CONSTANT], strict=True)
    gains = [sign * (model_metrics[metric] - base_metrics[metric]) for model_metrics, base_metrics in pairs]
    error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return fmean(gains) > 2 * error


def _show_file(output: Path, *, names_only: bool) -> None:
    say(f"{output} is written: send it to the study lead" + ("" if names_only else ", after you have checked it"))
    if not names_only:
        say(f"warning: {WARNING}", err=True)


def _as_json(
    trial: Trial, seeds: int, guessed: GuessedColumns, task: GuessedTask, helps: list[str], output: Path
) -> dict[str, Any]:
    assert trial.dealt_out is not None
    assert trial.of_this_size is not None
    return {
        "task": task.name,
        "assumed": task.words,
        "left_out": dict(guessed.left_out),
        "remarks": list(guessed.remarks),
        "seeds": seeds,
        "dealt_out": trial.dealt_out.to_dict(),
        "of_this_size": trial.of_this_size.to_dict(),
        "what_helps": helps,
        "settings": str(output),
    }


def _spread(value: SeedSpread | None) -> str:
    if value is None:
        return ""
    return f"{value.mean:.3g}" if value.deviation is None else f"{value.mean:.3g} ± {value.deviation:.2g}"


def _two_digits(patients: int) -> int:
    """Return the number with two digits: the file need not say how many patients there are exactly."""
    return int(float(f"{patients:.2g}"))
