"""One round of a small study in one process, watched: which of our files its coordinator and one hospital enter.

A coordinator (its HTTP application on a real socket, its worker, SQLite) and five hospitals that join it. The second
round is watched through Python's profile hook: the first one does what is done once (imports, tables, caches).
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import uvicorn

from client_sdk.api.client import ApiKey, Client
from client_sdk.api.config import Connection
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.hospital import Hospital
from private_learning import tasks
from private_learning.records import Table
from private_learning.training.weights import weights_of
from server.app import create_app
from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.db.tables import RoundRow
from server.services.coordinator import Coordinator
from server.services.people.keys import create_key
from server.worker import Worker
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import encode

ROOT = Path(__file__).resolve().parents[2]
# The hospital's loop asks for its next assignment with this method of `Client`.
ASK = "assignment"
# Files that wait for news or watch, for all requests alike.
ASIDE = (
    # The log of requests.
    "server/telemetry.py",
    # These two look for news for hospitals that wait.
    "server/api/watcher.py",
    "server/services/events.py",
    # Entered only because the worker does not run inside the application here.
    "server/app.py",
)

# -- The study

_PACKAGES = ("accounting", "study_protocol", "private_learning", "client_sdk", "server", "wardround")
_ORIGIN = "https://study.example.org"
_STUDY = "sepsis"
_HOSPITALS = ("alpha", "beta", "gamma", "delta", "epsilon")
_ROUND = 2
_SECONDS = 120.0
_TASK = {"label": "ill", "column.age": "0..100", "column.rate": "0..10"}
_MASKING = {
    "colluders": 1,
    "neighbours": None,
    "min_survivors": 4,
    "mask_updates": True,
    "allow_three": False,
    "step_deadline_seconds": 60.0,
    "expiry_seconds": 3600.0,
}
_VALUES: dict[str, Any] = {
    "training": {
        "task": "logistic-regression",
        "task_parameters": _TASK,
        "algorithm": "fedsgd",
        "local_steps": 1,
    },
    "privacy": {
        "scheme": "parallel",
        "limits": [
            {
                "level": "instance",
                "definition": "bayesian",
                "epsilon": 40.0,
                "delta": 1e-5,
                "estimator_failure_probability": 5e-6,
            },
            {"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": 1e-5},
        ],
        "clip_norm": 1.0,
        "client_clip_norm": None,
        "noise_multiplier": 4.0,
        "sampling_rate": 0.5,
        "expected_batch_size": 20.0,
        "client_sampling_rate": 1.0,
        "expected_clients": float(len(_HOSPITALS)),
        "max_steps": 2 * _ROUND,
        "classical_order": 4.0,
        "bayesian": {
            "orders": [2.0, 4.0, 8.0],
            "filter_order": 4.0,
            "estimator": "betting",
            "composition": "running",
            "adversary": "adaptive",
            "conversion": "improved",
        },
        "disclosure": "plain",
        "histogram_noise": None,
        "accounting_sample": None,
        "masking": None,
    },
    "schedule": {"min_clients": 4, "round_deadline_seconds": 600.0},
}


def settings(*, masked: bool) -> StudySettings:
    """Return a small study with a Bayesian and a classical limit, every hospital in every round."""
    privacy = _VALUES["privacy"] | {"masking": _MASKING if masked else None}
    return StudySettings.model_validate(_VALUES | {"privacy": privacy})


# -- What runs


@dataclass
class Recorder:
    """Notes for each side which of our files are entered, while `running`.

    hospital_thread  the one whose files are the hospital's; every other thread that is watched is the coordinator's
    """

    root: Path = ROOT
    hospital: dict[str, None] = field(default_factory=dict)
    coordinator: dict[str, None] = field(default_factory=dict)
    hospital_thread: int | None = None
    running: bool = False
    released: bool = False
    _paths: dict[str, str | None] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if self.running and event == "call":
            self.note(frame)

    def note(self, frame: FrameType) -> None:
        """Enter the frame's file among those of this thread's side, once."""
        is_hospital = threading.get_ident() == self.hospital_thread
        path = self._path(frame.f_code.co_filename)
        if path is not None and (is_hospital or not self.released):
            (self.hospital if is_hospital else self.coordinator).setdefault(path)

    def _path(self, filename: str) -> str | None:
        if filename not in self._paths:
            self._paths[filename] = self._relative(filename)
        return self._paths[filename]

    def _relative(self, filename: str) -> str | None:
        path = Path(filename)
        if not path.is_relative_to(self.root):
            return None
        name = path.relative_to(self.root)
        return name.as_posix() if name.parts[0] in _PACKAGES and name.as_posix() not in ASIDE else None

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Watch every thread that is started meanwhile; those that import and prepare say no for themselves."""
        threading.setprofile(self)
        try:
            yield
        finally:
            self.running = False
            threading.setprofile(None)  # type: ignore[arg-type]


class _RoundSeen(Exception):
    """The round is over; nobody takes part in another one."""


