"""`wardround data …`: what a study would make of this hospital's records, before anybody is asked."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.api.config import load as load_settings
from client_sdk.commands.hospital import Backbone, Device, Encoding, Lazy, PatientColumn, PolicyFile
from client_sdk.commands.settings_file import read_settings
from client_sdk.commands.shared import AsJson, Home, plain_errors, print_json, say, show_log, table

if TYPE_CHECKING:
    from client_sdk.protocol.study.settings import StudySettings
    from client_sdk.study.preparation import DataCheck

app = typer.Typer(no_args_is_help=True, help="Try a study's settings on this hospital's records.")
Records = Annotated[Path, typer.Argument(help="records, as `join --data` takes them")]
SettingsFile = Annotated[Path, typer.Option(help="the study's settings, JSON or TOML: ask whoever leads the study")]


@app.callback()
def _group() -> None:
    """Without a callback a group of one command would be that command."""


@app.command()
def check(
    records: Records,
    settings: SettingsFile,
    patient_column: PatientColumn = None,
    encoding: Encoding = None,
    lazy: Lazy = None,
    device: Device = "auto",
    policy: PolicyFile = None,
    backbone: Backbone = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Read the records and make the training as `join` would. Needs no network, charges and sends nothing."""
    from client_sdk.data import load
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.study.preparation import check_data

    show_log()
    with plain_errors():
        rules = SitePolicy.in_force(home or load_settings().client_home) if policy is None else SitePolicy.read(policy)
        study = read_settings(settings)
        read = load(records, patient_column=patient_column, encoding=encoding, lazy=lazy)
        found = check_data(read, rules, study, device=device, backbone=backbone)
        if as_json:
            print_json(dataclasses.asdict(found))
        else:
            _show(found, study)


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
        ["drawn in a step", f"{drawn:.1f} on average; the study counts on {study.privacy.expected_batch_size:g}"],
    ]
    table("These records in this study", ["", ""], rows)
    shares = [
        [
            *(use.name, str(use.values)),
            *(_share(part, use.values) for part in (use.missing, use.clipped, use.other)),
            str(use.of_others),
        ]
        for use in found.inputs
    ]
    # The last two are about events.
    shown = 6 if any(use.other or use.of_others for use in found.inputs) else 4
    heads = ["input", "values", "missing", "clipped to the range", "other codes", "of patients not used"]
    if shares:
        table("Inputs", heads[:shown], [row[:shown] for row in shares])
    if found.unused:
        say(f"columns that the study does not use: {', '.join(found.unused)}")
    say("nothing was sent, charged or written; these counts are about your patients and stay here")


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if part else "0"
