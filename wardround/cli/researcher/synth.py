"""`wardround synth`: from a study's questions to a file of synthetic records, and the check of such a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import AsJson, KeyFile, Server, operator, plain_errors, print_json, say

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.queries import SignedAnswer
    from study_protocol.study.synthesis import Synthesis

VERIFY = "verify"


def synth(
    study: Annotated[str, typer.Argument(help="name of the study, or `verify` to check a file")],
    file: Annotated[Path | None, typer.Argument(help="after `verify`: the file to check")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="new file, .parquet or .csv")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="show the cost of all questions. Asks no hospital")] = False,
    coordinator_key: Annotated[str | None, typer.Option(help="fingerprint of the coordinator's key")] = None,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask the questions of a study's synthesis and write synthetic records. `synth verify FILE` makes them again."""
    with plain_errors():
        if study == VERIFY and file is not None:
            _verify(file, as_json)
            return
        require_writable(output)
        with operator(server, key_file) as client:
            client.coordinator_key = coordinator_key
            synthesis = _section(client, study)
            if plan:
                _plan(client, study, synthesis, as_json)
                return
            _make(client, study, synthesis, output)


def _section(client: Client, study: str) -> Synthesis:
    from client_sdk.errors import ConfigurationError

    synthesis = client.study(study).settings.synthesis
    if synthesis is None:
        raise ConfigurationError(f"study {study} makes no synthetic records: its settings have no section synthesis")
    return synthesis


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
    say(f"{file.name}: {provenance.synthesis.rows:,} synthetic records of study {provenance.study}, made again here")
    say(f"{len(provenance.answers)} answers, signed with the key {key}. Compare it with the coordinator's")
    say(f"ledger up to entry {provenance.ledger_entries}: {provenance.ledger_sha256}")
    if provenance.certificate_sha256 is not None:
        say(f"certificate when it was made: {provenance.certificate_sha256}")
    say(f"digest of the records: {provenance.records_sha256}")


def _plan(client: Client, study: str, synthesis: Synthesis, as_json: bool) -> None:
    forecast = client.forecast_query(study, synthesis.first_question())
    noises = [synthesis.noise_multiplier(share) for share in synthesis.shares]
    if as_json:
        print_json(forecast.model_dump(mode="json") | {"noise_multipliers": noises})
        return
    words = "fits" if forecast.allowed else f"does not fit ({forecast.reason})"
    say(
        f"{len(noises)} questions with noise multipliers {', '.join(f'{noise:g}' for noise in noises)}: "
        f"their cost {words}"
    )
    if (synthesis.patients or synthesis.least_patients) < synthesis.least_patients:
        say("with so few patients the first question is asked twice, and no pair of columns is counted")


def _make(client: Client, study: str, synthesis: Synthesis, output: Path | None) -> None:
    from client_sdk.errors import ConfigurationError
    from synthesis.file import SUFFIXES, made, write

    if output is None or output.suffix not in SUFFIXES:
        raise ConfigurationError("name the new file with -o. It ends in .parquet or .csv")
    answers, key = _answers(client, study, synthesis)
    settings = client.study(study).settings_sha256
    records = made(study, settings, synthesis, answers, key, _certificate(client, study))
    write(output, records)
    say(f"{output}: {synthesis.rows:,} synthetic records. No row is a patient. Check: wardround synth verify {output}")


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
