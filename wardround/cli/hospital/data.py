"""The group `wardround data`: show how records are written and try a study's settings on them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client_sdk.api.config import load as load_settings
from wardround.cli.hospital.agreement import at_a_terminal
from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.hospital.hospital import (
    Dataset,
    Dates,
    Decimal,
    Device,
    Encoding,
    Lazy,
    PatientColumn,
    PolicyFile,
    Separator,
)
from wardround.cli.hospital.table_format import FormatOptions, keep_format, show_proposal, stored_format
from wardround.cli.shared.settings_file import read_settings
from wardround.cli.shared.shared import AsJson, Home, plain_errors, print_json, say, show_log, table

if TYPE_CHECKING:
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.study.preparation import DataCheck
    from private_learning.records import Proposal, TableFormat
    from study_protocol.cells.counting import CellCounts
    from study_protocol.study.settings import StudySettings

Records = Annotated[Path, typer.Argument(help="records, in a form that `join --data` accepts")]
SettingsFile = Annotated[
    Path | None, typer.Option(help="the study's settings, JSON or TOML. Ask the study lead for the file")
]
Questions = Annotated[
    list[Path],
    typer.Option("--question", help="question file, TOML or JSON: check that it fits the records. Repeatable"),
]
Confirm = Annotated[bool, typer.Option("--confirm", help="store the format, for every later study on the data set")]
# The largest number of columns that are named one by one.
_MAX_NAMED_COLUMNS = 10


def check(
    records: Records,
    settings: SettingsFile = None,
    question: Questions = [],  # noqa: B006 (typer reads the default and copies it)
    patient_column: PatientColumn = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    confirm: Confirm = False,
    dataset: Dataset = "records",
    lazy: Lazy = None,
    device: Device = "auto",
    policy: PolicyFile = None,
    backbone: Weights = None,
    backbone_program: Program = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Check records before `join`: show how they are written, and prepare a study's training with them.

    Works without a network, and sends and charges no data. With --confirm, the hospital's ledger of the data set
    stores the format, and `join` reads the records with it.
    """
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.study.preparation import check_data
    from private_learning.records import load

    show_log()
    with plain_errors():
        directory = home or load_settings().client_home
        rules = SitePolicy.in_force(directory) if policy is None else SitePolicy.read(policy)
        study = None if settings is None else read_settings(settings)
        stored = stored_format(directory, dataset)
        table_format, proposal = _format(records, FormatOptions(separator, encoding, decimal, dates), stored)
        if proposal is not None and not as_json:
            show_proposal(records, proposal)
        read = load(records, table_format, patient_column=patient_column, lazy=lazy)
        report: dict[str, Any] = {
            "format": None if table_format is None else table_format.to_dict(),
            "confirmed": table_format == stored,
        }
        if study is not None:
            checked = check_data(read, rules, study, device=device, backbone=backbone_file(backbone, backbone_program))
            report = _report(checked) | report
            if not as_json:
                _show(checked, study)
            _warn(checked.counts)
        if question:
            question_reports = [_report_question(path, read, rules, show=not as_json) for path in question]
            report["questions"] = question_reports
        if table_format is not None and table_format != stored:
            typed = [str(records), *table_format.options, *([] if dataset == "records" else ["--dataset", dataset])]
            typed += [] if home is None else ["--home", str(home)]
            report["confirmed"] = _keep(directory, dataset, table_format, proposal, stored, confirm, typed, as_json)
        if as_json:
            print_json(report)
        elif table_format is not None and table_format == stored:
            say(f"read as declared: {table_format}")
        elif table_format is None and study is None and not question:
            say(
                f"{len(read)} records are read, and need no declared format. Add --settings or --question to see how "
                "they fit a study or a question"
            )


def _format(
    path: Path, options: FormatOptions, stored: TableFormat | None
) -> tuple[TableFormat | None, Proposal | None]:
    """Return the format to read the records with, and the proposal that it comes from."""
    from private_learning.records import text_tables

    if stored is not None and not options.are_given:
        return stored, None
    if not text_tables(path):
        return options.declared(path), None
    proposal = options.propose(path)
    return proposal.format, proposal


