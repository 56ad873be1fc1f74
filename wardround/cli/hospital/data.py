"""The group `wardround data`: show how records are written and try a study's settings on them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

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
    policy_in_force,
)
from wardround.cli.hospital.mapping import (
    ColumnsFile,
    apply_mapping,
    mapping_digest,
    report_mapping,
    show_mapping,
    warn_of_unmapped,
)
from wardround.cli.hospital.named_records import named_records
from wardround.cli.hospital.table_format import FormatOptions, keep_format, show_proposal, stored_format
from wardround.cli.shared.settings_file import read_any_settings, read_settings
from wardround.cli.shared.shared import AsJson, Home, plain_errors, print_json, say, show_log, table

if TYPE_CHECKING:
    from client_sdk.guard.ledger_views import RecordsOrigin
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.study.encoding_hints import EncodingHint
    from client_sdk.study.preparation import DataCheck
    from private_learning.records import MappingCounts, Proposal, Records, TableFormat
    from study_protocol.cells.counting import CellCounts
    from study_protocol.queries.kinds import Question
    from study_protocol.study.settings import StudySettings
    from study_protocol.study.synthesis import Synthesis

RecordsFile = Annotated[Path, typer.Argument(help="records, or the name of a snapshot, as `join --data` accepts them")]
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
    records: RecordsFile,
    settings: SettingsFile = None,
    question: Questions = [],  # noqa: B006 (typer reads the default and copies it)
    patient_column: PatientColumn = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    columns: ColumnsFile = None,
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
    from private_learning.records import load

    show_log()
    with plain_errors():
        directory = home or load_settings().client_home
        rules = policy_in_force(policy, directory)
        study, questions = _asked_of(settings, question)
        source = named_records(records, patient_column, directory)
        options = FormatOptions(separator, encoding, decimal, dates)
        declaration = _Declaration.of(source.path, options, directory, dataset)
        if not as_json:
            declaration.show_proposal()
        local = load(source.path, declaration.format, patient_column=source.patient_column, lazy=lazy)
        read, mapping_counts = apply_mapping(local, columns, source.patient_column)
        report = declaration.report() | _report_mapping(read, mapping_counts, show=not as_json)
        report |= _report_change(read, source.origin(mapping_digest(read)), directory, dataset)
        weights = backbone_file(backbone, backbone_program)
        fits = partial(_report_fit, read, rules, show=not as_json, device=device, backbone=weights)
        report = fits(study, questions) | report
        if declaration.new is not None:
            report["confirmed"] = declaration.keep(declaration.new, confirm, home, quiet=as_json)
        if as_json:
            print_json(report)
        else:
            declaration.say_read(len(read), records_only=study is None and not questions)


def _report_mapping(read: Records, counts: Sequence[MappingCounts], *, show: bool) -> dict[str, Any]:
    """Return what the mapping made of the records. Empty: there is none."""
    if show:
        show_mapping(read, counts)
    warn_of_unmapped(counts)
    return report_mapping(read, counts)


def _report_change(read: Any, origin: RecordsOrigin, directory: Path, dataset: str) -> dict[str, Any]:
    """Say how the records differ from those that studies on the data set have used. Empty: no study has used any."""
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path
    from client_sdk.study.same_records import change

    path = ledger_path(directory, dataset)
    if not path.exists():
        return {}
    with HospitalLedger.open(path, read_only=True) as ledger:
        if not ledger.records_marks():
            return {}
        difference = change(ledger, None, read, origin)[1]
    if difference:
        say(f"warning: {difference}", err=True)
    return {"changed": difference or None}


@dataclass(frozen=True)
class _Declaration:
    """The format to read the records with, and the one that the ledger of their data set stores.

    proposal  what the format comes from, if neither the ledger nor the options declare it
    """

    records: Path
    directory: Path
    dataset: str
    stored: TableFormat | None
    format: TableFormat | None
    proposal: Proposal | None = None

    @classmethod
    def of(cls, records: Path, options: FormatOptions, directory: Path, dataset: str) -> Self:
        from private_learning.records import text_tables

        stored = stored_format(directory, dataset)
        if stored is not None and not options.are_given:
            return cls(records, directory, dataset, stored, stored)
        if not text_tables(records):
            return cls(records, directory, dataset, stored, options.declared(records))
        proposal = options.propose(records)
        return cls(records, directory, dataset, stored, proposal.format, proposal)

    @property
    def new(self) -> TableFormat | None:
        """Return the format if the ledger does not store it."""
        return None if self.format == self.stored else self.format

    def report(self) -> dict[str, Any]:
        table_format = None if self.format is None else self.format.to_dict()
        return {"format": table_format, "confirmed": self.format == self.stored}

    def show_proposal(self) -> None:
        if self.proposal is not None:
            show_proposal(self.records, self.proposal)

    def say_read(self, count: int, *, records_only: bool) -> None:
        """Print how the records were read, if their format is not to be kept."""
        if self.format is not None and self.new is None:
            say(f"read as declared: {self.format}")
        elif self.format is None and records_only:
            say(
                f"{count} records are read, and need no declared format. Add --settings or --question to see how they "
                "fit a study or a question"
            )

    def keep(self, table_format: TableFormat, confirm: bool, home: Path | None, *, quiet: bool) -> bool:
        """Store the format if a person confirms it. Otherwise print the command that stores it.

        Raises:
            ConfigurationError: the records leave a doubt about the format.
        """
        from client_sdk.errors import ConfigurationError

        doubtful = "" if self.proposal is None else self.proposal.doubtful
        if doubtful and confirm:
            raise ConfigurationError(
                f"the records leave a doubt about how they are written, and no format is stored: {doubtful}"
            )
        if doubtful:
            return False
        replaced = "" if self.stored is None else f", in place of {self.stored}"
        format_in_words = f"for data set {self.dataset}: {table_format}{replaced}"
        if not confirm and not quiet and at_a_terminal():
            confirm = typer.confirm(f"Keep {format_in_words}?", default=False, err=True)
        if confirm:
            keep_format(self.directory, self.dataset, table_format)
            say(f"kept {format_in_words}", err=quiet)
        else:
            command = self._command(table_format, home)
            say(f"to keep this for data set {self.dataset}: {command}", err=quiet)
        return confirm

    def _command(self, table_format: TableFormat, home: Path | None) -> str:
        typed = [str(self.records), *table_format.options]
        typed += [] if self.dataset == "records" else ["--dataset", self.dataset]
        typed += [] if home is None else ["--home", str(home)]
        return f"wardround data check {shlex.join(typed)} --confirm"


def _report_fit(
    read: Records,
    rules: SitePolicy,
    study: StudySettings | None,
    questions: Sequence[tuple[Path, Question]],
    *,
    show: bool,
    **training: Any,
) -> dict[str, Any]:
    """Return how the records fit a study and questions, of those that are asked of them."""
    report = {} if study is None else _report_study(study, read, rules, show=show, **training)
    if questions:
        report["questions"] = [_report_question(path, entry, read, rules, show=show) for path, entry in questions]
    return report


def _report_study(
    study: StudySettings, read: Records, rules: SitePolicy, *, show: bool, **training: Any
) -> dict[str, Any]:
    """Return how the records fit a study's training."""
    from client_sdk.study.preparation import check_data

    checked = check_data(read, rules, study, **training)
    if show:
        _show(checked, study)
    _warn(checked.counts)
    for remark in (*checked.hopeless, *(column.in_words for column in checked.lacking)):
        say(f"warning: {remark}", err=True)
    _hint(checked.hints)
    values = dataclasses.asdict(checked)
    # Both tell more of the patients than counts. Reports in JSON may be passed on.
    del values["counts"], values["hints"]
    return values


