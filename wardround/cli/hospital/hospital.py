"""Commands of a hospital: `wardround enrol`, `join`, `rotate-key`, `withdraw` and `doctor`."""

from __future__ import annotations

import dataclasses
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from client_sdk.api.config import load as load_settings
from study_protocol.study.reasons import ending
from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.hospital.mapping import ColumnsFile, apply_mapping, log_mapping, mapping_digest, mapping_words
from wardround.cli.hospital.named_records import named_records
from wardround.cli.hospital.table_format import FormatOptions, read_declared, stored_format
from wardround.cli.shared.exit_codes import ExitCode, codes_in_words
from wardround.cli.shared.person_options import PersonOptions, with_person
from wardround.cli.shared.shared import (
    AsJson,
    Home,
    Server,
    StudyName,
    hospital,
    plain_errors,
    print_json,
    say,
    show_log,
    table,
    typed_again,
)

if TYPE_CHECKING:
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.study.hospital import Hospital
    from client_sdk.study.participation import Outcome
    from client_sdk.study.snapshot_records import FoundRecords
    from private_learning.records import MappingCounts, Records, TableFormat

# With `--once`: to wait for a round, and to repeat a request at least, so that a short outage breaks no masked sum.
_ONCE_SECONDS, _MIN_PATIENCE_SECONDS = 600, 60.0

Token = Annotated[str, typer.Argument(help="invitation token. - reads it from standard input")]
Data = Annotated[
    Path,
    typer.Option(
        help="records: .csv, .tsv, .parquet, .arrow, .npz, inputs.npy, images-idx, shards as .tar, a folder of "
        "images with one sub-folder a class, or the name of a snapshot"
    ),
]
PatientColumn = Annotated[
    str | None, typer.Option(help="column with the patient of each row. Default: the one that a snapshot names")
]
Separator = Annotated[
    Literal["comma", "semicolon", "tab", "bar"] | None, typer.Option(help="separator between the cells of a text table")
]
Encoding = Annotated[str | None, typer.Option(help="encoding of a text table that is not Unicode, for example cp1252")]
Decimal = Annotated[Literal["point", "comma"] | None, typer.Option(help="decimal mark of numbers in texts: 1.5 or 1,5")]
Dates = Annotated[
    Literal["dmy", "mdy"] | None,
    typer.Option(help="order of dates that end with the year. Default: such texts are not read as dates"),
]
Lazy = Annotated[
    bool | None,
    typer.Option(
        "--lazy/--in-memory",
        help="read Parquet, images, shards and arrays when needed, or all at the start. Default: decided by their size",
    ),
]
TaskName = Annotated[str | None, typer.Option(help="task that you agree to. Default: the one that the study names")]
Device = Annotated[
    str,
    typer.Option(
        help="torch device: cpu, cuda, cuda:0,cuda:1 for several GPUs, cuda:all, or auto: a GPU if there is one"
    ),
]
Bfloat16 = Annotated[
    bool, typer.Option("--bfloat16", help="compute the model in bfloat16. Norms, sums and noise keep their precision")
]
Dataset = Annotated[str, typer.Option(help="name of these records. Studies on the same records share its ledger")]
DataVersion = Annotated[str, typer.Option(help="version of these records. Queries about another version are refused")]
PolicyFile = Annotated[Path | None, typer.Option(help="site policy. Default: policy.toml in the hospital's directory")]
Events = Annotated[Path | None, typer.Option(help="append one line of JSON to this file after every round")]
AcceptLost = Annotated[
    bool,
    typer.Option("--accept-lost-ledger", help="continue although the ledger is lost. Its rounds are charged in full"),
]
AcceptChanged = Annotated[
    bool,
    typer.Option(
        "--accept-changed-records", help="the data set has changed since its studies used it. The own ledger keeps that"
    ),
]
NewServer = Annotated[
    str | None,
    typer.Option(
        "--server", help="new address of the coordinator, if it has moved. Its key must be the same. It is kept"
    ),
]
NoFeatureCache = Annotated[
    bool, typer.Option("--no-feature-cache", help="compute the backbone's features again in every run, and store none")
]
Slot = Annotated[
    float | None,
    typer.Option(
        help="this hospital answers at multiples of this many seconds. One of the study's schedule.slots: one second "
        "for each 1,000 patients, rounded up. Default: as declared before, else as the study plans"
    ),
]
Once = Annotated[
    bool,
    typer.Option(
        "--once",
        help="take part in at most one round. The exit code says whether more is to come. For cron and batch systems",
    ),
]
WaitSeconds = Annotated[
    int | None,
    typer.Option(
        min=0,
        help=f"with --once: seconds to wait for a round. One that has begun is finished. Default: {_ONCE_SECONDS}",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="agree without a question. The site policy still applies")]


