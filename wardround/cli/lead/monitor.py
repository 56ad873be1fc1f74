"""The group `wardround monitor`: ask about windows of later patients, and show the control chart with its alarms."""

from __future__ import annotations

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
    from study_protocol.study.control_chart import Figure
    from study_protocol.study.monitoring import MonitoringSettings
    from study_protocol.study.queries import Query

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
    from client_sdk.api.answered import Answered
    from client_sdk.errors import ConfigurationError

    with plain_errors(), operator(server, key_file) as client:
        monitoring = _monitoring(client, study)
        if window is not None and window > monitoring.windows:
            raise ConfigurationError(f"--window {window}: the study has {monitoring.windows} windows")
        asked = _by_window(client, study, monitoring)
        numbers = _due(monitoring, asked) if window is None else [window]
        model = _newest_model(client, study)
        shown: list[Query] = []
        for number in numbers:
            result = client.ask(study, monitoring.document(number, model), wait=False)
            shown.append(result.query if isinstance(result, Answered) else result)
    if as_json:
        print_json([query.model_dump(mode="json") for query in shown])
        return
    for number, query in zip(numbers, shown, strict=True):
        say(
            f"window {number} is query {query.number}: {query.state}. Hospitals answer on records of data version "
            f"{monitoring.data_version(number)}"
        )
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
    from study_protocol.study.control_chart import (
        MEASURES,
        SHARES,
        alarms_of,
        figures_of,
        limit_of,
        rule_in_words,
        statistics_of,
        threshold_of,
        words_of,
    )

    with plain_errors(), reader(study, server, key_file, home) as client:
        if coordinator_key is not None:
            client.coordinator_key = coordinator_key
        monitoring = _monitoring(client, study)
        asked, windows = _by_window(client, study, monitoring), dict[int, dict[str, Figure]]()
        threshold = threshold_of(monitoring)
        for number, query in asked.items():
            if query.state == "answered":
                windows[number] = figures_of(_answer(client, study, query), threshold)
    alarms = alarms_of(monitoring, windows)
    if as_json:
        print_json(
            {
                "study": study,
                "net_benefit_threshold": threshold,
                "limits": {measure: limit_of(monitoring, measure) for measure in SHARES},
                "windows": [
                    _entry(monitoring, number, asked.get(number), windows.get(number))
                    for number in range(1, monitoring.windows + 1)
                ],
                "statistics": {measure: statistics_of(monitoring, windows, measure) for measure in SHARES},
                "alarms": [asdict(alarm) | {"in_words": alarm.in_words} for alarm in alarms],
            }
        )
        return
    rows = [
        [str(number), f"{entry['first_day']} to {entry['end']}", entry["state"], *words_of(windows.get(number, {}))]
        for number in range(1, monitoring.windows + 1)
        for entry in [_entry(monitoring, number, asked.get(number), None)]
    ]
    columns = ["window", "first records from, before", "state", *MEASURES[:3], f"{MEASURES[3]} at {threshold:g}"]
    table(f"Model of {study} on later patients", columns, rows)
    say(rule_in_words(monitoring))
    for alarm in alarms:
        say(f"ALARM, {alarm.in_words}")
    if not alarms:
        say("no alarm")


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


def _due(monitoring: MonitoringSettings, asked: dict[int, Query]) -> list[int]:
    """Return the windows that are due today and not asked about, or that failed."""
    from datetime import UTC, datetime

    # The coordinator's own clock has the last word.
    today = datetime.now(UTC).date()
    return [
        number
        for number in range(1, monitoring.windows + 1)
        if monitoring.due_on(number) <= today and (number not in asked or asked[number].state == "failed")
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
    monitoring: MonitoringSettings, number: int, query: Query | None, figures: dict[str, Figure] | None
) -> dict[str, Any]:
    window = monitoring.window(number)
    return {
        "window": number,
        "first_day": str(window.first_day),
        "end": str(window.end),
        "due_on": str(monitoring.due_on(number)),
        "query": None if query is None else query.number,
        "state": "not asked" if query is None else query.state,
        "figures": {measure: asdict(figure) for measure, figure in (figures or {}).items()},
    }
