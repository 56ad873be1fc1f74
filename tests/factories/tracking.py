"""A tracking server in memory, and a coordinator's study whose rounds have released models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from client_sdk.api.client import Client
from study_protocol.documents.check import open_certificate
from tests.factories.hospital_double import Hospital, update
from tests.factories.live_coordinator import Live
from wardround.tracking.entries import MetricPoint
from wardround.tracking.errors import TrackingRefused, TrackingServerAway
from wardround.tracking.follower import StudyFollower, TrackedRun, TrackingServer


@dataclass
class MemoryRun:
    """As the server keeps it. A point that is sent twice is kept twice."""

    tags: dict[str, str]
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    points: list[MetricPoint] = field(default_factory=list[MetricPoint])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    status: str = "RUNNING"


@dataclass
class MemoryServer:
    """calls_left: after so many calls it answers no more, until it is set to None.

    loses_answers: it does what the call asks before it is away.
    """

    runs: dict[str, MemoryRun] = field(default_factory=dict[str, MemoryRun])
    owners: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    versions: list[tuple[str, str, dict[str, str]]] = field(default_factory=list[tuple[str, str, dict[str, str]]])
    calls_left: int | None = None
    loses_answers: bool = False

    @contextmanager
    def _call(self) -> Iterator[None]:
        is_away = self.calls_left == 0
        if is_away and not self.loses_answers:
            raise TrackingServerAway("away")
        yield
        if is_away:
            raise TrackingServerAway("away")
        if self.calls_left is not None:
            self.calls_left -= 1

    def open_run(self, name: str, tags: Mapping[str, str]) -> TrackedRun:
        with self._call():
            found = next((run_id for run_id, run in self.runs.items() if tags.items() <= run.tags.items()), None)
            run_id = found or f"{name}-{len(self.runs)}"
            run = self.runs.setdefault(run_id, MemoryRun(dict(tags)))
            points = {(point.key, point.step) for point in run.points}
            return TrackedRun(run_id, points, set(run.parameters), dict(run.tags), set(run.files))

    def log_parameters(self, run_id: str, parameters: Mapping[str, str]) -> None:
        with self._call():
            assert not parameters.keys() & self.runs[run_id].parameters.keys()
            self.runs[run_id].parameters.update(parameters)

    def log_points(self, run_id: str, points: Sequence[MetricPoint]) -> None:
        with self._call():
            self.runs[run_id].points += points

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        with self._call():
            self.runs[run_id].tags.update(tags)

    def put_files(self, run_id: str, files: Sequence[Path], folder: str | None) -> None:
        for file in files:
            with self._call():
                self.runs[run_id].files[file.name if folder is None else f"{folder}/{file.name}"] = file.read_bytes()

    def require_registry_name(self, name: str, tags: Mapping[str, str]) -> None:
        with self._call():
            if self.owners.setdefault(name, dict(tags)) != tags:
                raise TrackingRefused(f"{name} is not of this study")

    def version_of(self, name: str, tags: Mapping[str, str]) -> str | None:
        with self._call():
            numbers = [
                str(place) for place, version in enumerate(self.versions, 1) if tags.items() <= version[2].items()
            ]
            return numbers[0] if numbers else None

    def register(self, name: str, run_id: str, folder: str, tags: Mapping[str, str]) -> str:
        with self._call():
            self.versions.append((name, f"{run_id}/{folder}", dict(tags)))
            return str(len(self.versions))

    def end_run(self, run_id: str, status: str) -> None:
        with self._call():
            self.runs[run_id].status = status


def follower(client: Client, server: TrackingServer, study: str) -> StudyFollower:
    """A follower that no memory of an earlier one helps."""
    return StudyFollower(client, study, server, study, lambda reader: open_certificate(reader.certificate(study)))


def release(here: Live, hospitals: Sequence[Hospital], round_number: int) -> None:
    """Let one round release a model, and the next one begin."""
    for hospital in hospitals:
        hospital.send(round_number, update(0.1 * round_number))
    here.work()
