"""The group `wardround study`, and the commands `invite` and `revoke` of a lead."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from study_protocol.documents.phrases import made_of
from study_protocol.study.reasons import TAKES_QUESTIONS, explained
from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.lead.initial_model import initial_model, initial_weights
from wardround.cli.lead.study_shown import after_pause, enrolled, round_row, show_study, state_in_words
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.settings_file import read_any_settings, read_settings
from wardround.cli.shared.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    a_name,
    operator,
    plain_errors,
    print_json,
    reader,
    say,
    table,
)

if TYPE_CHECKING:
    from client_sdk.api.calls import Action
    from client_sdk.api.client import Client
    from client_sdk.study.result import StudyModel
    from study_protocol.study.any_settings import AnySettings
    from study_protocol.study.messages import RoundList, Study, StudyList

P = TypeVar("P", bound="StudyList | RoundList")
# With more hospitals than this in a round, a note says that a ring costs less.
_MAX_ALL_NEIGHBOURS = 300
SettingsFile = Annotated[Path, typer.Option(help="the study's settings, JSON or TOML, with every privacy setting")]
ModelFile = Annotated[
    Path | None, typer.Option(help="initial weights as safetensors. Default: drawn by the task on this machine")
]
Title = Annotated[str, typer.Option(help="title that people see")]
IKnow = Annotated[
    bool, typer.Option("--i-know", help="confirm noise or limits beyond the usual bounds. Every hospital sees it")
]
ClientName = Annotated[str, typer.Argument(help="name of the hospital in this study", callback=a_name)]
ExpiresDays = Annotated[int, typer.Option(help="days until the invitation expires", min=1, max=90)]
Output = Annotated[Path, typer.Option("--output", "-o", help="new file to write. An existing file is kept")]
Round = Annotated[
    int | None, typer.Option("--round", help="the model that this round released. Default: the study's result so far")
]
QuestionsFirst = Annotated[
    bool, typer.Option("--questions-first", help="answer questions only, until `wardround study train` begins training")
]
Released = Annotated[
    Path | None,
    typer.Option(help="folder for the released models that a mean is made of, to check it", file_okay=False),
]
Last = Annotated[int, typer.Option("--last", help="number of the newest rounds to show", min=1)]


def create(
    study: StudyName,
    settings: SettingsFile,
    model: ModelFile = None,
    title: Title = "",
    i_know: IKnow = False,
    backbone: Weights = None,
    backbone_program: Program = None,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a study from a settings file and upload its initial model. Safe to run again."""
    from client_sdk.errors import InvalidRequestError
    from client_sdk.study.versions import refused_by_older
    from study_protocol.study.messages import StudyCreate
    from study_protocol.study.settings import StudySettings
    from study_protocol.study.slots import with_slots

    with plain_errors():
        frozen, reasons = _with_rules(with_slots(read_any_settings(settings)))
        if (note := _many_neighbours(frozen)) is not None:
            say(note, err=True)
        for line in (*reasons, *_accuracy(frozen)):
            say(line, err=True)
        if i_know:
            frozen = frozen.model_copy(update={"beyond_bounds": True})
        backbone_of_study = backbone_file(backbone, backbone_program)
        # Before the study is created: settings with a task that cannot be built must not use up the study's name.
        first = initial_model(study, frozen, model, backbone_of_study) if isinstance(frozen, StudySettings) else None
        with operator(server, key_file) as client:
            # A task may draw its weights at random: a second attempt would not bring the same ones.
            try:
                created = client.create_study(StudyCreate(study=study, title=title, settings=frozen))
            except InvalidRequestError as refused:
                raise refused_by_older(refused, frozen) from refused
            if created.model is None and first is not None:
                client.put_initial_model(study, first)
            show_study(client.study(study), as_json)


