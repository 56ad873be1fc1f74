"""`wardround synth`: from a study's questions to a file of synthetic records, and the check of such a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import AsJson, KeyFile, Server, number, operator, plain_errors, print_json, say

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.any_settings import AnySettings
    from study_protocol.study.queries import QueryForecast, SignedAnswer
    from study_protocol.study.synthesis import Synthesis
    from synthesis.forecast import SynthesisForecast

VERIFY = "verify"


def synth(
    study: Annotated[str, typer.Argument(help="name of the study, its settings file (--plan), or `verify`")],
    file: Annotated[Path | None, typer.Argument(help="after `verify`: the file to check")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="new file, .parquet or .csv")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="forecast cost and quality. Asks no hospital")] = False,
    patients: Annotated[int | None, typer.Option(help="with --plan: of all hospitals, about", min=1)] = None,
    sets: Annotated[
        int | None, typer.Option(help="write so many sets, FILE-01 and so on, for intervals", min=2, max=99)
    ] = None,
    coordinator_key: Annotated[str | None, typer.Option(help="fingerprint of the coordinator's key")] = None,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask the questions of a study's synthesis and write synthetic records. `synth verify FILE` makes them again."""
    with plain_errors():
        _require_sensible(study, file, plan, patients)
        if study == VERIFY and file is not None:
            _verify(file, as_json)
            return
        if plan and Path(study).is_file():
            _plan(*_section_of(Path(study)), patients, None, as_json)
            return
        paths = {} if plan else _paths(output, sets)
        with operator(server, key_file) as client:
            client.coordinator_key = coordinator_key
            settings, synthesis = _section(client, study)
            if plan:
                cost = client.forecast_query(study, synthesis.first_question())
                _plan(settings, synthesis, patients or _patients_told(client, study, synthesis), cost, as_json)
                return
            _make(client, study, synthesis, paths)


def _require_sensible(study: str, file: Path | None, plan: bool, patients: int | None) -> None:
    """Check arguments that belong together. Raises ConfigurationError: they do not, and nothing was asked."""
    from client_sdk.errors import ConfigurationError

    if study == VERIFY:
        if file is None:
            raise ConfigurationError("name the file to check: wardround synth verify FILE")
        if not file.is_file():
            raise ConfigurationError(f"{file}: there is no such file")
        return
    if file is not None:
        raise ConfigurationError(f"name the new file with -o: wardround synth {study} -o {file}")
    if not plan and Path(study).suffix in (".toml", ".json"):
        raise ConfigurationError(f"{study}: a file of settings goes with --plan. To make records, name the study")
    if not plan and patients is not None:
        raise ConfigurationError("--patients goes with --plan alone: records follow from the answers")


def _paths(output: Path | None, sets: int | None) -> dict[int | None, Path]:
    """Return the new file of every set. Raises ConfigurationError, OSError: none can be written there."""
    from client_sdk.errors import ConfigurationError
    from synthesis.file import SUFFIXES, path_of_set, provenance_path

    if output is None or output.suffix not in SUFFIXES:
        raise ConfigurationError("name the new file with -o. It ends in .parquet or .csv")
    places = [None] if sets is None else range(1, sets + 1)
    paths: dict[int | None, Path] = {place: output if place is None else path_of_set(output, place) for place in places}
    # Before a question is asked: its cost does not come back.
    for path in paths.values():
        require_writable(path)
        if path.suffix == ".csv":
            require_writable(provenance_path(path))
    return paths


def _section(client: Client, study: str) -> tuple[AnySettings, Synthesis]:
    from client_sdk.errors import ConfigurationError

    settings = client.study(study).settings
    if settings.synthesis is None:
        raise ConfigurationError(f"study {study} makes no synthetic records: its settings have no section synthesis")
    return settings, settings.synthesis


def _verify(file: Path, as_json: bool) -> None:
    from client_sdk.errors import ConfigurationError
    from study_protocol.wire.signing import SigningError, decode_public_key, fingerprint
    from synthesis.file import verify

    try:
        provenance = verify(file)
    except (OSError, SigningError, ValueError) as error:
        raise ConfigurationError(f"not verified: {error}") from error
    key = fingerprint(decode_public_key(provenance.coordinator_key))
    if as_json:
        print_json({"study": provenance.study, "records_sha256": provenance.records_sha256, "coordinator_key": key})
        return
    set_note = "" if provenance.set_number is None else f" (set {provenance.set_number})"
    rows = f"{provenance.synthesis.rows:,} synthetic records"
    say(f"{file.name}: {rows} of study {provenance.study}{set_note}, made again here")
    say(f"{len(provenance.answers)} answers, signed with the key {key}. Compare it with the coordinator's")
    say(f"ledger up to entry {provenance.ledger_entries}: {provenance.ledger_sha256}")
    if provenance.certificate_sha256 is not None:
        say(f"certificate when it was made: {provenance.certificate_sha256}")
    say(f"digest of the records: {provenance.records_sha256}")


def _section_of(file: Path) -> tuple[AnySettings, Synthesis]:
    from client_sdk.errors import ConfigurationError
    from wardround.cli.shared.settings_file import read_any_settings

    settings = read_any_settings(file)
    if settings.synthesis is None:
        raise ConfigurationError(f"{file} has no section synthesis, which names the columns of the records")
    return settings, settings.synthesis