def _asked_of(
    settings: Path | None, questions: Sequence[Path]
) -> tuple[StudySettings | None, list[tuple[Path, Question]]]:
    """Return the study to train, where there is one, and every question with the file that asks it."""
    from client_sdk.api.questions import read_question

    entries: list[tuple[Path, Question]] = [(path, read_question(path).question) for path in questions]
    if settings is None:
        return None, entries
    study, synthesis = _study_of(settings)
    if synthesis is not None:
        entries.append((settings, synthesis.first_question().question))
    return study, entries


def _study_of(file: Path) -> tuple[StudySettings | None, Synthesis | None]:
    """Return what a study does with records at `join`: its training and its synthesis, where it has them."""
    from study_protocol.study.settings import StudySettings

    settings = read_any_settings(file)
    if isinstance(settings, StudySettings):
        return settings, settings.synthesis
    # Raises: a study of questions alone without synthesis declares no columns.
    return (None, settings.synthesis) if settings.synthesis else (read_settings(file), None)


def _report_question(path: Path, question: Question, read: Any, rules: SitePolicy, *, show: bool) -> dict[str, Any]:
    """Return how the records fit a question. Raises DataError: the records lack a column that it names."""
    from client_sdk.study.cell_counts import cells_of_question
    from client_sdk.study.patients import AskedPatients

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


def _hint(hints: Sequence[EncodingHint]) -> None:
    """Print how columns could be encoded better, for the hospital's own eyes."""
    for hint in hints:
        say(f"hint: column {hint.column}: {hint.words}", err=True)
        if hint.line:
            say(f'  "column.{hint.column}" = "{hint.line}"', err=True)
    if any(hint.line for hint in hints):
        say(
            "hint: these lines are computed from your patients and stay here. Do not send them. Ask the study lead for "
            "such numbers from public knowledge, as a textbook has them. Settings with one hospital's quantiles would "
            "show its patients' values to everyone, without noise and outside every budget",
            err=True,
        )


def _plain(counts: CellCounts) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(counts).items() if name != "filled"}


def _show(report: DataCheck, study: StudySettings) -> None:
    rows_each = f", of up to {report.longest} rows each" if report.longest > 1 else ""
    drawn_patients = study.privacy.sampling_rate * report.patients * (1 - report.set_aside)
    aside = f"about {report.set_aside:.0%}, never trained on" if report.set_aside else ""
    without = f"{report.without_gradient}: they would count as zero" if report.without_gradient else ""
    expected = f"{drawn_patients:.1f} on average. The study counts on {study.privacy.expected_batch_size:g}"
    rows = [
        ["rows read", str(report.rows)],
        ["patients left out by the policy", str(report.excluded)],
        ["entries of its list without a patient", report.unmatched],
        ["patients used", f"{report.patients}{rows_each}"],
        ["of them set aside for evaluation", aside],
        ["rows of each label", ", ".join(f"{label}: {count}" for label, count in report.labels.items()) or "-"],
        ["model", f"{study.training.task}, {report.parameters} parameters"],
        ["of the first records, without a gradient", without],
        ["drawn in a step", expected],
    ]
    table("These records in this study", ["", ""], [row for row in rows if row[1]])
    _show_inputs(report)
    if report.unused:
        say(f"columns that the study does not use: {_column_list(report.unused)}")
    say("no data was sent or charged. These counts are about your patients and stay here")


def _show_inputs(report: DataCheck) -> None:
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


def _column_list(columns: Sequence[str]) -> str:
    more = len(columns) - _MAX_NAMED_COLUMNS
    return ", ".join(columns[:_MAX_NAMED_COLUMNS]) + (f", and {more} more" if more > 0 else "")


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if part else "0"
