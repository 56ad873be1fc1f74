"""The command `wardround simulate`: run a study's settings on your own records, before any hospital takes part."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.study.reasons import ending
from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.hospital.hospital import Dates, Decimal, Encoding, Lazy, PatientColumn, Separator
from wardround.cli.hospital.mapping import ColumnsFile
from wardround.cli.hospital.named_records import named_records
from wardround.cli.hospital.table_format import FormatOptions, read_records
from wardround.cli.researcher.rehearsal import format_of, say_if_synthetic
from wardround.cli.shared.output import naming, require_writable
from wardround.cli.shared.settings_file import read_settings
from wardround.cli.shared.shared import AsJson, number, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from simulation.records import Dealer
    from simulation.results.report import ReportPoint, SeedRun, SeedSpread, SimulationReport
    from simulation.runs import Simulation

SettingsFile = Annotated[Path, typer.Argument(help="the study's settings, as for `study create`")]
Data = Annotated[list[Path], typer.Option(help="records of a hospital. Repeatable: each file is one client")]
Clients = Annotated[int | None, typer.Option(help="number of clients that share one file", min=1)]
Split = Annotated[
    str,
    typer.Option(
        help="how one file is split: iid, labels:K (K shards of one label for each client), dirichlet:ALPHA or "
        "column:NAME"
    ),
]
Test = Annotated[Path | None, typer.Option(help="records to measure on. Default: a share of the patients is held out")]
TestShare = Annotated[
    float, typer.Option(help="share of the patients of every file that is held out", min=0.0, max=0.9)
]
Seeds = Annotated[
    int, typer.Option(help="number of runs, each with another noise, split and set of held-out patients", min=1)
]
FirstSeed = Annotated[int, typer.Option(help="seed of the first run. The others follow", min=0)]
BackendName = Annotated[
    str,
    typer.Option("--backend", help="auto, loop, forked, ray (a cluster) or vectorised (linear models, many clients)"),
]
Workers = Annotated[
    int | None, typer.Option(help="processes of the backends forked and ray. Default: one for each processor")
]
Address = Annotated[
    str | None, typer.Option(help="address of a running cluster for the backend ray. Default: start one here")
]
NoBaselines = Annotated[
    bool,
    typer.Option("--no-baselines", help="do not train the baselines: without noise, pooled, and each hospital alone"),
]
CompareEncodings = Annotated[
    bool,
    typer.Option(
        "--compare-encodings",
        help="instead, compare the study's encodings of columns with others, on 3 seeds or more, for about 2 minutes",
    ),
]
Search = Annotated[
    bool,
    typer.Option("--search", help="instead, try a few changes of the settings under the same limits, and order them"),
]
Plot = Annotated[Path | None, typer.Option(help="write a chart, .png or .svg. An existing file is replaced")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="write all results as JSON. An existing file is replaced")
]
Checkpoints = Annotated[
    Path | None,
    typer.Option("--checkpoints", help="folder for checkpoints. After a crash the same command continues from it"),
]


# The largest number of rows in the table, without the last.
_MAX_SHOWN_POINTS = 12
# 128 + SIGINT, as shells count.
_INTERRUPTED = 130


def simulate(
    settings: SettingsFile,
    data: Data,
    clients: Clients = None,
    split: Split = "iid",
    test: Test = None,
    test_share: TestShare = 0.2,
    seeds: Seeds = 1,
    first_seed: FirstSeed = 0,
    backend: BackendName = "auto",
    workers: Workers = None,
    address: Address = None,
    patient_column: PatientColumn = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    columns: ColumnsFile = None,
    lazy: Lazy = None,
    backbone: Weights = None,
    backbone_program: Program = None,
    no_baselines: NoBaselines = False,
    compare_encodings: CompareEncodings = False,
    search: Search = False,
    plot: Plot = None,
    output: Output = None,
    checkpoints: Checkpoints = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a study on your own records: show accuracy and ε by round, until the budget ends. Needs no network.

    Records and noise are drawn from a seed, so the simulation protects no patient. Use records that you may see.
    """
    # The help says this once, so it is not repeated for every seed.
    with plain_errors(), _errors_alone("study_protocol.randomness.source"), ExitStack() as quietly:
        from simulation.backends.choice import backend_called
        from simulation.runs import Simulation

        study_settings = read_settings(settings)
        options = FormatOptions(separator, encoding, decimal, dates)
        dealer = _dealer(data, test, options, patient_column, lazy, columns, split, clients, test_share)
        runner, file = backend_called(backend, workers, address), backbone_file(backbone, backbone_program)
        simulation = Simulation(study_settings, dealer, backend, runner, not no_baselines, checkpoints, file)
        _require_files(compare_encodings or search, plot, output, checkpoints)
        simulation.check()
        # The same rows are read again, and their warnings were printed.
        quietly.enter_context(_errors_alone("private_learning.tasks.dataset"))
        runs = range(first_seed, first_seed + seeds)
        if search:
            _search(simulation, runs, as_json)
        elif not _compared(simulation, first_seed, seeds, compare_encodings, as_json):
            _hand_out(_run(simulation, runs), seeds, plot, output, as_json)


