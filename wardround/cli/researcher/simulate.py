"""`wardround simulate`: a study's own settings on records at hand, in one process, before any hospital is asked."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.hospital.hospital import Dates, Decimal, Encoding, Lazy, PatientColumn, Separator
from wardround.cli.hospital.table_format import FormatOptions, read_records
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.settings_file import read_settings
from wardround.cli.shared.shared import AsJson, ending, number, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from simulation.report import SeedRun, SeedSpread, SimulationReport
    from simulation.runs import Simulation

SettingsFile = Annotated[Path, typer.Argument(help="the study's settings, as `study create` takes them")]
Data = Annotated[
    list[Path], typer.Option(help="records as a hospital has them; repeated: every file is one client of its own")
]
Clients = Annotated[int | None, typer.Option(help="among how many clients one file is shared out", min=1)]
Split = Annotated[
    str, typer.Option(help="how: iid; labels:K, K shards of one label a client; dirichlet:ALPHA; column:NAME")
]
Test = Annotated[Path | None, typer.Option(help="records to measure on; left out: a share of the patients is held out")]
TestShare = Annotated[float, typer.Option(help="of the patients of every file, held out", min=0.0, max=0.9)]
Seeds = Annotated[int, typer.Option(help="how often, each time with other noise, split and held-out patients", min=1)]
FirstSeed = Annotated[int, typer.Option(help="of the first; the others follow", min=0)]
BackendName = Annotated[
    str,
    typer.Option("--backend", help="auto, loop, forked, ray (a cluster), or vectorised (linear models, many clients)"),
]
Workers = Annotated[
    int | None, typer.Option(help="processes of the backends forked and ray; left out: one for each processor")
]
Address = Annotated[
    str | None, typer.Option(help="of a running cluster, for the backend ray; left out: one is started here")
]
NoBaselines = Annotated[
    bool, typer.Option("--no-baselines", help="do not train without noise, pooled and alone for comparison")
]
Plot = Annotated[Path | None, typer.Option(help="write a chart, .png or .svg; one that exists is replaced")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="write everything as JSON; replaced as well")]
Checkpoints = Annotated[
    Path | None, typer.Option("--checkpoints", help="folder: after a kill the same command goes on there")
]


# Rows of the table at most, but for the last.
_SHOWN = 12
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
    lazy: Lazy = None,
    backbone: Weights = None,
    backbone_program: Program = None,
    no_baselines: NoBaselines = False,
    plot: Plot = None,
    output: Output = None,
    checkpoints: Checkpoints = None,
    as_json: AsJson = False,
) -> None:
    """Run a study on records at hand: accuracy by round beside ε by round, until the budget ends it. Asks nobody.

    Records and noise are drawn from a seed, so that nothing here protects anybody: for records that you may see.
    """
    with plain_errors(), ExitStack() as quietly:
        from simulation.backends.choice import backend_called
        from simulation.chart import draw
        from simulation.records import Dealer, HowSplit, Source
        from simulation.runs import Simulation

        # Said once, in the help; not for every seed.
        quietly.enter_context(_errors_alone("study_protocol.randomness.source"))
        chosen = read_settings(settings)
        options = FormatOptions(separator, encoding, decimal, dates)
        source = Source.read(
            data, test, partial(read_records, options=options, formats=set(), patient_column=patient_column, lazy=lazy)
        )
        dealer = Dealer(source, HowSplit.parse(split), clients, test_share)
        simulation = Simulation(
            chosen,
            dealer,
            backend,
            backend_called(backend, workers, address),
            not no_baselines,
            checkpoints,
            backbone_file(backbone, backbone_program),
        )
        _require_writable(plot, output)
        simulation.check()
        # The same rows once more: what is said of them was said.
        quietly.enter_context(_errors_alone("private_learning.tasks.dataset"))
        for note in simulation.notes(first_seed):
            say(f"note: {note}", err=True)
        report = _run(simulation, range(first_seed, first_seed + seeds))
        # First what no full disk can take away.
        if as_json:
            print_json(report.to_dict())
        else:
            _show(report)
        if output is not None:
            text = json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"
            with _naming(output):
                output.write_text(text, encoding="utf-8")
        if plot is not None:
            with _naming(plot):
                draw(report, plot)
        if len(report.runs) < seeds:
            raise typer.Exit(_INTERRUPTED)


def _require_writable(plot: Path | None, output: Path | None) -> None:
    """Before hours of work: folders that are there, and what draws the chart."""
    if plot is not None:
        if plot.suffix not in (".png", ".svg"):
            raise typer.BadParameter("a chart is a .png or an .svg", param_hint="--plot")
        import vl_convert  # noqa: F401  # pyright: ignore[reportUnusedImport]
    for path in (plot, output):
        require_writable(path, replaces=True)


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Errors of writing say which file: a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _errors_alone(logger: str) -> Generator[None]:
    """Within, it says nothing less than an error."""
    log = logging.getLogger(logger)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _run(simulation: Simulation, seeds: range) -> SimulationReport:
    """With a bar on standard error, which shows the round and what is spent. After Ctrl-C: the seeds that are done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from simulation.engine import RoundShown
    from simulation.report import SimulationReport

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[spent]}"), TimeRemainingColumn())
    runs: list[SeedRun] = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for seed in seeds:
            task = progress.add_task(f"seed {seed}", total=simulation.settings.rounds, spent="")

            def show(shown: RoundShown, task: object = task) -> None:
                spent = ", ".join("∞" if value is None else f"{value:.3g}" for value in shown.spent)
                progress.update(task, advance=1, spent=f"ε {spent}")  # type: ignore[arg-type]

            try:
                runs.append(simulation.run(seed, show))
            except KeyboardInterrupt:
                break
            progress.remove_task(task)
    if len(runs) < len(seeds):
        kept = simulation.checkpoints
        how = "--checkpoints FOLDER would have kept its rounds" if kept is None else "the same command goes on with it"
        say(f"stopped during seed {seeds[len(runs)]}: {how}", err=True)
        if not runs:
            raise typer.Exit(_INTERRUPTED)
    return SimulationReport(simulation.settings, simulation.backend, tuple(runs))


