"""`wardround data …`: how records are written, and what a study would make of them, before anybody is asked."""

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

Records = Annotated[Path, typer.Argument(help="records, as `join --data` takes them")]
SettingsFile = Annotated[
    Path | None, typer.Option(help="the study's settings, JSON or TOML: ask whoever leads the study")
]
Questions = Annotated[
    list[Path],
    typer.Option("--question", help="a question, TOML or JSON: what it would make of the records; repeatable"),
]
Confirm = Annotated[
    bool, typer.Option("--confirm", help="keep how the records are written, for every later study on the data set")
]
# Columns that are named one by one, at most.
_NAMED = 10


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
    """Show how records are written, and make the training as `join` would. Needs no network, charges and sends nothing.

    With --confirm the hospital's ledger of the data set keeps how they are written, and `join` reads them so.
    """
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.study.preparation import check_data
    from private_learning.records import load

    show_log()
    with plain_errors():
        directory = home or load_settings().client_home
        rules = SitePolicy.in_force(directory) if policy is None else SitePolicy.read(policy)
        study = None if settings is None else read_settings(settings)
        kept = stored_format(directory, dataset)
        format, proposal = _format(records, FormatOptions(separator, encoding, decimal, dates), kept)
        if proposal is not None and not as_json:
            show_proposal(records, proposal)
        read = load(records, format, patient_column=patient_column, lazy=lazy)
        report: dict[str, Any] = {"format": None if format is None else format.to_dict(), "confirmed": format == kept}
        if study is not None:
            checked = check_data(read, rules, study, device=device, backbone=backbone_file(backbone, backbone_program))
            report = _report(checked) | report
            if not as_json:
                _show(checked, study)
            _warn(checked.counts)
        if question:
            asked = [_asked(path, read, rules, show=not as_json) for path in question]
            report["questions"] = asked
        if format is not None and format != kept:
            typed = [str(records), *format.options, *([] if dataset == "records" else ["--dataset", dataset])]
            typed += [] if home is None else ["--home", str(home)]
            report["confirmed"] = _keep(directory, dataset, format, proposal, kept, confirm, typed, as_json)
        if as_json:
            print_json(report)
        elif format is not None and format == kept:
            say(f"read as declared: {format}")
        elif format is None and study is None and not question:
            say(
                f"{len(read)} records are read, and need no declared format. What would be made of them is shown with "
                "--settings or --question"
            )


def _format(path: Path, options: FormatOptions, kept: TableFormat | None) -> tuple[TableFormat | None, Proposal | None]:
    """How to read the records, and what proposed it."""
    from private_learning.records import text_tables

    if kept is not None and not options.are_given:
        return kept, None
    if not text_tables(path):
        return options.declared(path), None
    proposal = options.propose(path)
    return proposal.format, proposal


def _keep(
    directory: Path,
    dataset: str,
    format: TableFormat,
    proposal: Proposal | None,
    kept: TableFormat | None,
    confirm: bool,
    typed: list[str],
    quiet: bool,
) -> bool:
    """Keep the format if a person says so; otherwise say what keeps it. Raises ConfigurationError: it is in doubt."""
    from client_sdk.errors import ConfigurationError

    doubtful = "" if proposal is None else proposal.doubtful
    before = "" if kept is None else f", in place of {kept}"
    if confirm and doubtful:
        raise ConfigurationError(
            f"the records leave a doubt about how they are written, and nothing is kept: {doubtful}"
        )
    if not confirm and not quiet and not doubtful and at_a_terminal():
        confirm = typer.confirm(f"Keep for data set {dataset}: {format}{before}?", default=False, err=True)
    if confirm:
        keep_format(directory, dataset, format)
        say(f"kept for data set {dataset}: {format}{before}", err=quiet)
    elif not doubtful:
        say(f"to keep this for data set {dataset}: wardround data check {shlex.join(typed)} --confirm", err=quiet)
    return confirm


def _asked(path: Path, read: Any, rules: SitePolicy, *, show: bool) -> dict[str, Any]:
    """What a question would make of the records. Raises DataError: it names columns that they have not."""
    from client_sdk.api.questions import read_question
    from client_sdk.study.cell_counts import cells_of_question
    from client_sdk.study.patients import AskedPatients

    question = read_question(path).question
    counts = cells_of_question(question, AskedPatients.of(read, rules).records)
    if show:
        heads = ["column", "cells", "missing", "neither a value nor a code", "outside the range or list"]
        rows = [
            [one.column, str(one.cells), *(_share(part, one.cells) for part in (one.missing, one.wrong, one.outside))]
            for one in counts
        ]
        table(f"{path.name}: {question.in_words()}", heads, rows)
        say("nothing was sent or charged; these counts are about your patients and stay here")
    _warn(counts, unusable=True)
    return {"question": str(path), "columns": [_plain(one) for one in counts]}


def _warn(counts: Iterable[CellCounts], *, unusable: bool = False) -> None:
    """Of columns whose unit or spelling may be another. unusable: also of cells that fit nothing, which a training
    refuses.
    """
    for one in counts:
        for words in (one.unusable if unusable else "", *one.warnings):
            if words:
                say(f"warning: {words}", err=True)


def _report(checked: DataCheck) -> dict[str, Any]:
    values = dataclasses.asdict(checked)
    del values["counts"]
    return values


def _plain(counts: CellCounts) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(counts).items() if name != "filled"}


def _show(found: DataCheck, study: StudySettings) -> None:
    several = f", of up to {found.longest} rows each" if found.longest > 1 else ""
    drawn = study.privacy.sampling_rate * found.patients * (1 - found.set_aside)
    aside = [["of them set aside for evaluation", f"about {found.set_aside:.0%}, never trained on"]]
    rows = [
        ["rows read", str(found.rows)],
        ["patients left out by the policy", str(found.excluded)],
        *([["entries of its list that match nobody", found.unmatched]] if found.unmatched else []),
        ["patients used", f"{found.patients}{several}"],
        *(aside if found.set_aside else []),
        ["rows of each label", ", ".join(f"{label}: {count}" for label, count in found.labels.items()) or "-"],
        ["model", f"{study.training.task}, {found.parameters} parameters"],
        *(
            [["of the first records, without a gradient", f"{found.without_gradient}: they would count as zero"]]
            if found.without_gradient
            else []
        ),
        ["drawn in a step", f"{drawn:.1f} on average; the study counts on {study.privacy.expected_batch_size:g}"],
    ]
    table("These records in this study", ["", ""], rows)
    shares = [
        [
            *(use.name, str(use.values)),
            *(_share(part, use.values) for part in (use.missing, use.clipped, use.wrong, use.other)),
            str(use.of_others),
        ]
        for use in found.inputs
    ]
    # The last two are about events.
    shown = 7 if any(use.other or use.of_others for use in found.inputs) else 5
    heads = ["input", "values", "missing", "clipped to the range", "neither a value nor a code", "other codes"]
    heads.append("of patients not used")
    if shares:
        table("Inputs", heads[:shown], [row[:shown] for row in shares])
    if found.unused:
        more = f", and {len(found.unused) - _NAMED} more" if len(found.unused) > _NAMED else ""
        say(f"columns that the study does not use: {', '.join(found.unused[:_NAMED])}{more}")
    say("nothing was sent or charged; these counts are about your patients and stay here")


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if part else "0"