@with_person
def enrol(token: Token, server: Server = None, home: Home = None, *, person: PersonOptions) -> None:
    """Enrol this hospital in a study with an invitation token, and create its key. Safe to run again."""
    from client_sdk.study.hospital import Hospital

    with plain_errors():
        settings = load_settings()
        piped = token == "-"  # noqa: S105 (a dash, not a token)
        given_token = typer.get_text_stream("stdin").readline().strip() if piped else token
        enrolled = Hospital.enrol(
            settings.connection(server).url,
            given_token,
            directory=home or settings.client_home,
            connection=settings.connection,
            person=person.acting(),
        )
        memberships = enrolled.identity.memberships()
        say(f"enrolled: {', '.join(f'{m.study} as {m.client}' for m in memberships)}")
        study = memberships[0].study if len(memberships) == 1 else "STUDY"
        say(f"when all hospitals have enrolled, compare who they are: wardround roster show {study}", err=True)


@with_person
def join(
    context: typer.Context,
    study: StudyName,
    data: Data,
    patient_column: PatientColumn = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    columns: ColumnsFile = None,
    lazy: Lazy = None,
    task: TaskName = None,
    device: Device = "auto",
    bfloat16: Bfloat16 = False,
    dataset: Dataset = "records",
    data_version: DataVersion = "1",
    policy: PolicyFile = None,
    events: Events = None,
    accept_lost_ledger: AcceptLost = False,
    accept_changed_records: AcceptChanged = False,
    backbone: Weights = None,
    backbone_program: Program = None,
    no_feature_cache: NoFeatureCache = False,
    slot: Slot = None,
    server: NewServer = None,
    once: Once = False,
    wait: WaitSeconds = None,
    yes: Yes = False,
    home: Home = None,
    as_json: AsJson = False,
    *,
    person: PersonOptions,
) -> None:
    """Take part in a study until it ends. If you stop it, the same command continues where it was."""
    from wardround.cli.hospital.rounds import RoundsShown

    # A person at the hospital sees warnings and a line for each round. A bad events file fails before any charge.
    with plain_errors(), RoundsShown(study, show_log(), events) as display:
        joining_hospital = _at(server, study, home, within := _one_round_within(once, wait))
        options = FormatOptions(separator, encoding, decimal, dates)
        source = named_records(data, patient_column, joining_hospital.directory)
        stored, asks = stored_format(joining_hospital.directory, dataset), _asks_person(yes)
        records, counts = _read_mapped(context, options, stored, source, columns, lazy=lazy, ask=asks)
        rules, weights, cache = _policy_of(policy), backbone_file(backbone, backbone_program), not no_feature_cache
        take_part = partial(joining_hospital.join, device=device, bfloat16=bfloat16, slot=slot, dataset=dataset)
        take_part = partial(take_part, data_version=data_version, policy=rules, backbone=weights, feature_cache=cache)
        take_part = partial(take_part, on_round=display.listener, on_wait=display.on_wait, one_round_within=within)
        take_part = partial(take_part, person=person.attending(is_asked=asks), accept_lost_ledger=accept_lost_ledger)
        outcome = take_part(study, task, records, **_questions(yes, accept_changed_records, source, records, counts))
    _show_outcome(outcome, home, as_json)


join.__doc__ = f"{join.__doc__}\n\n{codes_in_words()}"


def _asks_person(yes: bool) -> bool:
    from wardround.cli.hospital.agreement import at_a_terminal

    return at_a_terminal() and not yes


def _one_round_within(once: bool, wait: int | None) -> float | None:
    """Return the seconds to wait for one round. None: take part until the study ends."""
    if wait is not None and not once:
        raise typer.BadParameter(
            "it needs --once, because without it the command stays in the study", param_hint="--wait"
        )
    return float(_ONCE_SECONDS if wait is None else wait) if once else None