def _keep(
    directory: Path,
    dataset: str,
    table_format: TableFormat,
    proposal: Proposal | None,
    stored: TableFormat | None,
    confirm: bool,
    typed: list[str],
    quiet: bool,
) -> bool:
    """Store the format if a person confirms it. Otherwise print the command that stores it.

    Raises:
        ConfigurationError: the records leave a doubt about the format.
    """
    from client_sdk.errors import ConfigurationError

    doubtful = "" if proposal is None else proposal.doubtful
    before = "" if stored is None else f", in place of {stored}"
    if confirm and doubtful:
        raise ConfigurationError(
            f"the records leave a doubt about how they are written, and no format is stored: {doubtful}"
        )
    if not confirm and not quiet and not doubtful and at_a_terminal():
        confirm = typer.confirm(f"Keep for data set {dataset}: {table_format}{before}?", default=False, err=True)
    if confirm:
        keep_format(directory, dataset, table_format)
        say(f"kept for data set {dataset}: {table_format}{before}", err=quiet)
    elif not doubtful:
        say(f"to keep this for data set {dataset}: wardround data check {shlex.join(typed)} --confirm", err=quiet)
    return confirm


def _report_question(path: Path, read: Any, rules: SitePolicy, *, show: bool) -> dict[str, Any]:
    """Return how the records fit a question. Raises DataError: the records lack a column that it names."""
    from client_sdk.api.questions import read_question
    from client_sdk.study.cell_counts import cells_of_question
    from client_sdk.study.patients import AskedPatients

    question = read_question(path).question
    counts = cells_of_question(question, AskedPatients.of(read, rules).records)
    if show:
        heads = ["column", "cells", "missing", "neither a value nor a code", "outside the range or list"]
        rows = [
            [
                column_counts.column,
                str(column_counts.cells),
                *(
                    _share(part, column_counts.cells)
                    for part in (column_counts.missing, column_counts.wrong, column_counts.outside)
                ),
            ]
            for column_counts in counts
        ]
        table(f"{path.name}: {question.in_words()}", heads, rows)
        say("no data was sent or charged. These counts are about your patients and stay here")
    _warn(counts, unusable=True)
    return {"question": str(path), "columns": [_plain(column_counts) for column_counts in counts]}


def _warn(counts: Iterable[CellCounts], *, unusable: bool = False) -> None:
    """Warn of columns that may have another unit or spelling.

    unusable: also warn of cells that fit no declaration. A training refuses these.
    """
    for column_counts in counts:
        for words in (column_counts.unusable if unusable else "", *column_counts.warnings):
            if words:
                say(f"warning: {words}", err=True)


def _report(checked: DataCheck) -> dict[str, Any]:
    values = dataclasses.asdict(checked)
    del values["counts"]
    return values


def _plain(counts: CellCounts) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(counts).items() if name != "filled"}


def _show(report: DataCheck, study: StudySettings) -> None:
    rows_each = f", of up to {report.longest} rows each" if report.longest > 1 else ""
    drawn_patients = study.privacy.sampling_rate * report.patients * (1 - report.set_aside)
    aside = [["of them set aside for evaluation", f"about {report.set_aside:.0%}, never trained on"]]
    rows = [
        ["rows read", str(report.rows)],
        ["patients left out by the policy", str(report.excluded)],
        *([["entries of its list without a patient", report.unmatched]] if report.unmatched else []),
        ["patients used", f"{report.patients}{rows_each}"],
        *(aside if report.set_aside else []),
        ["rows of each label", ", ".join(f"{label}: {count}" for label, count in report.labels.items()) or "-"],
        ["model", f"{study.training.task}, {report.parameters} parameters"],
        *(
            [["of the first records, without a gradient", f"{report.without_gradient}: they would count as zero"]]
            if report.without_gradient
            else []
        ),
        [
            "drawn in a step",
            f"{drawn_patients:.1f} on average. The study counts on {study.privacy.expected_batch_size:g}",
        ],
    ]
    table("These records in this study", ["", ""], rows)
    shares = [
        [
            *(use.name, str(use.values)),
            *(_share(part, use.values) for part in (use.missing, use.clipped, use.wrong, use.other)),
            str(use.of_others),
        ]
        for use in report.inputs
    ]
    # The last two are about events.
    column_count = 7 if any(use.other or use.of_others for use in report.inputs) else 5
    heads = ["input", "values", "missing", "clipped to the range", "neither a value nor a code", "other codes"]
    heads.append("of patients not used")
    if shares:
        table("Inputs", heads[:column_count], [row[:column_count] for row in shares])
    if report.unused:
        more = (
            f", and {len(report.unused) - _MAX_NAMED_COLUMNS} more" if len(report.unused) > _MAX_NAMED_COLUMNS else ""
        )
        say(f"columns that the study does not use: {', '.join(report.unused[:_MAX_NAMED_COLUMNS])}{more}")
    say("no data was sent or charged. These counts are about your patients and stay here")


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if part else "0"
