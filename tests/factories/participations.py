"""A hospital's participation in the study `sepsis` on the data set `icu`, run or cut short."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.errors import (
    AuthenticationError,
)
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.study.hospital import Hospital
from client_sdk.study.participation import Outcome
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import plain_policy, records
from tests.factories.wire_answers import problem


def join(here: Hospital, **options: Any) -> Outcome:
    chosen: dict[str, Any] = {"policy": plain_policy(), "dataset": "icu"}
    return here.join("sepsis", "logistic-regression", records(), **(chosen | options))


def besides_decisions(ledger: HospitalLedger) -> list[Any]:
    """Entries of the rounds, without the marks of what people decided."""
    return [entry for entry in ledger.entries if entry.body["study"] != "/decisions"]


def ledger_of(directory: Path) -> HospitalLedger:
    return HospitalLedger.open(ledger_path(directory, "icu"), read_only=True)


def stop_after(other: Coordinator, rounds: int) -> None:
    """The network goes away when this many rounds have their update."""

    def meddle(request: httpx.Request) -> httpx.Response | None:
        done = sum("mercy" in bodies for bodies in other.updates.values())
        if done >= rounds and request.method == "GET" and request.url.path.endswith("/assignment"):
            # Not an error that is tried again: the participation must end here.
            return problem(403, "forbidden")
        return None

    other.meddle = meddle


def run_until_forbidden(here: Hospital, **options: Any) -> None:
    with pytest.raises(AuthenticationError):
        join(here, **options)