def _patients_told(client: Client, study: str, synthesis: Synthesis) -> int | None:
    """Return the noised number of patients in the answer to the first question, if there is one."""
    from client_sdk.api.pages import all_queries

    digest = synthesis.first_question().digest()
    numbers = [query.number for query in all_queries(client, study) if query.sha256 == digest]
    answered = client.query(study, numbers[0]).answered if numbers else None
    if answered is None:
        return None
    table = answered.published.answer.tables[0]
    return max(round(float(table.rows[0][table.columns.index(table.counts or "")] or 0)), 1)


def _cost_lines(settings: AnySettings, synthesis: Synthesis, now: QueryForecast | None) -> list[str]:
    """Return what all questions cost of each limit, in a study that has charged nothing yet."""
    from accounting.budget.budget import Budget
    from study_protocol.study.plan_of import plan_of

    first = synthesis.first_question()
    budget = Budget(plan_of(settings)).supposing(synthesis.kept_after(first))
    lines = [
        f"all of them cost ε {number(account.epsilon_after_query(first.cost()))} of at most {account.limit.epsilon:g} "
        f"at δ {account.limit.delta:g} ({account.limit.level} {account.limit.definition})"
        for account in budget.accounts
    ]
    fits = budget.authorise_query(first.cost()).is_allowed
    if not fits:
        lines.append("that passes a limit: lower synthesis.allowance, or raise the limit")
    if now is not None:
        lines.append("now their cost fits" if now.allowed else f"now their cost does not fit ({now.reason})")
    return lines


def _plan(
    settings: AnySettings, synthesis: Synthesis, patients: int | None, cost: QueryForecast | None, as_json: bool
) -> None:
    from dataclasses import asdict

    from client_sdk.errors import ConfigurationError
    from synthesis.forecast import forecast

    count = patients or synthesis.patients
    if count is None:
        raise ConfigurationError("say about how many patients all hospitals have together: --patients")
    expected = forecast(synthesis, count)
    first, *later = synthesis.shares
    # Without pairs the first question is asked again with what is left.
    noises = [synthesis.noise_multiplier(share) for share in (first, *(later if expected.pairs else [sum(later)]))]
    if as_json:
        costs = {} if cost is None else {"cost": cost.model_dump(mode="json")}
        print_json({**asdict(expected), "noise_multipliers": noises, **costs})
        return
    say(f"{len(noises)} questions with noise multipliers {', '.join(f'{noise:g}' for noise in noises)}")
    for line in _cost_lines(settings, synthesis, cost):
        say(line)
    _say_quality(expected, count)


def _say_quality(expected: SynthesisForecast, count: int) -> None:
    from synthesis.forecast import FEW_PATIENTS

    say(
        f"forecast for {count:,} patients: {expected.pairs} pairs of columns are counted in groups and "
        f"{expected.edges:.0f} in full. Tables of two columns differ from the patients' by "
        f"{100 * expected.variation:.2g} % of the records (mean total variation)"
    )
    say("from simulated columns of this form. Closely related columns come out worse, by a third or more")
    if expected.has_few_patients:
        say(f"warning: below about {FEW_PATIENTS:,} patients records say little of what belongs together", err=True)
    if not expected.pairs:
        say("the first question is asked twice instead, and no pair of columns is counted", err=True)


def _make(client: Client, study: str, synthesis: Synthesis, paths: dict[int | None, Path]) -> None:
    from synthesis.file import made, write

    if any(path.suffix == ".csv" for path in paths.values()):
        _require_no_formula(synthesis)
    answers, key = _answers(client, study, synthesis)
    certificate, settings_sha256 = _certificate(client, study), client.study(study).settings_sha256
    for place, path in paths.items():
        write(path, made(study, settings_sha256, synthesis, answers, key, certificate, place))
        say(f"{path}: {synthesis.rows:,} synthetic records. No row is a patient. Check: wardround synth verify {path}")
    if None not in paths:
        say("analyse each set alone, and combine the estimates with synthesis.sets.combined")


def _require_no_formula(synthesis: Synthesis) -> None:
    """Require that no spreadsheet takes a name or category for a formula. With an apostrophe it is another value."""
    from client_sdk.errors import ConfigurationError
    from wardround.cli.hospital.spreadsheet import guarded

    for variable in synthesis.columns:
        for text in (variable.column, *(variable.categories or ())):
            if guarded(text) != text:
                raise ConfigurationError(
                    f"column {variable.column}: a spreadsheet would run {text!r} in a CSV file. Name a .parquet file"
                )


def _certificate(client: Client, study: str) -> str | None:
    """Return the digest of the study's certificate, or None if it has none, because it has released no model."""
    from client_sdk.errors import ApiError
    from study_protocol.documents.check import open_certificate
    from study_protocol.documents.pdf_content import digest

    try:
        return digest(open_certificate(client.certificate(study)))
    except ApiError as error:
        if error.code != "unknown-model":
            raise
        return None


def _answers(client: Client, study: str, synthesis: Synthesis) -> tuple[list[SignedAnswer], str]:
    """Return the signed answers, asking each question of the rule that has none, and the key that signed them."""
    from client_sdk.errors import QueryNotAnswered
    from synthesis.rule import next_question

    answers: list[SignedAnswer] = []
    key = ""
    while (document := next_question(synthesis, [answer.published for answer in answers])) is not None:
        # A question that the coordinator has asked by itself is the same one, at no cost.
        result = client.ask(study, document)
        if result.query.answered is None:
            raise QueryNotAnswered(result.query)
        answers.append(result.query.answered)
        key = result.key
        say(f"question {document.question.title}: answered by {result.hospitals} hospitals", err=True)
    return answers, key
