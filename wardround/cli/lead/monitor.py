"""The group `wardround monitor`: ask about windows of later patients, and show the control chart with its alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.shared.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    operator,
    plain_errors,
    print_json,
    reader,
    say,
    table,
)

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.queries.answer import Answer
    from study_protocol.study.control_chart import WindowFigure
    from study_protocol.study.monitoring import MonitoringSettings
    from study_protocol.study.queries import Query

    Windows = Mapping[int, Mapping[str, WindowFigure]]

Window = Annotated[
    int | None, typer.Option("--window", help="only this window, from 1. Default: all that are due", min=1)
]
CoordinatorKey = Annotated[
    str | None,
    typer.Option(
        "--coordinator-key",
        help="verify the answers with this key or fingerprint, not with the key that the coordinator shows",
    ),
]


def ask(
    study: StudyName,
    window: Window = None,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask about the windows of later patients that are due. A window that was asked about is not asked again."""
    from client_sdk.errors import ConfigurationError

    with plain_errors(), operator(server, key_file) as client:
        monitoring = _monitoring(client, study)
        if window is not None and window > monitoring.windows:
            raise ConfigurationError(f"--window {window}: the study has {monitoring.windows} windows")
        numbers = windows_due(monitoring, _by_window(client, study, monitoring)) if window is None else [window]
        model = _newest_model(client, study)
        queries = [client.ask_query(study, monitoring.document(number, model)) for number in numbers]
    if as_json:
        print_json([query.model_dump(mode="json") for query in queries])
        return
    for number, query in zip(numbers, queries, strict=True):
        version = monitoring.data_version(number)
        say(f"window {number} is query {query.number}: {query.state}. Hospitals answer on records of version {version}")
    if not numbers:
        say("no window is due that was not asked about")


def show(
    study: StudyName,
    coordinator_key: CoordinatorKey = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show the control chart of the released model on later patients, and its alarms."""
    from study_protocol.study.control_chart import figures_of, threshold_of

    with plain_errors(), reader(study, server, key_file, home) as client:
        if coordinator_key is not None:
            client.coordinator_key = coordinator_key
        monitoring, is_mean = _monitoring(client, study), _is_mean(client, study)
        queries = _by_window(client, study, monitoring)
        answers = {
            number: _answer(client, study, query) for number, query in queries.items() if query.state == "answered"
        }
    threshold = threshold_of(monitoring)
    windows = {number: figures_of(answer, threshold) for number, answer in answers.items()}
    if as_json:
        print_json({"study": study, **_as_json(monitoring, queries, windows)})
    else:
        _print(study, monitoring, queries, windows)
        for note in notes_of(study, queries, windows, is_mean=is_mean):
            say(note)


def _as_json(monitoring: MonitoringSettings, queries: Mapping[int, Query], windows: Windows) -> dict[str, Any]:
    from study_protocol.study.control_chart import SHARES, alarms_of, limit_of, statistics_of, threshold_of

    numbers = range(1, monitoring.windows + 1)
    return {
        "net_benefit_threshold": threshold_of(monitoring),
        "limits": {measure: limit_of(monitoring, measure) for measure in SHARES},
        "statistics": {measure: statistics_of(monitoring, windows, measure) for measure in SHARES},
        "windows": [_entry(monitoring, number, queries.get(number), windows.get(number, {})) for number in numbers],
        "alarms": [asdict(alarm) | {"in_words": alarm.in_words} for alarm in alarms_of(monitoring, windows)],
    }


def _print(study: str, monitoring: MonitoringSettings, queries: Mapping[int, Query], windows: Windows) -> None:
    from study_protocol.study.control_chart import MEASURES, alarms_of, rule_in_words, threshold_of, untold, words_of

    rows: list[list[str]] = []
    for number in range(1, monitoring.windows + 1):
        entry = _entry(monitoring, number, queries.get(number), {})
        days = f"{entry['first_day']} to {entry['end']}"
        rows.append([str(number), days, entry["state"], *words_of(windows.get(number, {}))])
    columns = ["window", "first records from, before", "state", *MEASURES[:-1]]
    columns.append(f"{MEASURES[-1]} at {threshold_of(monitoring):g}")
    table(f"Model of {study} on later patients", columns, rows)
    say(rule_in_words(monitoring))
    alarms = alarms_of(monitoring, windows)
    for line in [f"ALARM, {alarm.in_words}" for alarm in alarms] or ["no alarm"]:
        say(line)
    if unknown := untold(windows):
        numbers = ", ".join(map(str, unknown))
        say(f"no alarm can come of window {numbers}: too few patients for the noise, or predictions that are all alike")


def notes_of(study: str, queries: Mapping[int, Query], windows: Windows, *, is_mean: bool) -> list[str]:
    """Return what a reader has to know of the figures. is_mean: the study's result is a mean of released models."""
    from study_protocol.queries.evaluation.calibration import NOTES

    models = sorted({query.document.question.model_number or 0 for query in queries.values()})
    notes: list[str] = list(NOTES) if windows else []
    if is_mean and models:
        names = " and ".join(map(str, models))
        notes.append(
            f"These figures are of model {names} alone. The study's result is a mean of models, which may be "
            f"calibrated otherwise. `wardround study model {study} --round {models[-1]}` writes the watched model"
        )
    return notes


def _is_mean(client: Client, study: str) -> bool:
    from study_protocol.study.settings import StudySettings

    settings = client.study(study).settings
    return isinstance(settings, StudySettings) and settings.training.optimiser.averaging is not None


def _monitoring(client: Client, study: str) -> MonitoringSettings:
    from client_sdk.errors import ConfigurationError

    monitoring = client.study(study).settings.monitoring
    if monitoring is None:
        raise ConfigurationError(f"study {study} monitors no model: its settings have no section monitoring")
    return monitoring


def _by_window(client: Client, study: str, monitoring: MonitoringSettings) -> dict[int, Query]:
    """Return the newest query of each window that was asked about."""
    from client_sdk.api.pages import all_queries

    queries = ((monitoring.window_of(query.document), query) for query in all_queries(client, study))
    return {number: query for number, query in queries if number is not None}


def windows_due(monitoring: MonitoringSettings, queries: Mapping[int, Query]) -> list[int]:
    """Return the windows that are due today and not asked about, or that failed."""
    from datetime import UTC, datetime

    # The coordinator's own clock has the last word.
    today = datetime.now(UTC).date()
    return [
        number
        for number in range(1, monitoring.windows + 1)
        if monitoring.due_on(number) <= today and (number not in queries or queries[number].state == "failed")
    ]


def _newest_model(client: Client, study: str) -> int:
    from client_sdk.errors import ConfigurationError

    model = client.study(study).model
    if model is None or not model.version:
        raise ConfigurationError(f"study {study} has released no model yet: windows are asked about once it has")
    return model.version


def _answer(client: Client, study: str, listed: Query) -> Answer:
    """Raises AnswerNotSigned."""
    from client_sdk.api.answered import verified

    query, key = client.query(study, listed.number), client.study(study).coordinator_key
    return verified(query, listed.document, key, client.coordinator_key).published.answer


def _entry(
    monitoring: MonitoringSettings, number: int, query: Query | None, figures: Mapping[str, WindowFigure]
) -> dict[str, Any]:
    window = monitoring.window(number)
    return {
        "window": number,
        "first_day": str(window.first_day),
        "end": str(window.end),
        "due_on": str(monitoring.due_on(number)),
        "query": None if query is None else query.number,
        "state": "not asked" if query is None else query.state,
        "figures": {measure: asdict(figure) for measure, figure in figures.items()},
    }