def _named_records(data: list[Path], patient_column: str | None) -> tuple[list[Path], str | None]:
    """Return the paths of records and snapshots, with the one column of their patients.

    Raises:
        ConfigurationError: snapshots name their patients in several columns, or as `find_records`.
    """
    from client_sdk.errors import ConfigurationError

    sources = [named_records(path, patient_column) for path in data]
    columns = {each.patient_column for each in sources if each.snapshot is not None} or {patient_column}
    if len(columns) > 1:
        raise ConfigurationError(
            f"these snapshots name their patients in columns {', '.join(sorted(map(str, columns)))}"
        )
    return [each.path for each in sources], columns.pop()


def _dealer(
    data: list[Path],
    test: Path | None,
    table_format: FormatOptions,
    patient_column: str | None,
    lazy: bool | None,
    columns: Path | None,
    split: str,
    clients: int | None,
    test_share: float,
) -> Dealer:
    """Return what reads the records and deals them to clients."""
    from simulation.records import Dealer, HowSplit, Source

    data, patient_column = _named_records(data, patient_column)
    say_if_synthetic(data)
    test = None if test is None else named_records(test, patient_column).path
    options = format_of(data, table_format)
    reading = {"patient_column": patient_column, "lazy": lazy, "mapping": columns}
    read = partial(read_records, options=options, formats=set(), **reading)
    return Dealer(Source.read(data, test, read), HowSplit.parse(split), clients, test_share)


def _search(simulation: Simulation, seeds: range, as_json: bool) -> None:
    from wardround.cli.researcher.search import search

    search(simulation, partial(_run, seeds=seeds), as_json=as_json)


def _require_files(compares_encodings: bool, plot: Path | None, output: Path | None, checkpoints: Path | None) -> None:
    """Raises ConfigurationError: a comparison of encodings or settings writes no file."""
    from client_sdk.errors import ConfigurationError

    if compares_encodings and (plot or output or checkpoints):
        raise ConfigurationError("--compare-encodings and --search go without --plot, --output and --checkpoints")
    _require_writable(plot, output)


def _compared(simulation: Simulation, first_seed: int, seeds: int, compares_encodings: bool, as_json: bool) -> bool:
    """Compare encodings where that was asked for, and return whether it was."""
    if compares_encodings:
        # It needs torch.
        from wardround.cli.researcher.encodings import compare

        compare(simulation, first_seed, seeds, as_json=as_json)
    return compares_encodings


