"""One study copied to one run of a tracking server, pass by pass.

A pass reads the study, reads what the server has of it, and sends the difference. So an interrupted pass is repaired by
the next one, of this process or of a later one. No state is kept on this machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from client_sdk.api.client import Client
from client_sdk.api.pages import all_rounds
from client_sdk.errors import LedgerNotExtended
from client_sdk.study.result import StudyModel, study_model
from study_protocol.documents.check import OpenedCertificate
from study_protocol.study.messages import RoundView, Study
from wardround.tracking.entries import (
    VERSION_TAGS,
    MetricPoint,
    identity_tags,
    model_tags,
    parameters_of,
    points_of,
    state_tags,
)
from wardround.tracking.errors import TrackingServerAway

SETTINGS_FILE = "settings.json"
_ATTEMPTS = 3


@dataclass
class TrackedRun:
    """The state of a run on the server.

    Attributes:
        run_id: the server's name of the run.
        points: (key, step) of each metric value.
        parameters: keys.
        tags: by key.
        files: paths at the top of the run's artefacts.
    """

    run_id: str
    points: set[tuple[str, int]]
    parameters: set[str]
    tags: dict[str, str]
    files: set[str]


class TrackingServer(Protocol):
    """A tracking server. Each method raises TrackingServerAway or TrackingRefused."""

    def open_run(self, name: str, tags: Mapping[str, str]) -> TrackedRun:
        """Return the run that has these tags. If there is none, it is created with them."""
        ...

    def log_parameters(self, run_id: str, parameters: Mapping[str, str]) -> None: ...
    def log_points(self, run_id: str, points: Sequence[MetricPoint]) -> None: ...
    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None: ...
    def put_files(self, run_id: str, files: Sequence[Path], folder: str | None) -> None: ...

    def require_registry_name(self, name: str, tags: Mapping[str, str]) -> None:
        """Require a registered model of this name with these tags. If there is none, it is created."""
        ...

    def version_of(self, name: str, tags: Mapping[str, str]) -> str | None:
        """Return the number of the model version that has these tags, or None."""
        ...

    def register(self, name: str, run_id: str, folder: str, tags: Mapping[str, str]) -> str:
        """Register the files in a folder of a run as a new model version, and return its number."""
        ...

    def end_run(self, run_id: str, status: str) -> None:
        """Set the status of a run: FINISHED, KILLED or FAILED."""
        ...


@dataclass(frozen=True)
class PassReport:
    """The result of one pass.

    Attributes:
        run_id: of the tracking server.
        rounds: how many the study has begun.
        new_points: how many metric values were sent.
        model_version: number of the registered version of the study's model, None while it is not registered.
        is_over: whether the study is finished.
    """

    run_id: str
    rounds: int
    new_points: int
    model_version: str | None
    is_over: bool


# Reads the study's certificate, and checks its signature.
CertificateReader = Callable[[Client], OpenedCertificate]


class StudyFollower:
    """Copies a study to a tracking server.

    Args:
        client: of the study's coordinator.
        study: name of the study.
        server: of MLflow.
        registered_model: name of the registered model.
        read_certificate: returns the newest certificate, its signature checked.
    """

    def __init__(
        self,
        client: Client,
        study: str,
        server: TrackingServer,
        registered_model: str,
        read_certificate: CertificateReader,
    ) -> None:
        self._client, self._study, self._server = client, study, server
        self._registered_model, self._read_certificate = registered_model, read_certificate
        # None: what the server has must be read again.
        self._run: TrackedRun | None = None

    def copy(self, *, with_model: bool = False) -> PassReport:
        """Send what the server does not have yet, and return a report.

        Args:
            with_model: register the newest model, although the study is not finished.

        Raises:
            TrackingServerAway: the tracking server does not answer.
            TrackingRefused: the tracking server refuses the request.
            WardroundError: the coordinator's answer cannot be used.
        """
        try:
            return self._copy(with_model)
        except TrackingServerAway:
            self._run = None
            raise

    def _copy(self, with_model: bool) -> PassReport:
        study = self._client.study(self._study)
        budget, rounds = self._client.budget(self._study), all_rounds(self._client, self._study)
        if self._run is None:
            self._run = self._server.open_run(study.study, identity_tags(study))
        run = self._run
        self._send_settings(run, study)
        new_points = self._send_points(run, rounds)
        is_over = study.state == "finished"
        version = self._register(run, study) if with_model or is_over else None
        # These come last: who sees the state `finished` has everything.
        tags = {key: text for key, text in state_tags(study, budget, rounds).items() if run.tags.get(key) != text}
        if tags:
            self._server.set_tags(run.run_id, tags)
            run.tags.update(tags)
        if is_over:
            self._server.end_run(run.run_id, _status(study))
        return PassReport(run.run_id, study.rounds, new_points, version, is_over)

    def _send_settings(self, run: TrackedRun, study: Study) -> None:
        settings = study.settings.as_json()
        # MLflow refuses to change a parameter. A later version of this program may flatten the settings otherwise.
        missing = {key: text for key, text in parameters_of(settings).items() if key not in run.parameters}
        if missing:
            self._server.log_parameters(run.run_id, missing)
            run.parameters.update(missing)
        if SETTINGS_FILE not in run.files:
            with TemporaryDirectory() as folder:
                file = Path(folder) / SETTINGS_FILE
                file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
                self._server.put_files(run.run_id, [file], None)
            run.files.add(SETTINGS_FILE)

    def _send_points(self, run: TrackedRun, rounds: Sequence[RoundView]) -> int:
        missing = [point for point in points_of(rounds) if (point.key, point.step) not in run.points]
        if missing:
            self._server.log_points(run.run_id, missing)
            run.points.update((point.key, point.step) for point in missing)
        return len(missing)

    def _register(self, run: TrackedRun, study: Study) -> str | None:
        """Return the number of the model version, or None if no round has released a model."""
        if study.model is None or study.model.version == 0:
            return None
        document, model = self._certified_model()
        name = self._registered_model
        self._server.require_registry_name(name, identity_tags(study))
        tags = model_tags(document.certificate, model.round, hashlib.sha256(model.body).hexdigest())
        # A ledger may grow after the model. An equal model of a later round has another guarantee.
        version = self._server.version_of(name, {key: tags[key] for key in VERSION_TAGS})
        if version is not None:
            return version
        folder = f"model-round-{model.round}"
        with TemporaryDirectory() as temporary:
            files = [Path(temporary) / "model.safetensors", Path(temporary) / "certificate.json"]
            files[0].write_bytes(model.body)
            files[1].write_text(json.dumps(document.raw, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            self._server.put_files(run.run_id, files, folder)
        return self._server.register(name, run.run_id, folder, tags)

    def _certified_model(self) -> tuple[OpenedCertificate, StudyModel]:
        """Return the study's model with the certificate that names it.

        Raises:
            LedgerNotExtended: the certificate names another model.
        """
        # Between the two answers a round may release the next model.
        for _ in range(_ATTEMPTS):
            document, model = self._read_certificate(self._client), study_model(self._client, self._study)
            stated = document.certificate.result or document.certificate.model
            if stated is not None and stated.sha256 == hashlib.sha256(model.body).hexdigest():
                return document, model
        raise LedgerNotExtended(f"the certificate of {self._study} names another model than the study has")


def _status(study: Study) -> str:
    if study.stop_reason == "database-differs":
        return "FAILED"
    return "KILLED" if study.stop_reason in ("stopped", "deleted") else "FINISHED"