def weights(settings: SettingsFile, output: Output, backbone: Weights = None, backbone_program: Program = None) -> None:
    """Draw a study's initial weights into a file for `study create --model`. Works without a network."""
    from study_protocol.files.durable import write_durably
    from study_protocol.wire.tensors import encode

    with plain_errors():
        require_writable(output)
        body = encode(initial_weights(read_settings(settings), backbone_file(backbone, backbone_program)))
        write_durably(output, body, mode=0o666)
        say(f"{output}: {len(body)} bytes")


def start(
    study: StudyName,
    questions_first: QuestionsFirst = False,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Start the study's rounds."""
    _move(study, "start", server, key_file, as_json, questions_first=questions_first)


def train(study: StudyName, server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Begin the training of a study that was started with --questions-first."""
    _move(study, "train", server, key_file, as_json)


def pause(study: StudyName, server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Pause training: no new round begins. Questions are still answered, unless the study is of questions alone."""
    _move(study, "pause", server, key_file, as_json)


def resume(study: StudyName, server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Resume a paused study."""
    _move(study, "resume", server, key_file, as_json)


def stop(study: StudyName, server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """End the study permanently. Charges to the budget stay."""
    _move(study, "stop", server, key_file, as_json)


def _move(
    study: str,
    action: Action,
    server: str | None,
    key_file: Path | None,
    as_json: bool,
    *,
    questions_first: bool = False,
) -> None:
    with plain_errors(), operator(server, key_file) as client:
        show_study(client.move_study(study, action, questions_first=questions_first), as_json)


def delete(study: StudyName, server: Server = None, key_file: KeyFile = None) -> None:
    """Delete a study that was never started. Its invitations end, and its name cannot be used again."""
    with plain_errors(), operator(server, key_file) as client:
        client.delete_study(study)
        say(f"deleted: {study}. Its ledger is kept, so that the name cannot be used for another study")


def show(
    study: StudyName, server: Server = None, key_file: KeyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Show a study's state and settings."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        current = client.study(study)
        show_study(current, as_json, state=TAKES_QUESTIONS if not as_json and _asks_only(client, current) else None)


def list_studies(server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List every study of the coordinator. Needs an API key."""
    with plain_errors(), operator(server, key_file) as client:
        studies = [study for page in _pages(client.studies) for study in page.studies]
    if as_json:
        print_json([study.model_dump(mode="json") for study in studies])
        return
    rows = [[s.study, s.title, s.stop_reason or state_in_words(s), str(s.rounds), enrolled(s)] for s in studies]
    table("Studies", ["study", "title", "state", "rounds", "hospitals"], rows)


def rounds(
    study: StudyName,
    last: Last = 20,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show how the newest rounds ended and what was spent after each. Leads also see the missing hospitals."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        now = client.study(study)
        all_rounds = [round_view for page in _pages(partial(client.rounds, study)) for round_view in page.rounds]
        newest_rounds = all_rounds[-last:]
    if as_json:
        print_json([round_view.model_dump(mode="json") for round_view in newest_rounds])
        return
    table(
        f"Rounds of {study}",
        ["round", "state", "guaranteed", "measured", "who is missing"],
        [round_row(*pair) for pair in zip(newest_rounds, [None, *all_rounds][-len(newest_rounds) - 1 :], strict=False)],
    )
    # Each reason is printed once.
    for reason in dict.fromkeys(round_view.reason for round_view in newest_rounds if round_view.reason is not None):
        say(explained(reason))
    if now.pause_reason is not None:
        say(after_pause(now, now.pause_reason.code))


def model(
    study: StudyName,
    output: Output,
    round_number: Round = None,
    released: Released = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
) -> None:
    """Write a study's model to a safetensors file, after checking it against the study and its ledger.

    If the settings have an averaging, this is the mean of released models. With --round it is one of them.
    """
    from client_sdk.study.result import released_model, study_model
    from study_protocol.files.durable import write_durably

    with plain_errors():
        require_writable(output)
        with reader(study, server, key_file, home) as client:
            received_study = client.study(study)
            study_model_file = (
                study_model(client, study, _folder(released))
                if round_number is None
                else released_model(client, received_study, round_number)
            )
            goes_on = TAKES_QUESTIONS if _asks_only(client, received_study) else "the study continues"
        write_durably(output, study_model_file.body, mode=0o666)
        ending = "" if received_study.state == "finished" else f", {goes_on}"
        digest = hashlib.sha256(study_model_file.body).hexdigest()
        say(
            f"{output}: {_describe_model(study_model_file)}{ending}, "
            f"{len(study_model_file.body)} bytes, sha256 {digest}"
        )
        if study_model_file.names_study:
            say(f"next: wardround predict {shlex.quote(str(output))} --data new.csv -o predictions.csv")


def _asks_only(client: Client, study: Study) -> bool:
    """Return whether training is done and questions are open."""
    return study.settings.statistics is not None and client.budget(study.study).takes_questions


def _folder(path: Path | None) -> Path | None:
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
    return path


def _describe_model(study_model: StudyModel) -> str:
    if len(study_model.averaged) > 1:
        return f"the study's result, {made_of(study_model.averaged)} as the settings say"
    return f"model of round {study_model.round}" if study_model.round else "initial model, which is not trained yet"


def invite(
    study: StudyName,
    client: ClientName,
    expires_days: ExpiresDays = 7,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a one-time token for one hospital and print it. It is shown only once."""
    from study_protocol.study.messages import InvitationCreate

    with plain_errors(), operator(server, key_file) as api:
        invitation = api.invite(study, InvitationCreate(client=client, expires_in_seconds=expires_days * 86400))
        if as_json:
            print_json(invitation)
        else:
            say(invitation.token)


def revoke(study: StudyName, client: ClientName, server: Server = None, key_file: KeyFile = None) -> None:
    """Remove a hospital from a study from the next round on. Updates that it sent stay in the study."""
    with plain_errors(), operator(server, key_file) as api:
        api.leave(study, client, "revoked")
        say(f"revoked: {client} in {study}")


def _with_rules(settings: AnySettings) -> tuple[AnySettings, list[str]]:
    """Return the settings with the tightest sound rule for each limit that names none, and notes that say why."""
    from study_protocol.study.settings import StudySettings
    from wardround.cli.lead.enforcement import for_creation

    return for_creation(settings) if isinstance(settings, StudySettings) else (settings, [])


def _accuracy(settings: AnySettings) -> list[str]:
    """Return the warnings of `wardround plan` before a study is created."""
    from study_protocol.study.settings import StudySettings
    from wardround.cli.lead.forecast_in_words import loose_delta, warnings
    from wardround.cli.lead.suggest import expected

    if not isinstance(settings, StudySettings):
        return []
    outlook, delta_warnings = expected(settings), loose_delta(settings)
    if outlook is None:
        return delta_warnings
    return [
        *delta_warnings,
        *(f"warning: {remark}" for remark in outlook[1]),
        *(remark for remark in warnings(outlook[0]) if remark.startswith("warning")),
    ]


def _many_neighbours(settings: AnySettings) -> str | None:
    """Return a note if each of many hospitals would exchange masks with every other, otherwise None."""
    masking, n = settings.privacy.masking, settings.schedule.min_clients
    if masking is None or masking.neighbours is not None or n <= _MAX_ALL_NEIGHBOURS:
        return None
    return (
        f"note: every hospital exchanges masks with all others, {n - 1} or more. This is sound, but slow. "
        "privacy.masking.neighbours makes it a ring (docs/threat-model.md)"
    )


def _pages(page: Callable[[Any], P]) -> Iterator[P]:
    """Yield all pages of a list. page: takes None, then the `next` of the page before."""
    current = page(None)
    yield current
    while current.next is not None:
        current = page(current.next)
        yield current