def _show(report: SimulationReport) -> None:
    from simulation.chart import compared

    limits, metric = report.settings.privacy.limits, report.metric
    columns = ["released models", *([] if metric is None else [metric])]
    columns += [f"ε {limit.level} {limit.definition}" for limit in limits]
    rows: list[list[str]] = []
    for point in _some(report):
        measured = [] if metric is None else [_spread(point.metric)]
        rows.append([str(point.released), *measured, *("∞" if s is None else number(s) for s in point.spent)])
    table(f"{len(report.runs)} simulated, {_sizes(report)}", columns, rows)
    ends = dict.fromkeys(run.outcome.stop_reason for run in report.runs)
    say("ends: " + "; ".join(ending(reason) for reason in ends))
    for limit in limits:
        say(f"limit: {limit.level} {limit.definition}, ε ≤ {limit.epsilon:g} at δ = {limit.delta:g}")
    if not rows:
        say("no model was released")
    elif (averaging := report.settings.training.optimiser.averaging) is not None:
        say(f"{metric or 'result'}: of the mean of released models by training.optimiser.averaging, {averaging.name}")
    if metric is not None:
        compared_with = [["this study", _spread(report.reached)], *([s, _spread(v)] for s, v in compared(report))]
        table(f"Beside it: {metric} on the test records", ["", metric], compared_with)
    for missed in (one for run in report.runs for one in run.missed):
        say(f"note: {missed}", err=True)
    for warning in report.warnings():
        say(f"warning: {warning}", err=True)


def _some(report: SimulationReport):
    """At most a dozen points, the last among them."""
    points = report.points()
    step = max(1, -(-len(points) // _SHOWN))
    return [point for at, point in enumerate(points, start=1) if at % step == 0 or at == len(points) or at == 1]


def _sizes(report: SimulationReport) -> str:
    run = report.runs[0]
    clients = "1 client" if run.clients == 1 else f"{run.clients:,} clients"
    return f"{clients} with {run.records:,} patients in all"


def _spread(value: SeedSpread | None) -> str:
    if value is None:
        return ""
    return f"{value.mean:.3f}" if value.deviation is None else f"{value.mean:.3f} ± {value.deviation:.3f}"