@dataclass
class Gate:
    """Lets all hospitals go into the watched round together, and the recording with them."""

    recorder: Recorder

    def __post_init__(self) -> None:
        self._all_here = threading.Barrier(len(_HOSPITALS), action=self._begin)

    def _begin(self) -> None:
        # The coordinator's threads finish with the last request first.
        time.sleep(0.2)
        self.recorder.running = True

    def around(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        """`ask`, with the round's beginning and end for this thread."""

        def ask_watched(client: Any, *arguments: Any, **options: Any) -> Any:
            if self.recorder.running:
                sys.setprofile(None)
                raise _RoundSeen
            assignment = ask(client, *arguments, **options)
            if assignment is not None and assignment.assignment.round == _ROUND:
                self._all_here.wait(_SECONDS)
                if threading.get_ident() == self.recorder.hospital_thread:
                    self.recorder.note(sys._getframe(1))
                    sys.setprofile(self.recorder)
            return assignment

        return ask_watched

    def give_up(self) -> None:
        """Nobody waits any longer for a hospital that failed."""
        self._all_here.abort()


class Site(threading.Thread):
    """One hospital that joins. `error` is what ended it before the watched round was over."""

    def __init__(self, hospital: Hospital, gate: Gate, seed: int) -> None:
        super().__init__(name=f"hospital-{seed}", daemon=True)
        self._hospital, self._gate, self._seed = hospital, gate, seed
        self.error: BaseException | None = None

    def run(self) -> None:
        # Until the watched round: training's imports are slow under a hook.
        sys.setprofile(None)
        if self._seed == 0:
            self._gate.recorder.hospital_thread = threading.get_ident()
        policy = SitePolicy.model_validate({"plain_disclosure": True, "unpinned_roster": "laboratory"})
        try:
            self._hospital.join(_STUDY, None, _records(self._seed), policy=policy)
            self.error = RuntimeError(f"the study ended before `{ASK}` was asked again")
        except _RoundSeen:
            pass
        except BaseException as error:  # noqa: BLE001 - shown by whoever waits for this thread
            self.error = error
            self._gate.give_up()


def _records(seed: int, count: int = 40) -> Table:
    draw = np.random.default_rng(seed)
    age, rate = draw.uniform(0, 100, count), draw.uniform(0, 10, count)
    ill = (age / 100 + rate / 10 > 1).astype(float)
    patients = [f"p{number}" for number in range(count)]
    return Table.of({"age": age, "rate": rate, "ill": ill, "patient": patients}, patient_column="patient")


# -- One run


@dataclass(frozen=True)
class Way:
    """The files of both sides, each in the order in which they were first entered."""

    hospital: Sequence[str]
    coordinator: Sequence[str]


@contextmanager
def _served(coordinator: Coordinator, settings: Settings) -> Iterator[str]:
    """The address at which the coordinator answers."""
    config = uvicorn.Config(create_app(settings, coordinator=coordinator), port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the coordinator does not start")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


def _opened(coordinator: Coordinator, url: str, home: Path, settings: StudySettings) -> list[Hospital]:
    """Open the study and enrol the hospitals."""
    key = create_key(coordinator, ApiKeyCreate(role="administrator", name="Ada")).key
    connection = Connection(url=url, patience_seconds=30.0)
    task = tasks.load(settings.training.task, settings.training.task_parameters)
    with Client(connection, ApiKey(key)) as operator:
        operator.create_study(StudyCreate(study=_STUDY, settings=settings))
        operator.put_initial_model(_STUDY, encode(weights_of(task.model())))
        hospitals = [
            Hospital.enrol(
                url,
                operator.invite(_STUDY, InvitationCreate(client=name)).token,
                directory=home / name,
                connection=lambda _: connection,
            )
            for name in _HOSPITALS
        ]
        operator.move_study(_STUDY, "start")
    return hospitals


def _released(coordinator: Coordinator) -> bool:
    return coordinator.database.read(
        "released", lambda tx: tx.session.query(RoundRow).filter_by(number=_ROUND, state="released").count() > 0
    )


def _drive(coordinator: Coordinator, recorder: Recorder, sites: Sequence[Site]) -> None:
    """Let the worker do what is due until the watched round is released and every hospital has done its part."""
    worker, released = Worker(coordinator), False
    end = time.monotonic() + _SECONDS
    while not released or any(site.is_alive() for site in sites):
        errors = [site.error for site in sites if site.error is not None]
        if errors or time.monotonic() > end:
            raise RuntimeError(f"round {_ROUND} was not released") from next(iter(errors), None)
        if not released:
            sys.setprofile(recorder)
            try:
                worker.step()
            finally:
                sys.setprofile(None)
            released = _released(coordinator)
        time.sleep(0.02)
        # What hospitals still ask for after the release is none of the coordinator's way.
        recorder.released = recorder.released or released


def run(*, masked: bool) -> Way:
    """Take one study into its second round and watch that.

    Raises:
        RuntimeError: the round came to nothing.
    """
    recorder = Recorder()
    ask = getattr(Client, ASK)
    gate = Gate(recorder)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        coordinator_settings = Settings(home=home / "coordinator", origin=_ORIGIN, worker=False, watch_seconds=0.02)
        prepare(coordinator_settings)
        coordinator = open_coordinator(coordinator_settings)
        try:
            with recorder.hooked(), _served(coordinator, coordinator_settings) as url:
                study = settings(masked=masked)
                sites = [
                    Site(hospital, gate, seed) for seed, hospital in enumerate(_opened(coordinator, url, home, study))
                ]
                setattr(Client, ASK, gate.around(ask))
                for site in sites:
                    site.start()
                _drive(coordinator, recorder, sites)
        finally:
            setattr(Client, ASK, ask)
            coordinator.database.dispose()
    return Way(tuple(recorder.hospital), tuple(recorder.coordinator))
