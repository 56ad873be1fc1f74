"""`wardround study …`, `invite` and `revoke`: what an operator does, and what has become of studies."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from study_protocol.secure_sum.promises import sums
from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.settings_file import read_any_settings, read_settings
from wardround.cli.shared.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    a_name,
    ending,
    number,
    operator,
    plain_errors,
    print_json,
    reader,
    say,
    since,
    table,
)

if TYPE_CHECKING:
    from client_sdk.api.calls import Action
    from client_sdk.study.result import StudyModel
    from private_learning.tasks.backbone_file import BackboneFile
    from study_protocol.study.any_settings import AnySettings
    from study_protocol.study.messages import RoundList, RoundView, Study, StudyList
    from study_protocol.study.settings import StudySettings
    from study_protocol.wire.tensors import Array

P = TypeVar("P", bound="StudyList | RoundList")
# Hospitals of a round from which on a note says that a ring costs less.
_MANY = 300
app = typer.Typer(no_args_is_help=True, help="Create and run studies.")
SettingsFile = Annotated[Path, typer.Option(help="the study's settings, JSON or TOML; every privacy setting is in it")]
ModelFile = Annotated[
    Path | None, typer.Option(help="initial weights as safetensors; left out: the task's own, made here")
]
Title = Annotated[str, typer.Option(help="shown to people")]
IKnow = Annotated[
    bool, typer.Option("--i-know", help="noise or limits beyond the usual bounds are wanted; every hospital sees it")
]
ClientName = Annotated[str, typer.Argument(help="name of the hospital in this study", callback=a_name)]
ExpiresDays = Annotated[int, typer.Option(help="days until the invitation expires", min=1, max=90)]
Output = Annotated[Path, typer.Option("--output", "-o", help="file to write; one that exists is not overwritten")]
Round = Annotated[
    int | None, typer.Option("--round", help="the model that this round released; left out: the study's result so far")
]
Last = Annotated[int, typer.Option("--last", help="show this many rounds, the newest", min=1)]


@app.command()
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
    """Create a study and upload its initial model. May be run again."""
    from client_sdk.errors import InvalidRequestError
    from client_sdk.study.versions import refused_by_older
    from study_protocol.study.messages import StudyCreate
    from study_protocol.study.settings import StudySettings
    from study_protocol.study.slots import with_slots

    with plain_errors():
        frozen = with_slots(read_any_settings(settings))
        if (note := _many_neighbours(frozen)) is not None:
            say(note, err=True)
        for line in _accuracy(frozen):
            say(line, err=True)
        if i_know:
            frozen = frozen.model_copy(update={"beyond_bounds": True})
        given = backbone_file(backbone, backbone_program)
        # Before anything is created: settings whose task cannot be built must not use up the study's name.
        first = _initial_model(study, frozen, model, given) if isinstance(frozen, StudySettings) else None
        with operator(server, key_file) as client:
            # A task may draw its weights at random: a second attempt would not bring the same ones.
            try:
                created = client.create_study(StudyCreate(study=study, title=title, settings=frozen))
            except InvalidRequestError as refused:
                raise refused_by_older(refused, frozen) from refused
            if created.model is None and first is not None:
                client.put_initial_model(study, first)
            _show(client.study(study), as_json)


@app.command()
def weights(settings: SettingsFile, output: Output, backbone: Weights = None, backbone_program: Program = None) -> None:
    """Draw a study's initial weights into a file, for `study create --model`. Asks nobody."""
    from private_learning.durable import write_durably
    from study_protocol.wire.tensors import encode

    with plain_errors():
        require_writable(output)
        body = encode(_initial_weights(read_settings(settings), backbone_file(backbone, backbone_program)))
        write_durably(output, body, mode=0o666)
        say(f"{output}: {len(body)} bytes")