def _read_mapped(
    context: typer.Context,
    options: FormatOptions,
    stored: TableFormat | None,
    source: FoundRecords,
    columns: Path | None,
    *,
    lazy: bool | None,
    ask: bool,
) -> tuple[Records, tuple[MappingCounts, ...]]:
    """Return the records with the hospital's mapping, and what it made of each column, which is logged."""
    command = typed_again(context, FormatOptions)
    patient = source.patient_column
    local = read_declared(source.path, options, stored, patient_column=patient, lazy=lazy, ask=ask, command=command)
    records, counts = apply_mapping(local, columns, patient)
    log_mapping(records, counts)
    return records, counts


def _questions(
    yes: bool, accept_changed: bool, source: FoundRecords, records: Records, counts: tuple[MappingCounts, ...]
) -> dict[str, Any]:
    """Return the arguments of `Hospital.join` that show a person what takes part, and ask."""
    from wardround.cli.hospital.agreement import Question, RecordsQuestion

    return {
        "agree": Question(yes, source, mapping_words(records, counts)),
        "origin": source.origin(mapping_digest(records)),
        "accepts_records": RecordsQuestion(accept_changed, unattended=yes),
    }


def _policy_of(file: Path | None) -> SitePolicy | None:
    from client_sdk.guard.policy import SitePolicy

    return None if file is None else SitePolicy.read(file)


def _at(server: str | None, study: str, home: Path | None, one_round_within: float | None) -> Hospital:
    """Return the hospital, once it has found its coordinator at a new address, if one is given."""
    from client_sdk.study.hospital import PATIENCE_SECONDS

    if server is not None:
        hospital(home).move(study, server)
    patience = PATIENCE_SECONDS if one_round_within is None else max(one_round_within, _MIN_PATIENCE_SECONDS)
    return hospital(home, patience_seconds=patience)


def _show_outcome(outcome: Outcome, home: Path | None, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(outcome) | {"statement": outcome.statement.model_dump(mode="json")})
    else:
        say(f"{outcome.study}: {outcome.rounds_sent} updates sent, {outcome.rounds_refused} refused")
        _show_end(outcome, home)
    if outcome.more_to_come:
        raise typer.Exit(ExitCode.MORE_TO_COME)


def _show_end(outcome: Outcome, home: Path | None) -> None:
    if outcome.more_to_come:
        say("more is to come: run the same command again")
        return
    say(f"the study has ended: {ending(outcome.reason)}")
    if outcome.rounds_sent:
        at = "" if home is None else f" --home {shlex.quote(str(home))}"
        say(f"its model: wardround study model {outcome.study}{at} -o model.safetensors")


def rotate_key(home: Home = None) -> None:
    """Replace this hospital's key in every study. Run it again if interrupted. Then the others pin the new roster."""
    with plain_errors():
        studies = hospital(home).rotate_key()
        say(f"new key in: {', '.join(studies) or 'no study'}")


def withdraw(study: StudyName, home: Home = None) -> None:
    """Leave a study for good from the next round on. Updates that were sent stay in the study."""
    with plain_errors():
        leaving_hospital = hospital(home)
        with leaving_hospital.client(study) as client:
            client.leave(study, leaving_hospital.identity.membership(study).client, "withdrawn")
        say(f"withdrawn from {study}")


def policy_in_force(path: Path | None, directory: Path) -> SitePolicy:
    """Return the policy of a file, or the hospital's own. Raises ConfigurationError: it is not valid."""
    from client_sdk.guard.policy import SitePolicy

    return SitePolicy.in_force(directory) if path is None else SitePolicy.read(path)


def doctor(server: Server = None, home: Home = None, dataset: Dataset = "records", as_json: AsJson = False) -> None:
    """Check the installation, address, proxy, TLS, clock, key file, disk, policy and ledger, without changing them."""
    from client_sdk.study.diagnostics import Finding, examine
    from wardround.installation import clashes, remarks

    wrong, noted = clashes(), remarks()
    verdict = "bad" if wrong else "note" if noted else "good"
    findings = [Finding("packages", verdict, "; ".join(wrong + noted) or "all are Wardround's own")]
    with plain_errors():
        findings += examine(load_settings(), server=server, home=home, dataset=dataset)
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        table("Doctor", ["", "check", "finding"], [[f.verdict, f.check, f.text] for f in findings])
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(1)
