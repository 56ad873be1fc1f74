"""The command `wardround audit`: attack a study's own settings on records at hand, and write one page."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.files.durable import write_durably
from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.hospital.hospital import Dates, Decimal, Encoding, PatientColumn, Separator
from wardround.cli.hospital.table_format import FormatOptions, read_records
from wardround.cli.researcher.rehearsal import format_of
from wardround.cli.researcher.simulate import SettingsFile, Split
from wardround.cli.shared.output import naming, require_writable
from wardround.cli.shared.settings_file import read_settings
from wardround.cli.shared.shared import AsJson, plain_errors, print_json, say

if TYPE_CHECKING:
    from simulation.audit.page import AuditReport
    from simulation.audit.run import AuditInputs
    from study_protocol.study.settings import StudySettings

Data = Annotated[Path, typer.Option(help="records that you may look at: of one hospital, or synthetic ones")]
Output = Annotated[Path, typer.Option("--output", "-o", help="folder for audit.html and audit.json. Is made")]
Clients = Annotated[int | None, typer.Option(help="hospitals that share the records. Default: those of a round", min=1)]
Canaries = Annotated[int, typer.Option(help="most made-up records. The model's size allows fewer", min=2, max=20_000)]
Studies = Annotated[
    int | None, typer.Option(help="runs for membership inference. Default: about two minutes of them", min=4, max=1_000)
]
Seed = Annotated[int, typer.Option(help="of noise, coins and canaries.", min=0)]
Pictures = Annotated[
    bool, typer.Option("--pictures", help="of images: show some of your records on the page, beside what leaks of them")
]
_ALARM = 4
# Held out for membership inference.
_TEST_SHARE = 0.2


def audit(
    settings: SettingsFile,
    data: Data,
    output: Output,
    clients: Clients = None,
    split: Split = "iid",
    canaries: Canaries = 1_000,
    studies: Studies = None,
    pictures: Pictures = False,
    seed: Seed = 0,
    patient_column: PatientColumn = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    backbone: Weights = None,
    backbone_program: Program = None,
    as_json: AsJson = False,
) -> None:
    """Attack a study's settings on your own records and write a page of what was found. Exit code 4: an alarm.

    Needs no network. The page holds exact figures about the records, and no record without --pictures.
    """
    with plain_errors():
        study_settings = read_settings(settings)
        for name in ("study_protocol.randomness.source", "private_learning.tasks.dataset"):
            logging.getLogger(name).setLevel(logging.ERROR)
        read = partial(
            read_records,
            options=format_of([data], FormatOptions(separator, encoding, decimal, dates)),
            formats=set(),
            patient_column=patient_column,
            lazy=None,
        )
        from private_learning.tasks import of_study
        from simulation.audit.run import AuditInputs
        from simulation.records import Dealer, HowSplit, Source

        task = of_study(study_settings.training, backbone_file(backbone, backbone_program))
        source, how_split = Source.read([data], None, read), HowSplit.parse(split)
        count = None if how_split.way == "column" and clients is None else clients or _hospitals(study_settings)
        dealer = Dealer(source, how_split, count, _TEST_SHARE)
        dealer.check(task, study_settings)
        dealt = dealer.deal(task, study_settings, seed)
        inputs = AuditInputs(
            study_settings, task, source.files[0], dealt.population, dealt.test, canaries, seed, studies, pictures
        )
        inputs.require_enough()
        _require_folder(output)
        _write(_run(inputs), output, as_json)


def _hospitals(settings: StudySettings) -> int:
    return max(settings.schedule.min_clients, round(settings.privacy.expected_clients))


def _require_folder(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(f"{output} is a file: name a folder")
    output.mkdir(exist_ok=True)
    for name in ("audit.html", "audit.json"):
        require_writable(output / name, replaces=True)


def _run(inputs: AuditInputs) -> AuditReport:
    """Run the parts, with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import Progress

    from simulation.audit.run import PARTS, audit

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("attacks", total=len(PARTS))
        return audit(inputs, lambda done: progress.update(bar, completed=done))


def _write(report: AuditReport, output: Path, as_json: bool) -> None:
    # Print first: a full disk cannot lose what is printed.
    digest = report.page_sha256
    if as_json:
        print_json(report.figures() | {"page_sha256": digest})
    else:
        for section in report.sections:
            say(f"{section.title}: {section.verdict}")
            for line in section.lines:
                say(f"  {line}")
    for name, body in report.files().items():
        with naming(output / name):
            write_durably(output / name, body)
    if not as_json:
        say(f'{output / "audit.html"} is written. For the settings of the study: audit_sha256 = "{digest}"')
    if report.alarms:
        raise typer.Exit(_ALARM)
