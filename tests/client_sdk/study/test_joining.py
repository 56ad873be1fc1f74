"""What joining says on the spot, to nobody else."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.study.hospital import Hospital
from client_sdk.study.joining import Computing, Listeners, LocalTerms
from tests.factories.hospitals import coordinator, hospital
from tests.factories.participations import join
from tests.factories.settings import limit, settings

RECORDS = 40


def joined(tmp_path: Path, delta: float, caplog: pytest.LogCaptureFixture) -> tuple[list[str], list[Any]]:
    """The warnings, and everything that was sent but the updates: those are noised."""
    sent: list[Any] = []

    def listen(request: httpx.Request) -> None:
        if "/updates/" not in request.url.path:
            sent.append((request.method, request.url.path, request.content))

    other = coordinator(settings(limits=[limit("instance", delta=delta)]))
    other.meddle = listen
    join(hospital(other, tmp_path))
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"], sent


def test_a_delta_above_one_over_the_records_is_told_here_and_to_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warnings, sent = joined(tmp_path / "a", 1.001 / RECORDS, caplog)
    (warning,) = [text for text in warnings if "larger than 1 over the number of records" in text]
    assert str(RECORDS) not in warning.replace(f"{1.001 / RECORDS:g}", "")
    caplog.clear()
    quiet, other = joined(tmp_path / "b", 0.999 / RECORDS, caplog)
    assert not [text for text in quiet if "records" in text]
    # The coordinator hears the same of both.
    assert [(method, path) for method, path, _ in sent] == [(method, path) for method, path, _ in other]
    assert not any(b"records" in content for _, _, content in sent)


def test_every_option_of_join_is_described_once() -> None:
    described = [field.name for options in (LocalTerms, Computing, Listeners) for field in dataclasses.fields(options)]
    assert sorted(described) == sorted(
        set(inspect.signature(Hospital.join).parameters) - {"self", "study", "task", "data"}
    )