def _hand_out(report: SimulationReport, seeds: int, plot: Path | None, output: Path | None, as_json: bool) -> None:
    from simulation.results.chart import draw

    # Print first: a full disk cannot lose what is printed.
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report)
    if output is not None:
        with naming(output):
            output.write_text(json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if plot is not None:
        with naming(plot):
            draw(report, plot)
    if len(report.runs) < seeds:
        raise typer.Exit(_INTERRUPTED)


def _require_writable(plot: Path | None, output: Path | None) -> None:
    """Check the output folders and the chart package before hours of work."""
    if plot is not None:
        if plot.suffix not in (".png", ".svg"):
            raise typer.BadParameter("a chart is a .png or an .svg", param_hint="--plot")
        import vl_convert  # noqa: F401  # pyright: ignore[reportUnusedImport]
    for path in (plot, output):
        require_writable(path, replaces=True)


@contextmanager
def _errors_alone(logger: str) -> Generator[None]:
    """Let the logger report only errors within the context."""
    log = logging.getLogger(logger)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _run(simulation: Simulation, seeds: range) -> SimulationReport:
    """Run the seeds after notes, with a progress bar on standard error. After Ctrl-C, return those that are done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from simulation.engine import RoundShown
    from simulation.results.report import SimulationReport

    for note in simulation.notes(seeds[0]):
        say(f"note: {note}", err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[spent]}"), TimeRemainingColumn())
    runs: list[SeedRun] = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for seed in seeds:
            task = progress.add_task(f"seed {seed}", total=simulation.settings.rounds, spent="")

            def show(round_result: RoundShown, task: object = task) -> None:
                spent = ", ".join("∞" if value is None else f"{value:.3g}" for value in round_result.spent)
                progress.update(task, advance=1, spent=f"ε {spent}")  # type: ignore[arg-type]

            try:
                runs.append(simulation.run(seed, show))
            except KeyboardInterrupt:
                break
            progress.remove_task(task)
    if len(runs) < len(seeds):
        checkpoint_folder = simulation.checkpoints
        advice = (
            "--checkpoints FOLDER would have kept its rounds"
            if checkpoint_folder is None
            else "the same command continues it"
        )
        say(f"stopped during seed {seeds[len(runs)]}: {advice}", err=True)
        if not runs:
            raise typer.Exit(_INTERRUPTED)
    return SimulationReport(simulation.settings, simulation.backend, tuple(runs))


def _show(report: SimulationReport) -> None:
    from simulation.results.chart import compared

    _show_points(report)
    metric = report.metric
    if not report.points():
        say("no model was released")
    elif (averaging := report.settings.training.optimiser.averaging) is not None:
        say(f"{metric or 'result'}: of the mean of released models by training.optimiser.averaging, {averaging.name}")
    if metric is not None:
        compared_with = [["this study", _spread(report.reached)], *([s, _spread(v)] for s, v in compared(report))]
        table(f"Beside it: {metric} on the test records", ["", metric], compared_with)
    for run in report.runs:
        for missed in run.missed:
            say(f"note: {missed}", err=True)
    for warning in report.warnings():
        say(f"warning: {warning}", err=True)


def _show_points(report: SimulationReport) -> None:
    """Print the metric and ε by round, the reasons of the ends, the limits, and the running ε beside them."""
    from accounting.budget.accounts.base import RUNNING

    limits, has_metric = report.settings.privacy.limits, report.metric is not None
    columns = ["released models", *filter(None, [report.metric])]
    columns += [f"ε {limit.level} {limit.definition}" for limit in limits]
    rows = [_point_row(point, has_metric) for point in _some(report)]
    table(f"{len(report.runs)} simulated, {_sizes(report)}", columns, rows)
    ends = dict.fromkeys(run.outcome.stop_reason for run in report.runs)
    say("ends: " + " ".join(ending(reason) for reason in ends))
    for limit in limits:
        say(f"limit: {limit.level} {limit.definition}, ε ≤ {limit.epsilon:g} at δ = {limit.delta:g}")
    for name, epsilon in report.running().items():
        say(f"{name}: {_epsilon(epsilon)} is the {RUNNING}")
    if any(limit.enforcement in ("fixed-plan", "gaussian-filter") for limit in limits):
        say("ε in the table holds whenever the study stops: it counts all steps and questions that may still come")


def _point_row(point: ReportPoint, has_metric: bool) -> list[str]:
    measured = [_spread(point.metric)] if has_metric else []
    return [str(point.released), *measured, *map(_epsilon, point.spent)]


def _epsilon(value: float | None) -> str:
    return "∞" if value is None else number(value)


def _some(report: SimulationReport):
    """Return about a dozen points, the last among them."""
    points = report.points()
    step = max(1, -(-len(points) // _MAX_SHOWN_POINTS))
    return [point for at, point in enumerate(points, start=1) if at % step == 0 or at == len(points) or at == 1]


def _sizes(report: SimulationReport) -> str:
    run = report.runs[0]
    clients = "1 client" if run.clients == 1 else f"{run.clients:,} clients"
    return f"{clients} with {run.records:,} patients in all"


def _spread(value: SeedSpread | None) -> str:
    if value is None:
        return ""
    return f"{value.mean:.3f}" if value.deviation is None else f"{value.mean:.3f} ± {value.deviation:.3f}"