def _moving(action: Action, about: str) -> None:
    @app.command(action, help=about)
    def move(study: StudyName, server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
        with plain_errors(), operator(server, key_file) as client:
            _show(client.move_study(study, action), as_json)


_moving("start", "Let rounds begin.")
_moving("pause", "Let the round under way end; no other begins.")
_moving("resume", "Let rounds begin again.")
_moving("stop", "End the study for ever. What was charged stays charged.")


@app.command()
def delete(study: StudyName, server: Server = None, key_file: KeyFile = None) -> None:
    """Delete a study that was never started. Its invitations end, its name stays used."""
    with plain_errors(), operator(server, key_file) as client:
        client.delete_study(study)
        say(f"deleted: {study}. Its ledger is kept, so that the name cannot be used for another study")


@app.command()
def show(
    study: StudyName, server: Server = None, key_file: KeyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Show a study's state and settings."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        _show(client.study(study), as_json)


def list_studies(server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List every study of the coordinator; needs an operator's or a viewer's key."""
    with plain_errors(), operator(server, key_file) as client:
        found = [study for page in _pages(client.studies) for study in page.studies]
    if as_json:
        print_json([study.model_dump(mode="json") for study in found])
        return
    rows = [[s.study, s.title, s.stop_reason or _state(s), str(s.rounds), _enrolled(s)] for s in found]
    table("Studies", ["study", "title", "state", "rounds", "hospitals"], rows)


def rounds(
    study: StudyName,
    last: Last = 20,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show how the newest rounds ended, what was spent after each, and, to operators, who kept one from going on."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        now = client.study(study)
        found = [one for page in _pages(partial(client.rounds, study)) for one in page.rounds][-last:]
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    table(f"Rounds of {study}", ["round", "state", "spent", "measured", "who is missing"], [_row(one) for one in found])
    # Once for each reason, however many rounds ended so.
    for reason in dict.fromkeys(one.reason for one in found if one.reason is not None):
        say(_with_words(reason))
    if now.pause_reason is not None:
        paused = f"paused since {since(now.state_since)} ({now.pause_reason.code})"
        say(f"{paused}. When it is mended: wardround study resume {study}")


def model(
    study: StudyName,
    output: Output,
    round: Round = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
) -> None:
    """Write a study's model to a file, as safetensors, once it is what the study and its ledger say.

    Where the study's settings have an averaging, it is the mean of released models; with --round it is one of them.
    """
    from client_sdk.study.result import released_model, study_model
    from private_learning.durable import write_durably

    with plain_errors():
        require_writable(output)
        with reader(study, server, key_file, home) as client:
            shown = client.study(study)
            found = study_model(client, study) if round is None else released_model(client, shown, round)
        write_durably(output, found.body, mode=0o666)
        goes_on = "" if shown.state == "finished" else "; the study goes on"
        digest = hashlib.sha256(found.body).hexdigest()
        say(f"{output}: {_which(found)}{goes_on}; {len(found.body)} bytes, sha256 {digest}")
        if found.names_study:
            say(f"next: wardround predict {shlex.quote(str(output))} --data new.csv -o predictions.csv")


def _which(found: StudyModel) -> str:
    if len(found.averaged) > 1:
        first, *_, last = found.averaged
        return f"mean of the models of {len(found.averaged)} rounds, {first} to {last}, as the study's settings say"
    return f"model of round {found.round}" if found.round else "initial model, which has learnt nothing"


def invite(
    study: StudyName,
    client: ClientName,
    expires_days: ExpiresDays = 7,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a one-time token for one hospital. It is shown once."""
    from study_protocol.study.messages import InvitationCreate

    with plain_errors(), operator(server, key_file) as api:
        made = api.invite(study, InvitationCreate(client=client, expires_in_seconds=expires_days * 86400))
        if as_json:
            print_json(made)
        else:
            say(made.token)


def revoke(study: StudyName, client: ClientName, server: Server = None, key_file: KeyFile = None) -> None:
    """End a hospital's part in a study, from the next round on. What it sent stays sent."""
    with plain_errors(), operator(server, key_file) as api:
        api.leave(study, client, "revoked")
        say(f"revoked: {client} in {study}")


def _accuracy(settings: AnySettings) -> list[str]:
    """What is to be warned of before a study is created; as `wardround plan` says it."""
    from study_protocol.study.settings import StudySettings
    from wardround.cli.lead.suggest import expected, loose_delta, warnings

    if not isinstance(settings, StudySettings):
        return []
    known, loose = expected(settings), loose_delta(settings)
    if known is None:
        return loose
    return [
        *loose,
        *(f"warning: {one}" for one in known[1]),
        *(one for one in warnings(known[0]) if one.startswith("warning")),
    ]


def _many_neighbours(settings: AnySettings) -> str | None:
    """What to say where every hospital of many would exchange masks with every other."""
    masking, n = settings.privacy.masking, settings.schedule.min_clients
    if masking is None or masking.neighbours is not None or n <= _MANY:
        return None
    return (
        f"note: every hospital exchanges masks with all others, {n - 1} or more: sound, but slow. "
        "privacy.masking.neighbours makes it a ring (docs/threat-model.md)"
    )


def _initial_model(study: str, settings: StudySettings, path: Path | None, backbone: BackboneFile | None) -> bytes:
    """The file of round 0: the task's own weights or those in a file, which says anew of which study they are."""
    from study_protocol.study.model_file import ModelMetadata
    from study_protocol.wire.tensor_files import encode_model

    weights = _initial_weights(settings, backbone) if path is None else _weights_in(path)
    return encode_model(weights, ModelMetadata.of(study, settings, 0).header())


def _weights_in(path: Path) -> dict[str, Array]:
    from study_protocol.wire.tensor_files import TensorFile, gather_tensors, read

    with path.open("rb") as file:
        tensors = TensorFile(file.fileno())
        return gather_tensors(tensors.spec, read(tensors))


def _initial_weights(settings: StudySettings, backbone: BackboneFile | None) -> dict[str, Array]:
    """Of a built-in task without torch, unless a part of its model is trained.

    Raises:
        ConfigurationError: the task needs a package that is not installed here, or the backbone does not fit.
        TaskError: it cannot be loaded, or its code failed.
    """
    from client_sdk.errors import ConfigurationError
    from private_learning import tasks
    from private_learning.tasks.task import new_model
    from private_learning.tasks.weights import drawn_weights

    training = settings.training
    try:
        task = tasks.load(training.task, training.task_parameters)
        weights = drawn_weights(task) if training.trainable == "all" else None
        if weights is None:
            from private_learning.training.weights import weights_of

            task = tasks.of_study(training, backbone)
            weights = weights_of(new_model(task, training.task))
    except (tasks.TaskError, ModuleNotFoundError) as error:
        missing = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if not isinstance(missing, ModuleNotFoundError):
            raise
        why = f"{missing.name} is not installed" if error is missing else str(error)
        raise ConfigurationError(
            f"the initial weights of task {training.task!r} cannot be made here: {why}. Pass --model FILE; where the "
            "task is installed with all that it needs, `wardround study weights --settings FILE -o FILE` makes one"
        ) from error
    return weights


def _show(study: Study, as_json: bool) -> None:
    if as_json:
        print_json(study)
        return
    settings, privacy = study.settings, study.settings.privacy
    named = [one.name for one in settings.schedule.witnesses]
    rows = [
        ["state", _state(study)],
        ["rounds", f"{study.rounds} begun; at most {settings.rounds} of training that are charged"],
        ["hospitals", f"{_enrolled(study)}; a round needs {settings.schedule.min_clients} at least"],
        ["scheme", privacy.rules.display_name],
        *_training(settings),
        *(
            [f"limit, {li.level} {li.definition}", f"epsilon {li.epsilon:g} at delta {li.delta:g}"]
            for li in privacy.limits
        ),
        *([["slots", f"{', '.join(f'{one:g}' for one in slots)} s"]] if (slots := settings.schedule.slots) else []),
        *([["outside witnesses", ", ".join(named)]] if named else []),
        *(["under masks", line] for line in sums(privacy.masking)),
        ["settings", f"sha256 {study.settings_sha256}"],
    ]
    table(f"Study {study.study}", ["", ""], rows)


def _training(settings: AnySettings) -> list[list[str]]:
    from study_protocol.study.settings import StudySettings

    rows: list[list[str]] = []
    if isinstance(settings, StudySettings):
        privacy, training = settings.privacy, settings.training
        rows = [
            ["training", f"{training.task}, {training.algorithm}, local steps: {training.local_steps}"],
            ["disclosure", privacy.disclosure],
            ["noise", f"multiplier {privacy.noise_multiplier:g} at clip norm {privacy.clip_norm:g}"],
        ]
    if settings.statistics is not None:
        most = settings.statistics
        rows.append(["queries", f"at most {most.max_queries}, each of at most {most.max_cells} numbers"])
    return rows


def _state(study: Study) -> str:
    if study.pause_reason is not None:
        return f"paused since {since(study.state_since)}: {study.pause_reason.detail}"
    return f"{study.state} ({ending(study.stop_reason)})" if study.stop_reason else study.state


def _enrolled(study: Study) -> str:
    return f"{study.clients} of {study.invited} invited have enrolled"


def _with_words(reason: str) -> str:
    from study_protocol.study.reasons import in_words

    words = in_words(reason)
    return reason if words == reason else f"{reason}: {words}"


def _pages(page: Callable[[Any], P]) -> Iterator[P]:
    """All pages of a list, from the first. page: takes None, then what the page before calls `next`."""
    found = page(None)
    yield found
    while found.next is not None:
        found = page(found.next)
        yield found


def _row(one: RoundView) -> list[str]:
    spent = ", ".join(f"{each.level} {each.definition} {number(each.spent)}" for each in one.spent or [])
    values = {} if one.metrics is None else one.metrics.values
    measured = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
    missing = [
        f"{each.client}: {each.refusal.detail if each.refusal is not None else each.state}"
        for each in one.clients or []
        if each.state != "received"
    ]
    why = one.reason or one.state
    return [str(one.round), why, spent, measured, "\n".join(missing)]
